// The drawer for the curious: affinity of a pixel, maps, blocks, stages and runs side by side.

import {classMap, rowOf, spread, unpack} from "./affinity.js";
import {bytes} from "./api.js";
import {guarded, labelled, make} from "./dom.js";
import {paintCells, paintPlain} from "./paint.js";
import {get, watch} from "./store.js";

const SHOW = /** @type {Record<string, string>} */ ({photo: "photo", map: "map of a tag", affinity: "affinity of a pixel", pseudo: "pseudo label", mask: "mask", truth: "truth", trial: "mask learnt again"});

/** @param {number} label */
const nameOf = (label) => (label === 0 ? "background" : label === 255 ? "unsure" : get().server.classes[label - 1]);

class Pane {
  /** @param {Why} why @param {string} show */
  constructor(why, show) {
    this.why = why;
    this.wanted = show;
    this.show = make("select", {"aria-label": "Show"});
    this.run = make("select", {"aria-label": "Run", hidden: get().server.runs.length < 2});
    this.run.append(...get().server.runs.map((name, k) => make("option", {value: k, textContent: name})));
    this.method = make("select", {"aria-label": "Map method"});
    this.canvas = make("canvas", {tabIndex: 0, role: "img", "aria-label": "photo, loading"});
    this.root = make("figure", {}, make("div", {className: "row"}, this.show, this.run, this.method), this.canvas);
    /** @type {import("./affinity.js").Affinity | null} */
    this.affinity = null;
    /** @type {Float32Array | null} */
    this.matrix = null;
    this.matrixKey = "";
    this.key = "";
    /** @type {Uint8Array | null} */
    this.labels = null;
    /** @type {Float32Array | null} */
    this.map = null;
    for (const select of [this.show, this.run, this.method]) {
      select.onchange = guarded(() => { this.wanted = this.show.value; return this.load(); });
    }
    this.listen();
  }

  choices() {
    const {server} = get();
    return Object.keys(SHOW).filter((kind) => (kind === "truth" ? server.truth : kind === "trial" ? server.learning?.state === "learnt"
      : kind === "mask" || kind === "pseudo" ? server.made[kind] : true));
  }

  async load() {
    const truth = get().open, there = this.choices();
    if (!truth) return;
    this.show.replaceChildren(...there.map((kind) => make("option", {value: kind, textContent: SHOW[kind]})));
    this.show.value = there.includes(this.wanted) ? this.wanted : there.includes("mask") ? "mask" : "map";
    const run = Number(this.run.value || 0), methods = truth.methods[run], kind = this.show.value;
    if (!methods.includes(this.method.value)) this.method.replaceChildren(...methods.map((name) => make("option", {value: name, textContent: name})));
    const needs = kind === "map" || kind === "affinity";
    this.method.hidden = !needs;
    const {naturalWidth: width, naturalHeight: height} = truth.image, times = 640 / Math.max(width, height);
    this.canvas.width = Math.round(times * width);
    this.canvas.height = Math.round(times * height);
    this.labels = null;
    if (needs) {
      const key = `affinity/${run}/${this.method.value}/${truth.id}`, stamp = `${key} ${get().server.tags[truth.id].join()}`;
      if (this.key !== stamp || !this.affinity) {
        const affinity = unpack(await bytes(key));
        if (get().open?.id !== truth.id) return;
        this.affinity = affinity;
        this.key = stamp;
        this.matrix = null;
        this.why.blockChoices(affinity);
      }
    } else if (kind !== "photo") {
      const labels = new Uint8Array(await bytes(`${kind}/${run}/${truth.id}`));
      if (get().open?.id !== truth.id) return;
      this.labels = labels.length ? labels : null;
    }
    this.draw();
  }

  /** @param {import("./affinity.js").How} how */
  spreadBy(how) {
    const key = JSON.stringify(how);
    if (!this.matrix || this.matrixKey !== key) {
      this.matrix = spread(/** @type {any} */ (this.affinity), how);
      this.matrixKey = key;
    }
    return this.matrix;
  }

