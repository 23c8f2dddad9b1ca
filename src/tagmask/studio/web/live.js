// What the server tells by itself: progress, changes in other windows, masks as they are made.

import {PAGE, json} from "./api.js";
import {say} from "./dom.js";
import {outbox} from "./outbox.js";
import {digests, load} from "./photo.js";
import {get, set, setServer} from "./store.js";
import {take} from "./writes.js";

/** Show what the server tells about everything. @param {any} server */
export function takeState(server) {
  server.tagDigests.forEach((/** @type {string} */ digest, /** @type {number} */ id) => digests.tags.set(id, digest));
  set({server, stamp: get().stamp + 1});
}

/** Read everything again. */
async function loadState() {
  takeState(await json("state"));
}

/** @param {{page: string, photos: any[]}} data */
async function otherPage(data) {
  if (data.page === PAGE) return;
  const fresh = data.photos.filter(({photo}) => !outbox.hasFor(photo));
  take(fresh);
  const now = get().open;
  if (now && fresh.some(({photo}) => photo === now.id)) {
    const truth = await load(now.id);
    if (get().open?.id === truth.id) set({open: truth});
    say(`${now.name} was changed in another window; this is its current state.`, true);
  }
}

/** Listen for as long as the page is open. */
export function listen() {
  const source = new EventSource("events");
  let lost = false;
  /** @param {string} kind @param {(data: any) => any} work */
  const on = (kind, work) => source.addEventListener(kind, (event) => { void Promise.resolve(work(JSON.parse(/** @type {MessageEvent} */ (event).data))).catch(say); });
  on("photos", otherPage);
  on("checked", (data) => {
    if (data.page === PAGE) return;
    const rest = get().server.checked.filter((id) => !data.photos.includes(id));
    setServer({checked: data.good ? [...rest, ...data.photos] : rest});
  });
  on("facts", (data) => {
    const facts = [...get().server.facts];
    for (const [id, fact] of Object.entries(data)) facts[Number(id)] = fact;
    setServer({facts});
  });
  on("learning", (learning) => setServer({learning}));
  on("job", (job) => setServer({job}));
  on("marks", (marks) => { set({server: {...get().server, ...marks}, stamp: get().stamp + 1}); });
  on("order", (order) => setServer({order}));
  on("suggestions", (suggestions) => setServer({suggestions}));
  on("comparing", (comparing) => setServer({comparing}));
  on("notes", (notes) => setServer({notes}));
  on("reload", async () => {
    await loadState();
    const now = get().open;
    if (now) set({open: await load(now.id)});
  });
  source.onerror = () => { lost = true; };
  source.onopen = async () => {
    outbox.retry();
    // what happened meanwhile is not told again
    if (lost) { lost = false; await outbox.empty(); await loadState().catch(say); }
  };
  window.addEventListener("online", () => outbox.retry());
}
