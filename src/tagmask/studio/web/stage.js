// The picture one works on: a photo with its mask, zoomed and moved; tools are told where they are.

import {paintCells, paintLabels} from "./paint.js";
import {get, watch} from "./store.js";

/** @typedef {import("./types.js").Truth} Truth */
/** @typedef {import("./types.js").Box} Box */

// longest side of what is drawn over the photo: painting itself is at the photo's own size
const SHOWN = 2048;
const MOST_ZOOM = 64;

/**
 * @typedef {object} Tools
 * @property {(truth: Truth, at: [number, number], event: PointerEvent) => boolean} begin true if it goes on while moved
 * @property {(truth: Truth, at: [number, number], before: [number, number]) => void} move
 * @property {(truth: Truth) => void} end
 * @property {(truth: Truth) => void} cancel
 * @property {(truth: Truth | null, at: [number, number] | null) => void} hover
 * @property {(context: CanvasRenderingContext2D, stage: Stage) => void} draw
 * @property {(truth: Truth) => void} closing a double click
 */

export class Stage {
  /** @param {HTMLCanvasElement} canvas @param {Tools} tools */
  constructor(canvas, tools) {
    this.canvas = canvas;
    this.tools = tools;
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.over = document.createElement("canvas");
    /** @type {HTMLCanvasElement | null} */
    this.trial = null;
    /** @type {Uint8Array} */
    this.trialLabels = new Uint8Array();
    this.trialName = "after";
    /** @type {HTMLCanvasElement | null} */
    this.doubt = null;
    /** @type {Truth | null} */
    this.truth = null;
    this.frame = 0;
    /** @type {[number, number] | null} pixel of the photo that the keyboard is at */
    this.pixel = null;
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(canvas);
    this.stop = watch(["open", "opening", "opacity", "hidden", "doubt", "split", "tool", "size"], (now, before) => {
      if (now.open !== before.open) this.show(now.open, now.open?.id !== before.open?.id);
      this.state();
      this.redraw();
    });
    this.listen();
    this.resize();
    this.show(get().open, true);
    this.state();
  }

  close() {
    this.stop();
    this.sizes.disconnect();
  }

  /** Inert while another photo loads: nothing can be painted on what is not there. */
  state() {
    const {opening, open, tool} = get(), busy = opening >= 0 && opening !== open?.id;
    this.canvas.setAttribute("aria-busy", String(busy));
    this.canvas.dataset.tool = tool;
    this.inert = busy || !open;
  }

