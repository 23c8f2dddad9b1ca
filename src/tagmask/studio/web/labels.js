// Labels of pixels: brushes, polygons, regions. Pure functions on arrays.

/** @typedef {import("./types.js").Box} Box */

export const NONE = 255, UNSURE = 254;

/**
 * What is shown at a pixel: what a person said, otherwise the run.
 * @param {Uint8Array} mask
 * @param {Uint8Array} correction
 * @param {number} k
 */
export const effective = (mask, correction, k) => (correction[k] < UNSURE ? correction[k] : mask.length ? mask[k] : 0);

/** Labels of masks that were looked through: a mask never changes. @type {WeakMap<Uint8Array, number[]>} */
const known = new WeakMap();

/**
 * The labels that a mask has, the smallest first; a few pixels may be overlooked.
 * @param {Uint8Array} mask
 * @returns {number[]}
 */
export function labelsIn(mask) {
  let labels = known.get(mask);
  if (!labels) {
    const has = new Uint8Array(256);
    for (let k = 0; k < mask.length; k += 7) has[mask[k]] = 1;
    labels = [...has.keys()].filter((label) => has[label]);
    known.set(mask, labels);
  }
  return labels;
}

/**
 * Label all pixels within a radius of a line between two points, in pixels of the photo.
 * @param {Uint8Array} labels
 * @param {number} height
 * @param {number} width
 * @param {[number, number]} from x and y
 * @param {[number, number]} to
 * @param {number} radius
 * @param {number} label
 * @returns {Box | null} what has changed
 */
export function brush(labels, height, width, from, to, radius, label) {
  const [xa, ya] = from, [xb, yb] = to, dx = xb - xa, dy = yb - ya, length = dx * dx + dy * dy;
  const top = Math.max(0, Math.floor(Math.min(ya, yb) - radius)), bottom = Math.min(height - 1, Math.ceil(Math.max(ya, yb) + radius));
  const left = Math.max(0, Math.floor(Math.min(xa, xb) - radius)), right = Math.min(width - 1, Math.ceil(Math.max(xa, xb) + radius));
  if (top > bottom || left > right) return null;
  for (let row = top; row <= bottom; row++) {
    for (let column = left; column <= right; column++) {
      const x = column + 0.5, y = row + 0.5;
      const t = length ? Math.min(1, Math.max(0, ((x - xa) * dx + (y - ya) * dy) / length)) : 0;
      const distance = (x - xa - t * dx) ** 2 + (y - ya - t * dy) ** 2;
      if (distance <= radius * radius) labels[row * width + column] = label;
    }
  }
  // a brush thinner than a pixel leaves a line all the same
  const steps = Math.ceil(2 * Math.sqrt(length));
  for (let step = 0; step <= steps; step++) {
    const t = steps ? step / steps : 0, column = Math.floor(xa + t * dx), row = Math.floor(ya + t * dy);
    if (row >= 0 && column >= 0 && row < height && column < width) labels[row * width + column] = label;
  }
  return {top, left, height: bottom - top + 1, width: right - left + 1};
}

/**
 * Label the pixels whose middle lies inside a polygon.
 * @param {Uint8Array} labels
 * @param {number} height
 * @param {number} width
 * @param {[number, number][]} points x and y
 * @param {number} label
 * @returns {Box | null}
 */
export function polygon(labels, height, width, points, label) {
  if (points.length < 3) return null;
  const ys = points.map((point) => point[1]);
  const top = Math.max(0, Math.floor(Math.min(...ys))), bottom = Math.min(height - 1, Math.ceil(Math.max(...ys)));
  let left = width, right = -1;
  for (let row = top; row <= bottom; row++) {
    const y = row + 0.5, crossings = [];
    for (let a = 0, b = points.length - 1; a < points.length; b = a++) {
      const [xa, ya] = points[a], [xb, yb] = points[b];
      if (ya > y !== yb > y) crossings.push(((xb - xa) * (y - ya)) / (yb - ya) + xa);
    }
    crossings.sort((one, other) => one - other);
    for (let k = 0; k + 1 < crossings.length; k += 2) {
      const first = Math.max(0, Math.ceil(crossings[k] - 0.5)), last = Math.min(width - 1, Math.ceil(crossings[k + 1] - 0.5) - 1);
      for (let column = first; column <= last; column++) labels[row * width + column] = label;
      if (first <= last) { left = Math.min(left, first); right = Math.max(right, last); }
    }
  }
  return right < left ? null : {top, left, height: bottom - top + 1, width: right - left + 1};
}

