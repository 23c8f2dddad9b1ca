// Writes wait here until the server has them: in order, again after a failure, none forgotten.

import {Refusal, post} from "./api.js";
import {set} from "./store.js";

/**
 * @typedef {object} Write
 * @property {string} path
 * @property {any} body
 * @property {() => Record<string, string>} headers made when it is sent: digests are known by then
 * @property {() => any} [remake] makes the body when it is sent, instead
 * @property {number} photo whose writes are dropped together after a conflict; -1 for several
 * @property {(answer: any) => void} done
 * @property {(problem: Refusal) => void} refused
 * @property {string} [key]
 */

const FIRST_WAIT = 500, LONGEST_WAIT = 8000;

export class Outbox {
  /**
   * @param {(path: string, body: any, headers: Record<string, string>) => Promise<any>} send
   * @param {(state: {waiting: number, offline: boolean}) => void} tell
   */
  constructor(send, tell) {
    this.send = send;
    this.tell = tell;
    /** @type {Write[]} */
    this.queue = [];
    this.running = false;
    this.offline = false;
    this.wait = FIRST_WAIT;
    /** @type {(() => void) | null} */
    this.wake = null;
  }

  /** @param {Write} write */
  add(write) {
    this.queue.push({...write, key: crypto.randomUUID()});
    this.report();
    void this.run();
  }

  report() {
    this.tell({waiting: this.queue.length, offline: this.offline});
  }

  /** Try again at once, because the network is back. */
  retry() {
    if (this.wake) this.wake();
  }

  /** @param {number} photo */
  hasFor(photo) {
    return this.queue.some((write) => write.photo === photo || write.photo === -1);
  }

  /** Wait until nothing waits. */
  async empty() {
    while (this.queue.length) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  async run() {
    if (this.running) return;
    this.running = true;
    while (this.queue.length) {
      const write = this.queue[0];
      try {
        const body = write.remake ? write.remake() : write.body;
        const answer = await this.send(write.path, body, {"X-Write": write.key || "", ...write.headers()});
        this.queue.shift();
        this.offline = false;
        this.wait = FIRST_WAIT;
        write.done(answer);
      } catch (problem) {
        if (problem instanceof Refusal && problem.status !== 503) {
          this.offline = false;
          // what comes after it for the same photo was made on top of it
          this.queue = this.queue.filter((other) => other !== write && (write.photo < 0 || other.photo !== write.photo));
          write.refused(problem);
        } else {
          this.offline = true;
          this.report();
          await this.pause();
        }
      }
      this.report();
    }
    this.running = false;
  }

  async pause() {
    await new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), this.wait);
      this.wake = () => { clearTimeout(timer); resolve(undefined); };
    });
    this.wake = null;
    this.wait = Math.min(LONGEST_WAIT, 2 * this.wait);
  }
}

export const outbox = new Outbox(post, (state) => set({outbox: state}));
