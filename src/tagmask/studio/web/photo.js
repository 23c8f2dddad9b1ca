// Opening a photo: all of it arrives before any of it is shown, and the last one asked for wins.

import {ask, bytes, json} from "./api.js";
import {say} from "./dom.js";
import {NONE} from "./labels.js";
import {outbox} from "./outbox.js";
import {get, set} from "./store.js";

/** @typedef {import("./types.js").Truth} Truth */

/** Digest of what the server has of each photo's corrections, and of its tags. */
export const digests = {/** @type {Map<number, string>} */ labels: new Map(), /** @type {Map<number, string>} */ tags: new Map()};

let asked = 0;

/**
 * Load everything about a photo.
 * @param {number} id
 * @returns {Promise<Truth>}
 */
export async function load(id) {
  const image = new Image();
  image.src = `photo/${id}`;
  const [info, correction, mask] = await Promise.all([
    json(`info/${id}`), ask(`correction/${id}`), bytes(`mask/0/${id}`), image.decode(),
  ]);
  const kept = new Uint8Array(await correction.arrayBuffer()), [height, width] = info.size;
  const digest = correction.headers.get("Digest") || "";
  if (digest !== info.digest) return load(id);  // it has changed between the two answers
  digests.labels.set(id, digest);
  digests.tags.set(id, info.tagDigest);
  return Object.freeze({
    id, name: get().server.photos[id], height, width, image, mask: new Uint8Array(mask),
    correction: kept.length ? kept : new Uint8Array(height * width).fill(NONE),
    methods: info.methods, refusal: info.refusal, hasHead: info.hasHead,
  });
}

/**
 * Show a photo once it is complete. Until then nothing can be painted; if it cannot be loaded, the
 * photo before stays.
 * @param {number} id
 * @returns {Promise<boolean>} whether it is shown
 */
export async function open(id) {
  const turn = ++asked;
  set({opening: id});
  try {
    // what is still to be written about it comes first
    while (outbox.hasFor(id)) {
      if (get().outbox.offline) throw new Error(`${get().server.photos[id]} has changes that are not saved yet; they wait for the server.`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const truth = await load(id);
    if (turn !== asked) return false;
    set({open: truth, opening: -1, label: labelFor(truth), split: 0});
    return true;
  } catch (problem) {
    if (turn !== asked) return false;
    set({opening: -1});
    const text = problem instanceof Error ? problem.message : String(problem);
    say(`${get().server.photos[id]} could not be opened (${text}). ${get().open ? `${get().open?.name} is still shown.` : ""}`);
    return false;
  }
}

/** Show the list again: no photo is open. */
export function close() {
  asked++;
  set({open: null, opening: -1});
}

/**
 * What is painted at first: a tag of this photo, never one of the photo before.
 * @param {Truth} truth
 */
function labelFor(truth) {
  const {server, label} = get(), tags = server.tags[truth.id].map((tag) => server.classes.indexOf(tag) + 1).filter(Boolean);
  return tags.includes(label) ? label : tags[0] || 0;
}