  draw() {
    const truth = get().open, {server} = get();
    if (!truth) return;
    const {width, height} = this.canvas, context = this.canvas.getContext("2d"), kind = this.show.value;
    context.drawImage(truth.image, 0, 0, width, height);
    const layer = new ImageData(width, height), alpha = Number(this.why.controls.strength.value);
    let text = SHOW[kind];
    if (this.labels) text += `: ${paintPlain(layer, this.labels, alpha, [truth.height, truth.width], server.colours).map(([label, share]) => `${nameOf(label)} ${Math.round(100 * share)} %`).join(", ")}`;
    else if (["pseudo", "mask", "truth", "trial"].includes(kind)) text += ": not made of this photo";
    if (kind === "map" && this.affinity && this.affinity.tags.length) {
      const how = this.why.how(), place = Math.max(0, this.affinity.tags.indexOf(get().label - 1));
      this.map = classMap(this.affinity, this.spreadBy(how), place, how.steps);
      paintCells(layer, this.affinity, this.map, alpha, Number(this.why.controls.threshold.value));
      text += ` ${server.classes[this.affinity.tags[place]]}`;
    }
    if (kind === "affinity" && this.affinity && this.why.pixel) text += ` ${this.drawRow(layer, alpha)}`;
    const over = make("canvas", {width, height});
    over.getContext("2d").putImageData(layer, 0, 0);
    context.drawImage(over, 0, 0);
    if (this.why.pixel) {
      const [x, y] = [this.why.pixel[0] * width, this.why.pixel[1] * height];
      for (const [style, line] of [["#000", 4], ["#fff", 2]]) {
        context.strokeStyle = style;
        context.lineWidth = line;
        context.beginPath();
        context.moveTo(x - 9, y); context.lineTo(x + 9, y); context.moveTo(x, y - 9); context.lineTo(x, y + 9);
        context.stroke();
      }
    }
    this.canvas.setAttribute("aria-label", `${truth.name}, ${text}`);
  }

  /** @param {ImageData} layer @param {number} alpha */
  drawRow(layer, alpha) {
    const how = this.why.how(), affinity = /** @type {import("./affinity.js").Affinity} */ (this.affinity), {n, grid, span} = affinity, steps = Math.max(1, how.steps);
    const pixel = /** @type {[number, number]} */ (this.why.pixel);
    const y = Math.min(grid[0] - 1, Math.floor(pixel[1] * span[0])), x = Math.min(grid[1] - 1, Math.floor(pixel[0] * span[1]));
    const row = rowOf(this.spreadBy({...how, steps}), n, y * grid[1] + x, steps);
    let best = 0;
    for (let k = 1; k < n; k++) if (row[k] > row[best]) best = k;
    this.why.row = row;
    this.why.cell = [y, x];
    paintCells(layer, affinity, row.map((value) => value / (row[best] || 1)), alpha, 0);
    const text = `row ${y + 1}, column ${x + 1} of ${grid[0]} × ${grid[1]}: itself ${row[y * grid[1] + x].toPrecision(4)}, most ` +
      `${row[best].toPrecision(4)} at row ${Math.floor(best / grid[1]) + 1}, column ${best % grid[1] + 1}`;
    this.why.reading.textContent = `Affinity ${how.transpose ? "Aᵀ" : "A"} of ${text}`;
    return text;
  }

  listen() {
    /** @param {PointerEvent} event @returns {[number, number]} */
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [Math.min(0.9999, Math.max(0, (event.clientX - box.left) / box.width)), Math.min(0.9999, Math.max(0, (event.clientY - box.top) / box.height))];
    };
    let held = false;
    this.canvas.onpointerdown = (/** @type {PointerEvent} */ event) => { held = true; this.why.point(at(event)); };
    this.canvas.onpointermove = (/** @type {PointerEvent} */ event) => { if (held) this.why.point(at(event)); };
    this.canvas.onpointerup = () => { held = false; };
    this.canvas.onkeydown = (/** @type {KeyboardEvent} */ event) => {
      const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (!move) return;
      const grid = this.affinity ? this.affinity.grid : [24, 24], now = this.why.pixel || [0.5, 0.5];
      this.why.point([Math.min(0.9999, Math.max(0, now[0] + move[0] / grid[1])), Math.min(0.9999, Math.max(0, now[1] + move[1] / grid[0]))]);
      event.preventDefault();
      event.stopPropagation();
    };
  }
}

