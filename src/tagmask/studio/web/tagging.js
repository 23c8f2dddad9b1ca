// Step 1: tags for many photos at once.

import {button, make, say} from "./dom.js";
import {Filters} from "./filters.js";
import {Grid} from "./grid.js";
import {folderTag, listed} from "./list.js";
import {go} from "./route.js";
import {get, set, watch} from "./store.js";
import {adding, changeTags, removing} from "./writes.js";

// photos of a tag from which masks can be expected
const ENOUGH = 10;

export class Tagging {
  /** @param {any} root */
  constructor(root) {
    this.filters = new Filters();
    this.grid = new Grid(() => listed(get().server, get().route, get().only), (id) => this.look(id), true);
    this.field = make("input", {id: "tag-field", placeholder: "type a tag, then Enter", autocomplete: "off", "aria-label": "Tag for the selection"});
    this.field.setAttribute("list", "known-tags");
    this.known = make("datalist", {id: "known-tags"});
    this.field.onkeydown = (/** @type {KeyboardEvent} */ event) => this.typed(event);
    this.recent = make("ol", {className: "recent", id: "recent"});
    this.chosen = make("div", {className: "chips", id: "chosen"});
    this.counts = make("ul", {className: "counts", id: "counts"});
    this.hints = make("div", {id: "suggestions"});
    this.folders = make("div", {className: "offer", id: "folder-tags", hidden: true});
    this.status = make("p", {className: "soft", id: "comparing", role: "status"});
    this.selected = make("p", {id: "selected", role: "status", className: "soft"});
    this.recentTitle = make("h3", {textContent: "Recent tags"});
    this.chosenTitle = make("h3", {textContent: "Tags of the selection"});
    this.next = button("Make masks →", () => go({step: "run", photo: -1}), {className: "main", id: "to-run"});
    const side = make("section", {className: "side", "aria-label": "Tags"}, this.folders, make("h2", {textContent: "Tag the selection"}), this.selected,
      this.field, this.known, this.recentTitle, this.recent, this.chosenTitle, this.chosen,
      make("h2", {textContent: "Suggestions"}), this.status, this.hints, make("h2", {textContent: "All tags"}), this.counts, make("div", {className: "next"}, this.next));
    this.large = make("dialog", {id: "large", "aria-label": "Photo"});
    root.replaceChildren(make("div", {className: "tagging"}, make("div", {className: "list"}, this.filters.root, this.grid.none, this.grid.root), side, this.large));
    this.grid.refresh();
    this.stop = watch(["server", "selection", "only"], () => this.update());
    this.update();
  }

  close() {
    this.filters.close();
    this.grid.close();
    this.stop();
    set({only: null, selection: []});
  }

  /** @param {number} id */
  look(id) {
    const shut = make("form", {method: "dialog"}, make("button", {className: "main", textContent: "Close"}));
    this.large.replaceChildren(make("img", {src: `photo/${id}`, alt: get().server.photos[id]}), shut);
    this.large.showModal();
  }

  /** Tags, the last used first. */
  recentTags() {
    const {server} = get(), all = [...new Set(server.tags.flat())].sort();
    return [...new Set([...Tagging.used.filter((tag) => all.includes(tag)), ...all])].slice(0, 9);
  }

  /** @param {KeyboardEvent} event */
  typed(event) {
    if (event.key === "Escape") { this.grid.root.focus(); return; }
    if (event.key !== "Enter") return;
    event.preventDefault();
    const tag = this.field.value.trim().replace(/\s+/g, " ");
    if (!tag) return;
    this.apply(tag);
    this.field.value = "";
  }

  /** @param {string} tag */
  apply(tag) {
    const {selection, server} = get();
    if (!selection.length) { say("Select photos first: click, drag, Shift+click or Ctrl+A."); return; }
    const all = selection.every((id) => server.tags[id].includes(tag));
    changeTags(selection, all ? removing(tag) : adding(tag), all ? `${tag} removed` : `${tag} added`);
    if (!Tagging.used.includes(tag)) Tagging.used.push(tag);
  }

