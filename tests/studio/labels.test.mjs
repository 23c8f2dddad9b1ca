// Pure parts of the page, by node's own runner; tests/studio/test_modules.py starts it.
import assert from "node:assert/strict";
import {test} from "node:test";
import {NONE, around, brush, cut, fill, paste, polygon} from "../../src/tagmask/studio/web/labels.js";
import {listed, select, visible} from "../../src/tagmask/studio/web/list.js";
import {spread} from "../../src/tagmask/studio/web/affinity.js";

const blank = (h, w) => new Uint8Array(h * w).fill(NONE);

test("a fast stroke is a line, however thin", () => {
  const labels = blank(20, 20);
  brush(labels, 20, 20, [1.5, 1.5], [17.5, 9.5], 0.1, 3);
  for (let x = 1; x <= 17; x++) assert.ok([...Array(20).keys()].some((y) => labels[y * 20 + x] === 3), `column ${x}`);
});

test("a polygon holds the middles of its pixels", () => {
  const labels = blank(10, 10), box = polygon(labels, 10, 10, [[2, 2], [6, 2], [6, 5], [2, 5]], 1);
  assert.equal(labels.filter((label) => label === 1).length, 12);
  assert.deepEqual([box.left, box.width], [2, 4]);
});

test("fill stays within its region", () => {
  const mask = Uint8Array.from([1, 1, 0, 1]), labels = blank(1, 4);
  fill(labels, mask, 1, 4, 0, 0);
  assert.deepEqual([...labels], [0, 0, NONE, NONE]);
});

test("what is cut is pasted back", () => {
  const labels = Uint8Array.from({length: 30}, (_, k) => k), box = {top: 1, left: 2, height: 3, width: 2}, part = cut(labels, 6, box), copy = labels.slice();
  paste(copy.fill(0, 6, 24), 6, box, part);
  assert.deepEqual([...part], [8, 9, 14, 15, 20, 21]);
  assert.equal(copy[14], 14);
  assert.deepEqual(around(box, {top: 0, left: 5, height: 1, width: 1}), {top: 0, left: 2, height: 4, width: 4});
});

test("ranges, toggles and what is in sight", () => {
  assert.deepEqual(select([4, 2, 9, 1], [4], 2, 1, {shift: true}), [2, 9, 1]);
  assert.deepEqual(select([4, 2], [4], 4, 2, {toggle: true}), [4, 2]);
  const seen = visible(2000, 5, 100, 10000, 500);
  assert.ok(seen.to - seen.from <= 50);
  assert.equal(seen.total, 40000);
});

test("the most doubtful first", () => {
  const server = {photos: ["a", "b", "c"], tags: [[], ["x"], []], checked: [], corrected: [], drawn: [], masks: [0, 1, 2], notes: {}, mode: "run", inRun: [], order: [], facts: [{unsure: 0.1}, undefined, {unsure: 0.4}], learning: null};
  assert.deepEqual(listed(server, {step: "review", q: "", tag: "", show: "", order: ""}), [2, 0, 1]);
  assert.deepEqual(listed(server, {step: "review", q: "x", tag: "", show: "", order: ""}), [1]);
});

test("rows of a matrix that is taken twice add up to one", () => {
  const affinity = {n: 2, tops: Float32Array.from([1, 0.5]), pairs: Uint8Array.from([255, 51, 255, 255])};
  const matrix = spread(affinity, {low: 0, high: 0, transpose: false, power: 1, steps: 2});
  assert.ok(Math.abs(matrix[0] + matrix[1] - 1) < 1e-6);
  assert.ok(Math.abs(matrix[0] - 1 / 1.2) < 1e-6);
});
