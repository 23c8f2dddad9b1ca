// Colours: labels, corrections and values of cells drawn into pictures.

import {NONE, UNSURE, effective} from "./labels.js";

/** @typedef {import("./types.js").Box} Box */

/**
 * The colour of a label.
 * @param {number[][]} colours @param {number} label @returns {number[]}
 */
export const colour = (colours, label) => (label === UNSURE ? [255, 214, 10] : label === NONE ? [200, 200, 200] : colours[label] || [255, 255, 255]);

/**
 * Draw a box of labels into a picture of the overlay's size: colours, white borders between labels,
 * stripes where a person has corrected.
 * @param {ImageData} layer of the box, in pixels of the overlay
 * @param {{x: number, y: number}} at where the box begins in the overlay
 * @param {{width: number, height: number}} overlay
 * @param {{width: number, height: number, mask: Uint8Array, correction: Uint8Array}} photo
 * @param {number[][]} colours
 */
export function paintLabels(layer, at, overlay, photo, colours) {
  const {mask, correction, width: W, height: H} = photo, {data} = layer;
  /** @param {number} x @param {number} y */
  const index = (x, y) => Math.min(H - 1, Math.floor(((y + 0.5) * H) / overlay.height)) * W + Math.min(W - 1, Math.floor(((x + 0.5) * W) / overlay.width));
  for (let row = 0; row < layer.height; row++) {
    for (let column = 0; column < layer.width; column++) {
      const x = at.x + column, y = at.y + row, k = index(x, y), by = correction[k], p = 4 * (row * layer.width + column);
      const label = by === UNSURE ? UNSURE : effective(mask, correction, k);
      const right = x + 1 < overlay.width ? index(x + 1, y) : k, below = y + 1 < overlay.height ? index(x, y + 1) : k;
      const border = effective(mask, correction, right) !== effective(mask, correction, k) || effective(mask, correction, below) !== effective(mask, correction, k);
      if (label === 0 && by === NONE && !border) { data[p + 3] = 0; continue; }
      const striped = by !== NONE && (x + y) % 8 < 3;
      const [red, green, blue] = border || striped ? [255, 255, 255] : label === 255 ? [224, 224, 192] : colour(colours, label);
      data[p] = red; data[p + 1] = green; data[p + 2] = blue;
      // the border is stronger than what it surrounds, so that the photo can be seen inside
      data[p + 3] = border || striped ? 255 : label === 0 ? 70 : 160;
    }
  }
}

/**
 * Draw plain labels over a whole picture.
 * @param {ImageData} layer @param {Uint8Array} labels @param {number} alpha
 * @param {[number, number]} size height and width of the labels
 * @param {number[][]} colours
 * @returns {[number, number][]} labels and their share, the largest first
 */
export function paintPlain(layer, labels, alpha, [H, W], colours) {
  const {width, height, data} = layer, counts = new Map();
  for (let y = 0; y < height; y++) {
    const start = Math.floor(((y + 0.5) * H) / height) * W;
    for (let x = 0; x < width; x++) {
      const label = labels[start + Math.floor(((x + 0.5) * W) / width)];
      counts.set(label, (counts.get(label) || 0) + 1);
      if (label === 0) continue;
      const [red, green, blue] = label === 255 ? [224, 224, 192] : colour(colours, label), k = 4 * (y * width + x);
      data[k] = red; data[k + 1] = green; data[k + 2] = blue; data[k + 3] = 255 * alpha;
    }
  }
  const shares = [...counts].map(([label, count]) => /** @type {[number, number]} */ ([label, count / (width * height)]));
  return shares.sort((a, b) => b[1] - a[1]);
}

/**
 * Draw values of cells, 0 to 1, bilinearly at every pixel: from blue over red to yellow.
 * @param {ImageData} layer
 * @param {{grid: [number, number], span: [number, number]}} cells
 * @param {ArrayLike<number>} values @param {number} alpha @param {number} threshold
 */
export function paintCells(layer, cells, values, alpha, threshold) {
  const {width, height, data} = layer, {grid: [h, w], span} = cells;
  for (let y = 0; y < height; y++) {
    const v = Math.min(h - 1, Math.max(0, ((y + 0.5) / height) * span[0] - 0.5)), top = Math.floor(v), below = Math.min(h - 1, top + 1);
    for (let x = 0; x < width; x++) {
      const u = Math.min(w - 1, Math.max(0, ((x + 0.5) / width) * span[1] - 0.5)), left = Math.floor(u), right = Math.min(w - 1, left + 1);
      const a = values[top * w + left] * (1 - u + left) + values[top * w + right] * (u - left);
      const b = values[below * w + left] * (1 - u + left) + values[below * w + right] * (u - left);
      const value = a * (1 - v + top) + b * (v - top);
      if (value < threshold) continue;
      const k = 4 * (y * width + x);
      data[k] = 255 * Math.min(1, 0.15 + 1.6 * value);
      data[k + 1] = 255 * Math.max(0, 1.7 * value - 0.7);
      data[k + 2] = 255 * Math.max(0, 0.55 - value);
      data[k + 3] = 255 * alpha * Math.min(1, 0.25 + value);
    }
  }
}