export class Why {
  constructor() {
    /** @type {Pane[]} */
    this.panes = [];
    /** @type {[number, number] | null} */
    this.pixel = null;
    /** @type {Float32Array | null} */
    this.row = null;
    /** @type {[number, number] | null} */
    this.cell = null;
    this.reading = make("output", {id: "reading"});
    /** @type {Record<string, any>} */
    this.controls = {
      strength: make("input", {type: "range", id: "strength", min: 0, max: 1, step: 0.05, value: 0.6}),
      low: make("select", {id: "low"}), high: make("select", {id: "high"}),
      transpose: make("select", {id: "transpose"}, make("option", {value: "", textContent: "A"}), make("option", {value: "1", textContent: "Aᵀ"})),
      power: make("input", {type: "range", id: "power", min: 0.5, max: 8, step: 0.5, value: 1}),
      steps: make("input", {type: "range", id: "steps", min: 0, max: 8, step: 1, value: 1}),
      threshold: make("input", {type: "range", id: "threshold", min: 0, max: 1, step: 0.02, value: 0}),
    };
    const names = {strength: "opacity", low: "first block", high: "last block", transpose: "spread by", power: "power", steps: "steps", threshold: "threshold"};
    const row = make("div", {className: "row"}, ...Object.entries(names).map(([key, text]) => labelled(text, this.controls[key])));
    for (const control of Object.values(this.controls)) control.oninput = () => this.redraw();
    this.inner = make("div", {id: "panes"});
    this.root = make("section", {className: "why", id: "why", "aria-label": "Why?", hidden: true}, make("h2", {textContent: "Why?"}),
      make("p", {className: "soft", textContent: "Point at a pixel to see what it attends to. The map of a tag is that affinity times the map without it."}), this.inner, this.reading, row);
    this.stop = watch(["open", "label"], (now, before) => {
      if (this.root.hidden) return;
      if (now.open?.id !== before.open?.id) { this.pixel = null; void this.load(); } else this.redraw();
    });
  }

  close() { this.stop(); }

  toggle() {
    this.root.hidden = !this.root.hidden;
    document.getElementById("why-button")?.setAttribute("aria-expanded", String(!this.root.hidden));
    if (this.root.hidden) return;
    if (!this.panes.length) {
      const {server} = get();
      this.panes = [new Pane(this, "affinity"), new Pane(this, server.truth ? "truth" : "map")];
      this.inner.replaceChildren(...this.panes.map((pane) => pane.root));
    }
    void this.load();
    this.root.scrollIntoView({block: "nearest"});
  }

  load() { return guarded(() => Promise.all(this.panes.map((pane) => pane.load())))(); }

  redraw() { for (const pane of this.panes) pane.draw(); }

  /** @param {[number, number]} pixel shares of width and height */
  point(pixel) {
    this.pixel = pixel;
    this.redraw();
  }

  how() {
    const {low, high, transpose, power, steps} = this.controls;
    return {low: Number(low.value || 0), high: Number(high.value || 0), transpose: Boolean(transpose.value), power: Number(power.value), steps: Number(steps.value)};
  }

  /** @param {import("./affinity.js").Affinity} affinity */
  blockChoices(affinity) {
    const {low, high} = this.controls;
    if (low.options.length === affinity.blocks) return;
    for (const [select, value] of /** @type {[any, number][]} */ ([[low, 0], [high, affinity.blocks - 1]])) {
      select.replaceChildren(...Array.from({length: affinity.blocks}, (_, k) => make("option", {value: k, textContent: k + affinity.first})));
      select.value = String(value);
    }
  }
}
