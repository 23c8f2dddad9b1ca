// Everything that changes something for good: painted pixels, tags, checks. Each can be undone.

import {say} from "./dom.js";
import {history} from "./history.js";
import {cut, paste} from "./labels.js";
import {outbox} from "./outbox.js";
import {digests, load, open} from "./photo.js";
import {get, set, setServer} from "./store.js";

/** @typedef {import("./api.js").Refusal} Refusal */
/** @typedef {import("./types.js").Truth} Truth */
/** @typedef {import("./types.js").Box} Box */

/**
 * Take in what the server answers about photos, all at once: there may be thousands.
 * @param {{photo: number, tags: string[], tagDigest: string, digest: string}[]} answers
 */
export function take(answers) {
  const {server, stamp} = get(), tags = [...server.tags], corrected = new Set(server.corrected);
  for (const answer of answers) {
    digests.labels.set(answer.photo, answer.digest);
    digests.tags.set(answer.photo, answer.tagDigest);
    tags[answer.photo] = answer.tags;
    if (answer.digest) corrected.add(answer.photo); else corrected.delete(answer.photo);
  }
  set({server: {...server, tags, corrected: [...corrected]}, stamp: stamp + 1});
}

/** @param {number} photo @param {Refusal} problem */
async function refused(photo, problem) {
  say(problem);
  history.clear();
  const now = get().open;
  if (now && now.id === photo) {
    try { set({open: await load(photo)}); } catch (other) { say(other); }
  }
}

/**
 * Save a box of a photo, as it is painted now.
 * @param {Truth} truth
 * @param {Box} box
 * @param {Uint8Array} part
 * @param {(answer: any) => void} [done]
 */
function sendBox(truth, box, part, done) {
  const {top, left, height, width} = box;
  outbox.add({
    path: `correct/${truth.id}`, body: part, photo: truth.id,
    headers: () => ({"X-Box": `${top},${left},${height},${width}`, "X-Before": digests.labels.get(truth.id) || ""}),
    done: (answer) => { take([answer]); if (done) done(answer); set({strokes: get().strokes + 1}); },
    refused: (problem) => { void refused(truth.id, problem); },
  });
}

/**
 * Save a stroke that was painted on a photo, and remember how to take it back.
 * @param {Truth} truth whose correction has the stroke already
 * @param {Box} box
 * @param {Uint8Array} before the correction without the stroke
 * @param {string} name
 */
export function saveStroke(truth, box, before, name) {
  const old = cut(before, truth.width, box), fresh = cut(truth.correction, truth.width, box);
  if (old.every((label, k) => label === fresh[k])) return;
  const tagsBefore = get().server.tags[truth.id];
  /** @type {string[]} */
  let added = [];
  sendBox(truth, box, fresh, (answer) => { added = answer.tags.filter((/** @type {string} */ tag) => !tagsBefore.includes(tag)); });
  /** @param {Uint8Array} part @param {boolean} back */
  const apply = async (part, back) => {
    const shown = get().open?.id === truth.id ? get().open : (await open(truth.id), get().open);
    if (!shown || shown.id !== truth.id) throw new Error(`${truth.name} could not be opened.`);
    paste(shown.correction, shown.width, box, part);
    set({open: {...shown}});
    sendBox(shown, box, part);
    // a tag that came with the stroke goes with it
    if (back && added.length) sendTags([[truth.id, (tags) => tags.filter((tag) => !added.includes(tag))]]);
  };
  history.add({name, bytes: old.length + fresh.length, undo: () => apply(old, true), redo: () => apply(fresh, false)});
}

/**
 * Send changes of tags; each is applied to the tags that are there when it is sent.
 * @param {[number, (tags: string[], id: number) => string[]][]} changes
 * @param {(before: Map<number, string[]>, after: Map<number, string[]>) => void} [done]
 */
function sendTags(changes, done) {
  const before = new Map(changes.map(([id]) => [id, get().server.tags[id]]));
  const shown = [...get().server.tags];
  for (const [id, change] of changes) shown[id] = change(shown[id], id);
  setServer({tags: shown});
  const wanted = new Map(changes.map(([id]) => [id, shown[id]]));
  if (done) done(before, wanted);
  outbox.add({
    path: "tags", body: null, photo: changes.length === 1 ? changes[0][0] : -1, headers: () => ({}),
    remake: () => [...wanted].map(([photo, tags]) => ({photo, tags, before: digests.tags.get(photo) || ""})),
    done: (answer) => {
      take(answer.photos);
      if (answer.conflicts.length) {
        const names = answer.conflicts.map((/** @type {number} */ id) => get().server.photos[id]).join(", ");
        say(`The tags of ${names} were changed in another window meanwhile; they are shown as they are now.`);
        history.clear();
      }
    },
    refused: (problem) => {
      const tags = [...get().server.tags];
      for (const [id, old] of before) tags[id] = old;
      setServer({tags});
      say(problem);
    },
  });
}

/**
 * Change the tags of photos.
 * @param {number[]} ids
 * @param {(tags: string[], id: number) => string[]} change
 * @param {string} name
 */
export function changeTags(ids, change, name) {
  const touched = ids.filter((id) => { const now = get().server.tags[id], then = change(now, id); return now.join("\0") !== then.join("\0"); });
  if (!touched.length) return;
  sendTags(touched.map((id) => [id, change]), (before, after) => {
    history.add({
      name, bytes: 64 * touched.length,
      undo: () => sendTags(touched.map((id) => [id, () => before.get(id) || []])),
      redo: () => sendTags(touched.map((id) => [id, () => after.get(id) || []])),
    });
  });
}

/** @param {string} tag @returns {(tags: string[]) => string[]} */
export const adding = (tag) => (tags) => (tags.includes(tag) ? tags : [...tags, tag].sort());

/** @param {string} tag @returns {(tags: string[]) => string[]} */
export const removing = (tag) => (tags) => tags.filter((other) => other !== tag);

/** @param {number[]} ids @param {boolean} good */
function sendChecked(ids, good) {
  const rest = get().server.checked.filter((id) => !ids.includes(id));
  setServer({checked: good ? [...rest, ...ids] : rest});
  outbox.add({
    path: "checked", body: {photos: ids, good}, photo: ids.length === 1 ? ids[0] : -1, headers: () => ({}), done: () => {},
    refused: (problem) => { setServer({checked: good ? rest : [...rest, ...ids]}); say(problem); },
  });
}

/**
 * Say that photos are right as they are, or take it back.
 * @param {number[]} ids @param {boolean} good
 */
export function check(ids, good) {
  const touched = ids.filter((id) => get().server.checked.includes(id) !== good);
  if (!touched.length) return;
  sendChecked(touched, good);
  history.add({name: good ? "checked" : "not checked", bytes: 64, undo: () => sendChecked(touched, !good), redo: () => sendChecked(touched, good)});
}
