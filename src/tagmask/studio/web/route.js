// The address of the page: the step, the photo, and which photos are listed. Back and reload work.

import {get, set} from "./store.js";

/** @typedef {import("./types.js").Route} Route */

const FIELDS = /** @type {const} */ (["q", "tag", "show", "order"]);

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?"), [step, photo] = path.split("/"), values = new URLSearchParams(query || "");
  const route = /** @type {Route} */ ({step: step || "", photo: /^\d+$/.test(photo || "") ? Number(photo) : -1, q: "", tag: "", show: "", order: ""});
  for (const field of FIELDS) route[field] = values.get(field) || "";
  return route;
}

/** @param {Route} route */
export function format(route) {
  const values = new URLSearchParams();
  for (const field of FIELDS) if (route[field]) values.set(field, route[field]);
  const query = String(values);
  return `#/${route.step}${route.photo >= 0 ? `/${route.photo}` : ""}${query ? `?${query}` : ""}`;
}

/**
 * Go somewhere.
 * @param {Partial<Route>} change
 * @param {boolean} [replace] without a step back
 */
export function go(change, replace = false) {
  const next = {...get().route, ...change}, address = format(next);
  if (address === window.location.hash) { if (next !== get().route) set({route: next}); return; }
  window.history[replace ? "replaceState" : "pushState"](null, "", address);
  set({route: next});
}

export function follow() {
  window.addEventListener("popstate", () => set({route: parse(window.location.hash)}));
}