  resize() {
    const box = this.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
    if (width === this.canvas.width && height === this.canvas.height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.fit();
  }

  /** @param {Truth | null} truth @param {boolean} fresh */
  show(truth, fresh) {
    this.truth = truth;
    if (!truth) { this.redraw(); return; }
    const factor = Math.min(1, SHOWN / Math.max(truth.width, truth.height));
    const width = Math.max(1, Math.round(truth.width * factor)), height = Math.max(1, Math.round(truth.height * factor));
    if (fresh) { this.trial = null; this.doubt = null; this.pixel = null; }
    if (this.over.width !== width || this.over.height !== height) { this.over.width = width; this.over.height = height; }
    this.refresh({top: 0, left: 0, height: truth.height, width: truth.width});
    if (fresh) this.fit();
  }

  /** Show the whole photo. */
  fit() {
    const {truth, canvas} = this;
    if (!truth) return;
    this.scale = Math.min(canvas.width / truth.width, canvas.height / truth.height);
    this.x = (canvas.width - truth.width * this.scale) / 2;
    this.y = (canvas.height - truth.height * this.scale) / 2;
    this.redraw();
  }

  /**
   * Draw the labels of a box of the photo again.
   * @param {Box} box
   */
  refresh(box) {
    const {truth, over} = this;
    if (!truth) return;
    const fx = over.width / truth.width, fy = over.height / truth.height;
    // one more on each side: borders look at their neighbours
    const x = Math.max(0, Math.floor(box.left * fx) - 1), y = Math.max(0, Math.floor(box.top * fy) - 1);
    const right = Math.min(over.width, Math.ceil((box.left + box.width) * fx) + 1), bottom = Math.min(over.height, Math.ceil((box.top + box.height) * fy) + 1);
    const layer = new ImageData(Math.max(1, right - x), Math.max(1, bottom - y));
    paintLabels(layer, {x, y}, over, truth, get().server.colours);
    /** @type {CanvasRenderingContext2D} */ (over.getContext("2d")).putImageData(layer, x, y);
    if (this.trial) {
      paintLabels(layer, {x, y}, over, {...truth, mask: this.trialLabels}, get().server.colours);
      /** @type {CanvasRenderingContext2D} */ (this.trial.getContext("2d")).putImageData(layer, x, y);
    }
    this.redraw();
  }

  /**
   * Draw what was learned, to compare; empty labels take it away.
   * @param {Uint8Array} labels
   * @param {string} [name] what the picture says it is
   */
  setTrial(labels, name = "after") {
    this.trialLabels = labels;
    this.trialName = name;
    if (!this.truth || !labels.length) { this.trial = null; this.redraw(); return; }
    this.trial = document.createElement("canvas");
    this.trial.width = this.over.width;
    this.trial.height = this.over.height;
    const layer = new ImageData(this.trial.width, this.trial.height);
    paintLabels(layer, {x: 0, y: 0}, this.trial, {...this.truth, mask: labels}, get().server.colours);
    /** @type {CanvasRenderingContext2D} */ (this.trial.getContext("2d")).putImageData(layer, 0, 0);
    this.redraw();
  }

  /** @param {[number, number]} grid @param {Uint8Array} levels */
  setDoubt(grid, levels) {
    const width = Math.min(512, this.over.width), height = Math.max(1, Math.round((width * this.over.height) / this.over.width));
    this.doubt = document.createElement("canvas");
    this.doubt.width = width;
    this.doubt.height = height;
    const layer = new ImageData(width, height), values = Float32Array.from(levels, (level) => Math.min(1, (2 * level) / 255));
    paintCells(layer, {grid, span: grid}, values, 0.8, 0.05);
    /** @type {CanvasRenderingContext2D} */ (this.doubt.getContext("2d")).putImageData(layer, 0, 0);
    this.redraw();
  }

  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  draw() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d")), {truth} = this, now = get();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!truth) return;
    const width = truth.width * this.scale, height = truth.height * this.scale;
    context.imageSmoothingEnabled = this.scale < 3;
    context.drawImage(truth.image, this.x, this.y, width, height);
    if (!now.hidden) {
      context.imageSmoothingEnabled = false;
      context.globalAlpha = now.opacity;
      const edge = this.trial && now.split > 0 ? now.split : 0;
      this.clipped(context, edge, 1, () => context.drawImage(this.over, this.x, this.y, width, height));
      if (this.trial && edge) {
        const trial = this.trial;
        this.clipped(context, 0, edge, () => context.drawImage(trial, this.x, this.y, width, height));
        context.globalAlpha = 1;
        context.fillStyle = "#fff";
        context.fillRect(this.x + edge * width - 1, this.y, 2, height);
        this.caption(context, this.trialName, this.x + edge * width, "right");
        if (edge < 1) this.caption(context, "before", this.x + edge * width, "left");
      }
      context.globalAlpha = 1;
      if (now.doubt && this.doubt) { context.imageSmoothingEnabled = true; context.drawImage(this.doubt, this.x, this.y, width, height); }
    }
    this.tools.draw(context, this);
  }

  /**
   * Write beside the line between before and after which is which.
   * @param {CanvasRenderingContext2D} context @param {string} text @param {number} x @param {"left" | "right"} align
   */
  caption(context, text, x, align) {
    const ratio = window.devicePixelRatio || 1, gap = 8 * ratio, y = Math.max(0, this.y) + 10 * ratio;
    context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    const width = context.measureText(text).width + 2 * gap, left = align === "left" ? x + gap : x - gap - width;
    context.fillStyle = "rgb(0 0 0 / 75%)";
    context.fillRect(left, y, width, 22 * ratio);
    context.fillStyle = "#fff";
    context.textBaseline = "middle";
    context.fillText(text, left + gap, y + 11.5 * ratio);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} from @param {number} to @param {() => void} work */
  clipped(context, from, to, work) {
    const {truth} = this;
    if (!truth) return;
    context.save();
    context.beginPath();
    context.rect(this.x + from * truth.width * this.scale, this.y, (to - from) * truth.width * this.scale, truth.height * this.scale);
    context.clip();
    work();
    context.restore();
  }

  /**
   * A place on the screen in pixels of the photo.
   * @param {{clientX: number, clientY: number}} event
   * @returns {[number, number]}
   */
  at(event) {
    const box = this.canvas.getBoundingClientRect(), ratio = this.canvas.width / box.width;
    return [((event.clientX - box.left) * ratio - this.x) / this.scale, ((event.clientY - box.top) * ratio - this.y) / this.scale];
  }

