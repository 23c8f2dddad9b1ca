// How much each class covers: by class, and by the columns of the user's table.

import {json} from "./api.js";
import {button, guarded, make} from "./dom.js";

/** @param {number} share */
const percent = (share) => (share > 0 && share < 0.001 ? "under 0.1 %" : `${(100 * share).toFixed(1)} %`);

/**
 * @param {string} caption
 * @param {string[]} heads
 * @param {string[][]} rows
 */
function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((text) => make("th", {textContent: text, scope: "col"})));
  const body = rows.map(([first, ...rest]) => make("tr", {},
    make("th", {textContent: first, scope: "row"}),
    ...rest.map((text) => make("td", {textContent: text}))));
  return make("table", {}, make("caption", {textContent: caption}), make("thead", {}, head), make("tbody", {}, ...body));
}

/** @returns {any} a part of the page with a button that counts the masks */
export function numbersPart() {
  const tables = make("div", {id: "numbers"});
  const problem = make("p", {role: "status"});
  const count = async () => {
    const found = await json("numbers");
    problem.textContent = found.problem || (found.classes.length ? "" : "There are no masks yet.");
    const heads = ["class", "photos that show it", "where it is found", "over all photos", "of all pixels", ...(found.has_scale ? ["area mm²"] : [])];
    const rows = found.classes.map((/** @type {any} */ row) => [row.name, `${row.with_it} of ${row.photos}`, row.where_found === null ? "–" : percent(row.where_found),
      percent(row.mean_share), percent(row.share_of_all),
      ...(found.has_scale ? [row.area === null ? "–" : row.area.toFixed(1)] : [])]);
    const groups = found.tables.map((/** @type {any} */ one) => table(`By ${one.column}: over all photos of each row`, [one.column, "photos", ...one.classes],
      one.rows.map((/** @type {any} */ [value, photos, shares]) => [value, String(photos), ...shares.map(percent)])));
    tables.replaceChildren(...(rows.length ? [table("How much each class covers", heads, rows), ...groups] : []));
  };
  return make("section", {"aria-label": "numbers"}, make("h2", {textContent: "Numbers"}),
    button("Count the masks", guarded(count), {id: "count"}), problem, tables);
}
