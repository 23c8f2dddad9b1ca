// Undo and redo of everything that is written: strokes, tags, checks, also after leaving a photo.

import {set} from "./store.js";

/**
 * @typedef {object} Deed
 * @property {string} name
 * @property {number} bytes that it keeps
 * @property {() => any} undo
 * @property {() => any} redo
 */

export const MOST_BYTES = 300e6;
const MOST_DEEDS = 500;

export class History {
  /** @param {(state: {undo: number, redo: number}) => void} tell */
  constructor(tell) {
    this.tell = tell;
    /** @type {Deed[]} */
    this.done = [];
    /** @type {Deed[]} */
    this.undone = [];
    this.busy = Promise.resolve();
  }

  /** @param {Deed} deed */
  add(deed) {
    this.done.push(deed);
    this.undone = [];
    let kept = this.done.reduce((sum, other) => sum + other.bytes, 0);
    while (this.done.length > 1 && (kept > MOST_BYTES || this.done.length > MOST_DEEDS)) {
      kept -= /** @type {Deed} */ (this.done.shift()).bytes;
    }
    this.report();
  }

  report() {
    this.tell({undo: this.done.length, redo: this.undone.length});
  }

  /** @param {Deed[]} from @param {Deed[]} to @param {"undo" | "redo"} way */
  move(from, to, way) {
    // one after the other: an undo may have to open a photo first
    this.busy = this.busy.then(async () => {
      const deed = from.pop();
      if (!deed) return;
      to.push(deed);
      await deed[way]();
      this.report();
    });
    return this.busy;
  }

  undo() { return this.move(this.done, this.undone, "undo"); }
  redo() { return this.move(this.undone, this.done, "redo"); }

  /** Forget deeds that are no longer on top of what is there. */
  clear() {
    this.done = [];
    this.undone = [];
    this.report();
  }
}

export const history = new History((state) => set({history: state}));
