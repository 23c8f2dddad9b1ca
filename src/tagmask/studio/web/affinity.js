// Affinity between patches and the maps that it spreads, computed here. Pure functions on arrays.

/**
 * @typedef {object} Affinity
 * @property {[number, number]} grid
 * @property {[number, number]} span how many cells the photo covers
 * @property {number} first block
 * @property {number} blocks
 * @property {number[]} tags
 * @property {number} n cells
 * @property {Float32Array} tops largest value of each row
 * @property {Float32Array} maps without affinity
 * @property {Uint8Array} pairs rows as bytes, 255 is the largest value
 */

/** @typedef {{low: number, high: number, transpose: boolean, power: number, steps: number}} How */

/**
 * Read what the server sends: a line of JSON, then arrays.
 * @param {ArrayBuffer} buffer
 * @returns {Affinity}
 */
export function unpack(buffer) {
  const all = new Uint8Array(buffer), end = all.indexOf(10) + 1;
  const head = JSON.parse(new TextDecoder().decode(all.subarray(0, end)));
  const n = head.cells, L = head.blocks, K = head.tags.length;
  const tops = new Float32Array(buffer, end, L * n);
  const maps = new Float32Array(buffer, end + 4 * L * n, K * n);
  const pairs = all.subarray(end + 4 * (L + K) * n);
  return {...head, tops, maps, pairs, n};
}

/**
 * The matrix that spreads maps: the sum over blocks, to a power, transposed; rows add up to one if
 * it is taken more than once.
 * @param {Affinity} affinity
 * @param {How} how
 */
export function spread(affinity, how) {
  const {n} = affinity, sum = new Float32Array(n * n);
  for (let block = how.low; block <= how.high; block++) {
    for (let row = 0; row < n; row++) {
      const scale = affinity.tops[block * n + row] / 255, start = (block * n + row) * n;
      for (let column = 0; column < n; column++) {
        sum[how.transpose ? column * n + row : row * n + column] += affinity.pairs[start + column] * scale;
      }
    }
  }
  if (how.power !== 1) for (let k = 0; k < sum.length; k++) sum[k] **= how.power;
  if (how.steps > 1) {
    for (let row = 0; row < n; row++) {
      let total = 0;
      for (let column = 0; column < n; column++) total += sum[row * n + column];
      for (let column = 0; column < n; column++) sum[row * n + column] /= total || 1;
    }
  }
  return sum;
}

/**
 * One row of a matrix to a power of steps.
 * @param {Float32Array} matrix @param {number} n @param {number} cell @param {number} steps
 */
export function rowOf(matrix, n, cell, steps) {
  let row = matrix.slice(cell * n, (cell + 1) * n);
  for (let turn = 1; turn < steps; turn++) {
    const next = new Float32Array(n);
    for (let k = 0; k < n; k++) if (row[k]) for (let j = 0; j < n; j++) next[j] += row[k] * matrix[k * n + j];
    row = next;
  }
  return row;
}

/**
 * The map of a tag, spread by a matrix and stretched to 0 … 1.
 * @param {Affinity} affinity @param {Float32Array} matrix @param {number} place @param {number} steps
 */
export function classMap(affinity, matrix, place, steps) {
  const {n} = affinity;
  let map = affinity.maps.slice(place * n, (place + 1) * n);
  for (let turn = 0; turn < steps; turn++) {
    const next = new Float32Array(n);
    for (let row = 0; row < n; row++) {
      let total = 0;
      for (let k = 0; k < n; k++) total += matrix[row * n + k] * map[k];
      next[row] = total;
    }
    map = next;
  }
  return stretch(map);
}

/** @param {Float32Array} values */
export function stretch(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return values.map((value) => (value - low) / Math.max(high - low, 1e-30));
}