/**
 * Label one superpixel.
 * @param {Uint8Array} labels
 * @param {number} height
 * @param {number} width
 * @param {Uint16Array} pieces
 * @param {number} wanted number of the piece
 * @param {number} label
 * @returns {Box | null}
 */
export function piece(labels, height, width, pieces, wanted, label) {
  let top = height, left = width, bottom = -1, right = -1;
  for (let row = 0, k = 0; row < height; row++) {
    for (let column = 0; column < width; column++, k++) {
      if (pieces[k] !== wanted) continue;
      labels[k] = label;
      if (row < top) top = row;
      bottom = row;
      if (column < left) left = column;
      if (column > right) right = column;
    }
  }
  return bottom < 0 ? null : {top, left, height: bottom - top + 1, width: right - left + 1};
}

/**
 * Label the connected region around a pixel that is shown with one label, row by row: a run of
 * pixels is labelled at once, and each run above and below it that touches it waits for its turn.
 * @param {Uint8Array} labels corrections, changed
 * @param {Uint8Array} mask
 * @param {number} height
 * @param {number} width
 * @param {number} start index of the pixel
 * @param {number} label
 * @returns {Box | null}
 */
export function fill(labels, mask, height, width, start, label) {
  const before = labels.slice(), wanted = effective(mask, before, start);
  const seen = new Uint8Array(height * width), waiting = [start];
  let top = height, left = width, bottom = -1, right = -1;
  /** @param {number} k */
  const belongs = (k) => !seen[k] && effective(mask, before, k) === wanted;
  while (waiting.length) {
    const k = /** @type {number} */ (waiting.pop());
    if (!belongs(k)) continue;
    const row = Math.floor(k / width), first = row * width, end = first + width;
    let from = k, to = k + 1;
    while (from > first && belongs(from - 1)) from--;
    while (to < end && belongs(to)) to++;
    seen.fill(1, from, to);
    labels.fill(label, from, to);
    top = Math.min(top, row); bottom = Math.max(bottom, row);
    left = Math.min(left, from - first); right = Math.max(right, to - 1 - first);
    for (const by of [-width, width]) {
      if (row + Math.sign(by) < 0 || row + Math.sign(by) >= height) continue;
      for (let next = from + by; next < to + by; next++) if (belongs(next) && (next === from + by || !belongs(next - 1))) waiting.push(next);
    }
  }
  return {top, left, height: bottom - top + 1, width: right - left + 1};
}

/**
 * Copy a box out of labels.
 * @param {Uint8Array} labels @param {number} width of the photo @param {Box} box
 */
export function cut(labels, width, box) {
  const part = new Uint8Array(box.height * box.width);
  for (let row = 0; row < box.height; row++) {
    const start = (box.top + row) * width + box.left;
    part.set(labels.subarray(start, start + box.width), row * box.width);
  }
  return part;
}

/**
 * Put a box back into labels.
 * @param {Uint8Array} labels @param {number} width of the photo @param {Box} box @param {Uint8Array} part
 */
export function paste(labels, width, box, part) {
  for (let row = 0; row < box.height; row++) {
    labels.set(part.subarray(row * box.width, (row + 1) * box.width), (box.top + row) * width + box.left);
  }
}

/**
 * The box around two boxes.
 * @param {Box | null} one @param {Box | null} other @returns {Box | null}
 */
export function around(one, other) {
  if (!one || !other) return one || other;
  const top = Math.min(one.top, other.top), left = Math.min(one.left, other.left);
  const bottom = Math.max(one.top + one.height, other.top + other.height), right = Math.max(one.left + one.width, other.left + other.width);
  return {top, left, height: bottom - top, width: right - left};
}