  /**
   * Zoom so that a place of the canvas stays where it is.
   * @param {number} factor @param {number} x @param {number} y in pixels of the canvas
   */
  zoom(factor, x = this.canvas.width / 2, y = this.canvas.height / 2) {
    const {truth} = this;
    if (!truth) return;
    const least = 0.5 * Math.min(this.canvas.width / truth.width, this.canvas.height / truth.height);
    const scale = Math.min(MOST_ZOOM, Math.max(least, this.scale * factor)), by = scale / this.scale;
    this.x = x - (x - this.x) * by;
    this.y = y - (y - this.y) * by;
    this.scale = scale;
    this.redraw();
  }

  listen() {
    const {canvas, tools} = this;
    /** @type {Map<number, [number, number]>} */
    const fingers = new Map();
    /** @type {"" | "tool" | "pan" | "pinch"} */
    let doing = "";
    /** @type {Truth | null} the photo on which the stroke began; it goes nowhere else */
    let on = null;
    /** @type {[number, number]} */
    let last = [0, 0];
    /** @param {PointerEvent} event @returns {[number, number]} */
    const place = (event) => {
      const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
      return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.focus({preventScroll: true});
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      last = place(event);
      if (fingers.size === 2) {
        if (doing === "tool" && on) tools.cancel(on);
        doing = "pinch";
      } else if (event.button === 1 || get().tool === "move" || (event.button === 0 && event.altKey)) doing = "pan";
      else if (event.button === 0 && !this.inert && this.truth) {
        on = this.truth;
        this.pixel = this.at(event);
        doing = tools.begin(on, this.at(event), event) ? "tool" : "";
      }
      event.preventDefault();
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event), before = fingers.get(event.pointerId);
      if (doing === "pinch" && before && fingers.size === 2) {
        const other = /** @type {[number, number]} */ ([...fingers].find(([id]) => id !== event.pointerId)?.[1]);
        const was = Math.hypot(before[0] - other[0], before[1] - other[1]), is = Math.hypot(now[0] - other[0], now[1] - other[1]);
        this.x += (now[0] - before[0]) / 2;
        this.y += (now[1] - before[1]) / 2;
        if (was > 1) this.zoom(is / was, (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      } else if (doing === "pan") {
        this.x += now[0] - last[0];
        this.y += now[1] - last[1];
        last = now;
        this.redraw();
      } else if (doing === "tool" && on && on.id === this.truth?.id) {
        // every place that the pointer was at, however fast it is
        const steps = event.getCoalescedEvents ? event.getCoalescedEvents() : [event];
        for (const step of steps.length ? steps : [event]) {
          const from = this.pixel || this.at(step);
          this.pixel = this.at(step);
          tools.move(on, this.pixel, from);
        }
      }
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, now);
      this.pixel = this.at(event);
      tools.hover(this.inert ? null : this.truth, this.pixel);
      this.redraw();
    });
    /** @param {PointerEvent} event */
    const up = (event) => {
      fingers.delete(event.pointerId);
      if (doing === "tool" && on) tools.end(on);
      if (doing !== "pinch" || !fingers.size) { doing = ""; on = null; }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", (event) => {
      if (doing === "tool" && on) tools.cancel(on);
      doing = "";
      up(event);
    });
    canvas.addEventListener("pointerleave", () => { if (!fingers.size) { tools.hover(null, null); this.redraw(); } });
    canvas.addEventListener("dblclick", () => { if (this.truth && !this.inert) tools.closing(this.truth); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = place(/** @type {any} */ (event));
      if (event.ctrlKey || !event.shiftKey) this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), x, y);
      else { this.x -= event.deltaY; this.redraw(); }
    }, {passive: false});
    canvas.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      const {truth} = this;
      if (!truth || event.ctrlKey || event.metaKey) return;
      const by = (event.shiftKey ? 40 : 8) / this.scale * (window.devicePixelRatio || 1);
      if (step && get().tool !== "move") {
        const [x, y] = this.pixel || [truth.width / 2, truth.height / 2];
        this.pixel = [Math.min(truth.width - 0.01, Math.max(0, x + step[0] * by)), Math.min(truth.height - 0.01, Math.max(0, y + step[1] * by))];
        tools.hover(this.inert ? null : truth, this.pixel);
      } else if (event.key === " " && get().tool !== "move" && !this.inert) {
        this.pixel = this.pixel || [truth.width / 2, truth.height / 2];
        if (tools.begin(truth, this.pixel, /** @type {any} */ (event))) tools.end(truth);
      } else return;
      this.redraw();
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
