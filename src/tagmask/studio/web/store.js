// The one place where the state of the page is; everything else reads it and is told of changes.

/** @typedef {import("./types.js").State} State */

/** @type {State} */
let state = /** @type {any} */ ({
  server: null, open: null, opening: -1, tool: "move", label: 0, size: 24, pieces: "medium", opacity: 0.85,
  hidden: false, doubt: false, split: 0, selection: [], only: null, outbox: {waiting: 0, offline: false},
  history: {undo: 0, redo: 0}, stamp: 0, strokes: 0, preview: false,
  route: {step: "", photo: -1, q: "", tag: "", show: "", order: ""},
});

/** @type {Set<(now: State, before: State) => void>} */
const listeners = new Set();

/** @returns {State} */
export const get = () => state;

/**
 * Change some of the state, and tell everybody.
 * @param {Partial<State>} change
 */
export function set(change) {
  const before = state;
  state = Object.freeze({...state, ...change});
  for (const listener of [...listeners]) listener(state, before);
}

/**
 * Change some of what the server has told.
 * @param {Partial<State["server"]>} change
 */
export const setServer = (change) => set({server: {...state.server, ...change}});

/**
 * Be told of changes of some fields.
 * @param {(keyof State)[]} fields
 * @param {(now: State, before: State) => void} listener
 * @returns {() => void} stops it
 */
export function watch(fields, listener) {
  /** @param {State} now @param {State} before */
  const wrapped = (now, before) => {
    if (fields.some((field) => now[field] !== before[field])) listener(now, before);
  };
  listeners.add(wrapped);
  return () => listeners.delete(wrapped);
}