  update() {
    const {server, selection, only} = get();
    const counts = new Map();
    for (const tags of server.tags) for (const tag of tags) counts.set(tag, (counts.get(tag) || 0) + 1);
    const all = [...counts.keys()].sort();
    this.known.replaceChildren(...all.map((tag) => make("option", {value: tag})));
    this.selected.textContent = selection.length ? `${selection.length} photo${selection.length === 1 ? "" : "s"} selected` : "Select photos: click, drag over several, Shift+click, Ctrl+click, Ctrl+A.";
    const recent = this.recentTags();
    this.recentTitle.hidden = !recent.length;
    this.recent.replaceChildren(...recent.map((tag, k) => {
      const one = button("", () => this.apply(tag), {title: `add to the selection, or remove if all have it (${k + 1})`});
      one.append(make("kbd", {textContent: k + 1, "aria-hidden": true}), tag);
      return make("li", {}, one);
    }));
    const mine = [...new Set(selection.flatMap((id) => server.tags[id]))].sort();
    this.chosenTitle.hidden = !mine.length;
    this.chosen.replaceChildren(...mine.map((tag) => button(`${tag} ×`, () => changeTags(selection, removing(tag), `${tag} removed`), {"aria-label": `Remove ${tag} from the selection`})));
    this.counts.replaceChildren(...all.map((tag) => {
      const count = counts.get(tag), more = count < ENOUGH ? `, ${ENOUGH - count} more would help` : "";
      return make("li", {}, button(tag, () => go({tag}), {title: `show photos with ${tag}`}), make("span", {textContent: `${count} photo${count === 1 ? "" : "s"}${more}`}));
    }));
    const untagged = server.tags.filter((tags) => !tags.length).length;
    if (untagged) this.counts.append(make("li", {}, button("no tag", () => go({show: "untagged", tag: ""}), {title: "show photos without a tag"}), make("span", {className: "soft", textContent: `${untagged} photo${untagged === 1 ? "" : "s"}`})));
    this.showHints(only);
    this.showFolders();
    this.next.disabled = !all.length;
  }

  /** Offer the names of sub-folders as tags, while photos in them have none. */
  showFolders() {
    const {server} = get(), counts = new Map();
    let untagged = false;
    server.photos.forEach((name, id) => {
      const tag = folderTag(server, id);
      if (!tag) return;
      counts.set(tag, (counts.get(tag) || 0) + 1);
      if (!server.tags[id].length) untagged = true;
    });
    this.folders.hidden = !untagged;
    if (!untagged) return;
    const names = [...counts].slice(0, 6).map(([tag, count]) => `${tag} (${count})`), more = counts.size - names.length;
    this.folders.replaceChildren(make("span", {textContent: `The photos lie in folders: ${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}.`}),
      button("Use folder names as tags", () => this.useFolders(), {id: "use-folders"}));
  }

  useFolders() {
    const {server} = get(), ids = server.photos.map((_, id) => id).filter((id) => folderTag(server, id));
    changeTags(ids, (tags, id) => adding(folderTag(server, id))(tags), "folder names added");
  }

  /** @param {number[] | null} only */
  showHints(only) {
    const {server} = get(), {state, done, total, why} = server.comparing;
    this.status.textContent = {loading: "Loading the network that compares photos …", comparing: `Comparing photos: ${done} of ${total}`,
      failed: `Photos cannot be compared: ${why}`, done: server.suggestions.length ? "" : "Tag a few photos of at least two kinds, then suggestions come.", idle: ""}[/** @type {"idle"} */ (state)] || "";
    const rows = [];
    for (const {tag, likely, unlikely} of server.suggestions) {
      const lacks = likely.map((/** @type {[number, number]} */ pair) => pair[0]).filter((/** @type {number} */ id) => !server.tags[id].includes(tag));
      const odd = unlikely.map((/** @type {[number, number]} */ pair) => pair[0]).filter((/** @type {number} */ id) => server.tags[id].includes(tag));
      if (lacks.length) rows.push(button(`likely ${tag}, not tagged: ${lacks.length}`, () => this.offer(tag, lacks, true)));
      if (odd.length) rows.push(button(`tagged ${tag}, unlikely: ${odd.length}`, () => this.offer(tag, odd, false)));
    }
    if (only && this.offered) {
      const {tag, add} = this.offered;
      rows.unshift(make("p", {className: "offer"}, `Enter ${add ? "adds" : "removes"} ${tag} ${add ? "to" : "from"} what is selected. `, button(add ? "Add" : "Remove", () => this.accept(), {className: "main", id: "accept-suggestion"}), " ",
        button("All photos again", () => set({only: null, selection: []}))));
    }
    this.hints.replaceChildren(...rows);
  }

  /** @param {string} tag @param {number[]} ids @param {boolean} add */
  offer(tag, ids, add) {
    this.offered = {tag, add};
    set({only: ids, selection: ids});
    this.grid.root.focus();
  }

  accept() {
    if (!this.offered) return;
    const {tag, add} = this.offered, {selection} = get();
    changeTags(selection, add ? adding(tag) : removing(tag), `${tag} ${add ? "added" : "removed"}`);
    set({only: null, selection: []});
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key >= "1" && event.key <= "9") { const tag = this.recentTags()[Number(event.key) - 1]; if (tag) this.apply(tag); }
    else if (event.key === "Enter" && get().only) this.accept();
    else if (event.key === "Enter" && get().selection.length) this.field.focus();
    else if (event.key === "Escape") set({selection: [], only: null});
    else if (/^[a-zA-Z]$/.test(event.key)) this.field.focus();
    else return false;
    // a letter goes into the field
    return !/^[a-zA-Z]$/.test(event.key);
  }

  undo() { return false; }
}
/** Tags that were given in this session, in order. @type {string[]} */
Tagging.used = [];
