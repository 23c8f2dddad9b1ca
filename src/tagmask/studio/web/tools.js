// The tools of the editor: brush, eraser, smart click, polygon, fill.

import {bytes} from "./api.js";
import {say} from "./dom.js";
import {NONE, around, brush, fill, paste, cut, piece, polygon} from "./labels.js";
import {get, set} from "./store.js";
import {saveStroke} from "./writes.js";

/** @typedef {import("./types.js").Truth} Truth */
/** @typedef {import("./types.js").Box} Box */
/** @typedef {import("./stage.js").Stage} Stage */

/** name: the lines of its icon */
export const ICONS = /** @type {Record<string, string>} */ ({
  move: "M12 3v18M3 12h18M9 6l3-3 3 3M9 18l3 3 3-3M6 9l-3 3 3 3M18 9l3 3-3 3",
  brush: "M4 20c4 1 8 0 8-3.500a2.500 2.500 0 0 0-4.500-1.500C6.500 16.500 7 19 4 20zM11 14.500L19 5a1.500 1.500 0 0 1 2 2l-8.500 9.500",
  eraser: "M9 20h11M4 15.500L13 5l7 6-7.500 9H8zM8.500 10.500l7 6",
  piece: "M4 20L14 10M16 3v4M14 5h4M20 11v3M18.500 12.500h3M9 4v2M8 5h2",
  polygon: "M12 3l9 7-4 10H7L3 10z",
  fill: "M11 4l8 8-7 7-8-8zM4 11h14M21 16c1 1.500 1.500 2.500.500 3.500a1.200 1.200 0 0 1-2-1c0-.800.800-1.500 1.500-2.500z",
});

/** name: text, key, what it does */
export const TOOLS = /** @type {Record<string, [string, string, string]>} */ ({
  move: ["Move", "v", "drag the photo, zoom with the wheel"],
  brush: ["Brush", "b", "paint"],
  eraser: ["Eraser", "x", "take corrections away"],
  piece: ["Smart click", "s", "a click labels a piece that looks alike"],
  polygon: ["Polygon", "p", "click its corners; Enter or a double click closes it"],
  fill: ["Fill", "f", "a click labels the whole region"],
});

export class Tools {
  constructor() {
    /** @type {Stage | null} */
    this.stage = null;
    /** @type {Uint8Array | null} the correction before the stroke */
    this.before = null;
    /** @type {Box | null} */
    this.box = null;
    /** @type {[number, number][]} */
    this.corners = [];
    /** @type {[number, number] | null} */
    this.place = null;
    /** @type {Map<string, Uint16Array>} */
    this.pieces = new Map();
    /** @type {HTMLCanvasElement | null} */
    this.outline = null;
    this.outlined = "";
  }

  /** @param {string} size @param {number} id */
  key(size, id) { return `${size}/${id}`; }

  /**
   * Fetch the superpixels of a photo; a click before they are here does nothing.
   * @param {Truth} truth
   */
  async prepare(truth) {
    const key = this.key(get().pieces, truth.id);
    if (get().tool !== "piece" || this.pieces.has(key)) return;
    try {
      const pieces = new Uint16Array(await bytes(`pieces/${key}`));
      if (this.pieces.size > 6) this.pieces.clear();
      this.pieces.set(key, pieces);
    } catch (problem) { say(problem); }
  }

  /** @param {Truth} truth */
  piecesOf(truth) { return this.pieces.get(this.key(get().pieces, truth.id)); }

  /** The brush in pixels of the photo. */
  radius() {
    const ratio = window.devicePixelRatio || 1;
    return this.stage ? (get().size * ratio) / 2 / this.stage.scale : 1;
  }

  /** @param {Truth} truth @param {[number, number]} at */
  begin(truth, at) {
    const {tool, label} = get(), x = Math.floor(at[0]), y = Math.floor(at[1]);
    const inside = x >= 0 && y >= 0 && x < truth.width && y < truth.height;
    if (tool === "polygon") { this.corners.push(at); return false; }
    if (tool !== "brush" && tool !== "eraser" && !inside) return false;
    if (tool === "piece") {
      const pieces = this.piecesOf(truth);
      if (!pieces) { say("The pieces of this photo are still being computed; click again in a moment."); void this.prepare(truth); return false; }
      this.once(truth, () => piece(truth.correction, truth.height, truth.width, pieces, pieces[y * truth.width + x], label));
      return false;
    }
    if (tool === "fill") {
      this.once(truth, () => fill(truth.correction, truth.mask, truth.height, truth.width, y * truth.width + x, label));
      return false;
    }
    this.before = truth.correction.slice();
    this.box = null;
    this.move(truth, at, at);
    return true;
  }

  /** @param {Truth} truth @param {[number, number]} at @param {[number, number]} from */
  move(truth, at, from) {
    if (!this.before) return;
    const label = get().tool === "eraser" ? NONE : get().label;
    const box = brush(truth.correction, truth.height, truth.width, from, at, this.radius(), label);
    this.box = around(this.box, box);
    if (box && this.stage) this.stage.refresh(box);
  }

