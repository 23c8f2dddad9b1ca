// Pure parts of the page, by node's own runner; tests/studio/test_modules.py starts it.
import assert from "node:assert/strict";
import {test} from "node:test";
import {arranged, counted, gather, megabytes} from "../../src/tagmask/studio/web/dropped.js";
import {NONE, around, brush, cut, effective, fill, labelsIn, paste, polygon} from "../../src/tagmask/studio/web/labels.js";
import {folderTag, listed, select, visible} from "../../src/tagmask/studio/web/list.js";
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

test("fill labels what pixel after pixel reaches", () => {
  let seed = 7;
  const draw = () => { seed = (1103515245 * seed + 12345) % 2 ** 31; return seed / 2 ** 31; };
  for (let turn = 0; turn < 300; turn++) {
    const h = 1 + Math.floor(9 * draw()), w = 1 + Math.floor(9 * draw()), start = Math.floor(h * w * draw());
    const mask = Uint8Array.from({length: h * w}, () => Number(draw() < 0.6)), labels = Uint8Array.from({length: h * w}, () => (draw() < 0.2 ? 1 : NONE));
    const reached = new Set([start]);
    for (const k of reached) {
      const near = [k % w ? k - 1 : -1, (k + 1) % w ? k + 1 : -1, k - w, k + w];
      for (const next of near) if (next >= 0 && next < h * w && effective(mask, labels, next) === effective(mask, labels, start)) reached.add(next);
    }
    const expected = labels.map((label, k) => (reached.has(k) ? 2 : label)), rows = [...reached].map((k) => Math.floor(k / w)), columns = [...reached].map((k) => k % w);
    const box = fill(labels, mask, h, w, start, 2);
    assert.deepEqual(labels, expected);
    const top = Math.min(...rows), left = Math.min(...columns);
    assert.deepEqual(box, {top, left, height: Math.max(...rows) - top + 1, width: Math.max(...columns) - left + 1});
  }
});

test("labels of a mask", () => {
  assert.deepEqual(labelsIn(new Uint8Array(70).fill(4).fill(0, 0, 30)), [0, 4]);
  assert.deepEqual(labelsIn(new Uint8Array()), []);
});

test("dropped folders are walked to the end, and give their name", async () => {
  const file = (name, size = 10) => ({name, isDirectory: false, file: (done) => done({name, size})});
  const folder = (name, ...parts) => ({name, isDirectory: true, createReader: () => ({readEntries: (done) => done(parts.splice(0, 2))})});
  const pets = folder("pets", file("a.JPG"), folder("cats", file("b.png"), file("c.png"), file("d.png")), file("notes.txt"), file("huge.jpg", 1e9), folder(".git", file("e.jpg")));
  const found = await gather([{entry: pets, file: null}]);
  assert.equal(found.length, 7);
  const {name, photos, left} = arranged(found, [".jpg", ".png"], 1e6);
  assert.deepEqual(photos.map((photo) => photo.path), ["a.JPG", "cats/b.png", "cats/c.png", "cats/d.png"]);
  assert.deepEqual([name, left], ["pets", 3]);
  const loose = arranged(await gather([{entry: null, file: {name: "x.jpg", size: 1}}, {entry: folder("y", file("z.jpg")), file: null}]), [".jpg"], 1e6);
  assert.deepEqual([loose.name, loose.photos.map((photo) => photo.path)], ["photos", ["x.jpg", "y/z.jpg"]]);
});

test("numbers of photos and bytes in words", () => {
  assert.deepEqual([{photos: 1}, {photos: 0}, {photos: 0, counted: false}, {photos: 64, counted: false}].map(counted), ["1 photo", "", "not counted", "64 or more photos"]);
  assert.deepEqual([2e3, 4.25e6, 8.1e7, 2.5e9].map(megabytes), ["0.1 MB", "4.3 MB", "81 MB", "2.5 GB"]);
});

test("the tag of a folder is that of the first one", () => {
  const server = {photos: ["cats/young/a", "b", "a,b/c"], folderTags: {cats: "cat"}};
  assert.deepEqual([0, 1, 2].map((id) => folderTag(server, id)), ["cat", "", ""]);
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
