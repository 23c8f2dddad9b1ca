// The start: which step is shown, the keys, and the frame around them.

import {json} from "./api.js";
import {Choosing} from "./choosing.js";
import {$, guarded, make, say} from "./dom.js";
import {Editor} from "./editor.js";
import {Exporting} from "./exporting.js";
import {history} from "./history.js";
import {listen, takeState} from "./live.js";
import {outbox} from "./outbox.js";
import {close, open} from "./photo.js";
import {Quality} from "./quality.js";
import {Review} from "./review.js";
import {follow, go, parse} from "./route.js";
import {Running} from "./running.js";
import * as store from "./store.js";
import {Tagging} from "./tagging.js";

const {get, set, watch} = store;

/** step: text, in which modes, what shows it */
const STEPS = /** @type {Record<string, [string, string[], any]>} */ ({
  tag: ["1 Tag", ["folder"], Tagging],
  run: ["2 Make masks", ["folder"], Running],
  review: ["3 Review", ["folder", "run", "photo"], Review],
  quality: ["4 How good?", ["folder", "run"], Quality],
  export: ["5 Export", ["folder", "run"], Exporting],
});

const KEYS = /** @type {[string, [string, string][]][]} */ ([
  ["Everywhere", [["Ctrl+Z, Ctrl+Shift+Z", "undo and redo: strokes, tags, checks"], ["?", "this list"]]],
  ["Tag", [["click, drag, Shift+click, Ctrl+A", "select photos; arrows move, with Shift they select"], ["letters", "type a tag; Enter gives it to the selection"], ["1 … 9", "recent tags, for the selection"], ["Enter", "accept a suggestion"]]],
  ["Review", [["Enter", "good"], ["E or Space", "edit"], ["N", "next unchecked"]]],
  ["One photo", [["Enter", "good, and on to the next"], ["← →", "previous and next photo"], ["V B X S P F", "move, brush, eraser, smart click, polygon, fill"],
    ["[ ]", "smaller and larger brush"], ["1 … 9, 0, U", "paint a tag, background, unsure"], ["H held", "hide the mask"], ["D", "where the run is unsure"], ["wheel, + −", "zoom; drag with the middle button or Alt to move"],
    ["arrows and Space on the picture", "move the tool and use it; Shift moves further"], ["Y", "why? affinity and maps"], ["Escape", "back to the list"]]],
]);

/** @type {any} what is shown now */
let view = null;
let shown = "";

function showStep() {
  const {route, server} = get();
  const wanted = route.photo >= 0 ? "editor" : route.step;
  if (wanted !== shown) {
    if (view) view.close();
    shown = wanted;
    view = route.photo >= 0 ? new Editor($("main")) : new STEPS[route.step][2]($("main"));
    /** @type {any} */ (window).studio.view = view;
  }
  for (const link of $("nav-steps").children) {
    if (link.dataset.step === route.step) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (route.photo < 0) { if (get().open || get().opening >= 0) close(); return; }
  if (route.photo >= server.photos.length) { go({photo: -1}, true); return; }
  const target = get().opening >= 0 ? get().opening : get().open?.id;
  if (target !== route.photo) {
    void open(route.photo).then((ok) => {
      // the address says what is shown
      if (!ok && get().opening < 0 && get().route.photo === route.photo) go({photo: get().open?.id ?? -1}, true);
    });
  }
}

function showSaving() {
  const {outbox: state, history: past, server} = get();
  $("saving").textContent = state.offline ? `not saved: ${state.waiting} wait for the server` : state.waiting ? "saving …" : past.undo || past.redo ? "saved" : "";
  $("saving").classList.toggle("offline", state.offline);
  $("undo").disabled = !past.undo;
  $("redo").disabled = !past.redo;
  for (const id of ["undo", "redo"]) $(id).hidden = server?.mode === "photo";
}

const undo = () => { if (!(view && view.undo())) void history.undo().catch(say); };
const redo = () => { void history.redo().catch(say); };

const letters = () => localStorage.getItem("letters") !== "no";

/** @param {KeyboardEvent} event */
function keys(event) {
  const target = /** @type {HTMLElement} */ (event.target), kind = target.tagName;
  const typing = kind === "TEXTAREA" || kind === "SELECT" || (kind === "INPUT" && !["checkbox", "range"].includes(/** @type {HTMLInputElement} */ (target).type));
  if (document.querySelector("dialog[open]")) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !typing) {
    if (event.shiftKey) redo(); else undo();
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if ((kind === "BUTTON" || kind === "A" || kind === "SUMMARY") && (event.key === "Enter" || event.key === " ")) return;
  if (kind === "INPUT" && event.key.startsWith("Arrow")) return;
  const single = event.key.length === 1;
  if (single && !letters()) return;
  if (event.key === "?") { $("help").showModal(); event.preventDefault(); return; }
  if (view && view.key(event)) event.preventDefault();
}

function buildFrame() {
  const {server} = get();
  $("title").textContent = `${server.title} · ${server.photos.length} photo${server.photos.length === 1 ? "" : "s"}`;
  document.title = `${server.title} – tagmask studio`;
  for (const [step, [text, modes]] of Object.entries(STEPS)) {
    if (!modes.includes(server.mode)) continue;
    const number = server.mode === "folder" ? text : text.slice(2);
    const link = make("a", {href: `#/${step}`, textContent: number, "data-step": step});
    link.onclick = (/** @type {Event} */ event) => { event.preventDefault(); go({step, photo: -1, q: "", tag: "", show: "", order: ""}); };
    $("nav-steps").append(link);
  }
  $("nav-steps").hidden = server.mode === "photo";
  $("help-keys").append(...KEYS.flatMap(([title, rows]) => [make("h3", {textContent: title}), make("dl", {}, ...rows.flatMap(([key, text]) => [make("dt", {}, make("kbd", {textContent: key})), make("dd", {textContent: text})]))]));
  $("letters").checked = letters();
  $("letters").onchange = () => localStorage.setItem("letters", $("letters").checked ? "yes" : "no");
  $("ask").onclick = () => $("help").showModal();
  $("dismiss").onclick = () => say("");
  $("undo").onclick = undo;
  $("redo").onclick = redo;
  document.addEventListener("keydown", keys);
  document.addEventListener("keyup", (event) => { if (event.key === "h") set({hidden: false}); });
  window.addEventListener("beforeunload", (event) => { if (get().outbox.waiting) event.preventDefault(); });
}

/** The frame without steps, while there is no folder. @param {any} state */
function buildChoice(state) {
  for (const id of ["nav-steps", "saving", "undo", "redo", "ask"]) $(id).hidden = true;
  $("dismiss").onclick = () => say("");
  /** @type {any} */ (window).studio.view = new Choosing($("main"), state);
  document.documentElement.dataset.ready = "yes";
}

void guarded(async () => {
  /** @type {any} */ (window).studio = {...store, outbox, history, view: null};
  const first = await json("state");
  if (first.mode === "choose") { buildChoice(first); return; }
  takeState(first);
  buildFrame();
  const {server} = get(), route = parse(window.location.hash);
  if (!STEPS[route.step] || !STEPS[route.step][1].includes(server.mode)) {
    route.step = server.mode === "folder" && !server.masks.length ? "tag" : "review";
  }
  if (server.mode === "photo") route.photo = 0;
  follow();
  set({route});
  go({}, true);
  watch(["route"], showStep);
  watch(["outbox", "history"], showSaving);
  showStep();
  showSaving();
  listen();
  document.documentElement.dataset.ready = "yes";
})();