  /** @param {Truth} truth */
  end(truth) {
    if (this.before && this.box) saveStroke(truth, this.box, this.before, get().tool);
    this.before = null;
    this.box = null;
  }

  /** @param {Truth} truth */
  cancel(truth) {
    if (this.before && this.box) {
      paste(truth.correction, truth.width, this.box, cut(this.before, truth.width, this.box));
      this.stage?.refresh(this.box);
    }
    this.before = null;
    this.box = null;
  }

  /** @param {Truth} truth @param {() => Box | null} work */
  once(truth, work) {
    const before = truth.correction.slice(), box = work();
    if (!box) return;
    this.stage?.refresh(box);
    saveStroke(truth, box, before, get().tool);
  }

  /** @param {Truth} truth */
  closing(truth) {
    if (get().tool !== "polygon") return;
    // a double click has put its last corner twice
    const corners = this.corners.filter((corner, k, all) => !k || Math.hypot(corner[0] - all[k - 1][0], corner[1] - all[k - 1][1]) > 0.01);
    this.corners = [];
    if (corners.length > 2) this.once(truth, () => polygon(truth.correction, truth.height, truth.width, corners, get().label));
    this.stage?.redraw();
  }

  /** Take back the last corner; false if there is none. */
  undoCorner() {
    if (!this.corners.length) return false;
    this.corners.pop();
    this.stage?.redraw();
    return true;
  }

  /** @param {Truth | null} truth @param {[number, number] | null} at */
  hover(truth, at) {
    this.place = truth ? at : null;
    if (truth && at && get().tool === "piece") this.outlinePiece(truth, at);
    else this.outline = null;
  }

  /** @param {Truth} truth @param {[number, number]} at */
  outlinePiece(truth, at) {
    const pieces = this.piecesOf(truth), x = Math.floor(at[0]), y = Math.floor(at[1]);
    if (!pieces || !this.stage || x < 0 || y < 0 || x >= truth.width || y >= truth.height) { this.outline = null; return; }
    const wanted = pieces[y * truth.width + x], key = `${this.key(get().pieces, truth.id)}/${wanted}`;
    if (this.outline && this.outlined === key) return;
    const {width, height} = this.stage.over, layer = new ImageData(width, height), fx = truth.width / width, fy = truth.height / height;
    /** @param {number} u @param {number} v */
    const is = (u, v) => u >= 0 && v >= 0 && u < width && v < height && pieces[Math.floor((v + 0.5) * fy) * truth.width + Math.floor((u + 0.5) * fx)] === wanted;
    for (let v = 0; v < height; v++) {
      for (let u = 0; u < width; u++) {
        if (!is(u, v)) continue;
        const edge = !is(u - 1, v) || !is(u + 1, v) || !is(u, v - 1) || !is(u, v + 1), k = 4 * (v * width + u);
        layer.data.set(edge ? [255, 255, 255, 255] : [255, 255, 255, 60], k);
      }
    }
    this.outline = document.createElement("canvas");
    this.outline.width = width;
    this.outline.height = height;
    /** @type {CanvasRenderingContext2D} */ (this.outline.getContext("2d")).putImageData(layer, 0, 0);
    this.outlined = key;
  }

  /** @param {CanvasRenderingContext2D} context @param {Stage} stage */
  draw(context, stage) {
    const {tool} = get(), {truth} = stage;
    if (!truth) return;
    /** @param {[number, number]} point @returns {[number, number]} */
    const on = ([x, y]) => [stage.x + x * stage.scale, stage.y + y * stage.scale];
    if (this.outline && tool === "piece") {
      context.imageSmoothingEnabled = false;
      context.drawImage(this.outline, stage.x, stage.y, truth.width * stage.scale, truth.height * stage.scale);
    }
    const lines = () => { context.lineWidth = 4; context.strokeStyle = "#000"; context.stroke(); context.lineWidth = 2; context.strokeStyle = "#fff"; context.stroke(); };
    if (this.corners.length) {
      context.beginPath();
      [...this.corners, ...(this.place ? [this.place] : [])].forEach((corner, k) => { const [x, y] = on(corner); if (k) context.lineTo(x, y); else context.moveTo(x, y); });
      lines();
    }
    if (this.place && (tool === "brush" || tool === "eraser")) {
      const [x, y] = on(this.place);
      context.beginPath();
      context.arc(x, y, Math.max(1, this.radius() * stage.scale), 0, 7);
      lines();
    } else if (this.place && tool !== "move") {
      const [x, y] = on(this.place);
      context.beginPath();
      context.moveTo(x - 8, y); context.lineTo(x + 8, y); context.moveTo(x, y - 8); context.lineTo(x, y + 8);
      lines();
    }
  }
}

/** @param {number} by */
export const resizeBrush = (by) => set({size: Math.min(400, Math.max(1, Math.round(get().size * by)))});
