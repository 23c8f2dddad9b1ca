// Which photos are listed, and in which order. Pure functions of the state.

/** @typedef {import("./types.js").Server} Server */
/** @typedef {import("./types.js").Route} Route */

/** order: text, the fact it is by, 1 for the smallest first */
export const ORDERS = /** @type {Record<string, [string, string, number]>} */ ({
  unsure: ["most doubtful first", "unsure", -1],
  disagree: ["stages disagree", "disagree", -1],
  score: ["lowest score first", "score", 1],
});

/** filter: text */
export const SHOWS = /** @type {Record<string, string>} */ ({
  untagged: "without a tag", unchecked: "not checked", checked: "checked", corrected: "corrected", drawn: "drawn at random",
  mask: "without a mask", changed: "changed by learning", noted: "copies and unreadable",
});

/**
 * The tag that the folder of a photo stands for: that of the first folder of its path, as on the
 * command line; empty if it lies in none, or its name cannot be a tag.
 * @param {{photos: string[], folderTags: Record<string, string>}} server @param {number} id
 */
export function folderTag(server, id) {
  const name = server.photos[id], end = name.indexOf("/");
  return end < 0 ? "" : server.folderTags[name.slice(0, end)] || "";
}

/**
 * @param {Server} server
 * @param {Route} route
 * @param {number[] | null} only photos of a suggestion
 * @returns {number[]}
 */
export function listed(server, route, only = null) {
  const has = /** @type {Record<string, Set<number>>} */ ({
    checked: new Set(server.checked), corrected: new Set(server.corrected), drawn: new Set(server.drawn), masks: new Set(server.masks),
  });
  const changed = new Set((server.learning?.changed || []).map((/** @type {any} */ row) => row.photo));
  /** @type {Record<string, (id: number) => boolean>} */
  const tests = {
    untagged: (id) => !server.tags[id].length, unchecked: (id) => has.masks.has(id) && !has.checked.has(id), checked: (id) => has.checked.has(id),
    corrected: (id) => has.corrected.has(id), drawn: (id) => has.drawn.has(id), mask: (id) => !has.masks.has(id),
    changed: (id) => changed.has(id), noted: (id) => String(id) in server.notes,
  };
  const words = route.q.toLowerCase().split(/\s+/).filter(Boolean);
  let rows = only ? [...only] : server.photos.map((_, id) => id);
  if (route.step !== "tag") rows = rows.filter((id) => server.mode !== "folder" || server.inRun.includes(id));
  if (route.tag) rows = rows.filter((id) => server.tags[id].includes(route.tag));
  const test = tests[route.show];
  if (test) rows = rows.filter(test);
  if (words.length) {
    rows = rows.filter((id) => {
      const text = `${server.photos[id]} ${server.tags[id].join(" ")}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }
  return only ? rows : ordered(server, route, rows);
}

/** @param {Server} server @param {Route} route @param {number[]} rows */
function ordered(server, route, rows) {
  if (route.order === "alike" && server.order.length) {
    const place = new Map(server.order.map((id, k) => [id, k]));
    return rows.sort((a, b) => (place.get(a) ?? 0) - (place.get(b) ?? 0));
  }
  // reviewing begins with what is most doubtful
  const order = ORDERS[route.order || (route.step === "review" ? "unsure" : "")];
  if (!order) return rows;
  const [, fact, sign] = order;
  /** @param {number} id */
  const value = (id) => (server.facts[id] || {})[fact];
  return rows.sort((a, b) => {
    const one = value(a), other = value(b);
    if (one === undefined || other === undefined) return Number(one === undefined) - Number(other === undefined) || a - b;
    return sign * (one - other) || a - b;
  });
}

/**
 * Which cells of a grid are in sight.
 * @param {number} count @param {number} columns @param {number} rowHeight @param {number} top scrolled by @param {number} height
 */
export function visible(count, columns, rowHeight, top, height) {
  const rows = Math.ceil(count / columns), first = Math.max(0, Math.floor(top / rowHeight) - 2);
  const last = Math.min(rows, Math.ceil((top + height) / rowHeight) + 2);
  return {from: first * columns, to: Math.min(count, last * columns), before: first * rowHeight, total: rows * rowHeight};
}

/**
 * The selection after a click.
 * @param {number[]} rows listed photos
 * @param {number[]} selection
 * @param {number} anchor
 * @param {number} id
 * @param {{shift?: boolean, toggle?: boolean}} keys
 */
export function select(rows, selection, anchor, id, keys) {
  if (keys.shift && rows.includes(anchor)) {
    const [a, b] = [rows.indexOf(anchor), rows.indexOf(id)].sort((one, other) => one - other);
    return rows.slice(a, b + 1);
  }
  if (keys.toggle) return selection.includes(id) ? selection.filter((other) => other !== id) : [...selection, id];
  return [id];
}
