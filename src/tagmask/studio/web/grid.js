// Thumbnails of all photos; only those in sight exist.

import {make} from "./dom.js";
import {ORDERS, select, visible} from "./list.js";
import {get, set, watch} from "./store.js";

// a card is at least so wide; its picture is 10 : 7, and two lines stand below it
const NARROWEST = 165, LINES = 62;

export class Grid {
  /**
   * @param {() => number[]} rows photos in order
   * @param {(id: number) => void} open
   * @param {boolean} choosing a click selects instead of opening
   */
  constructor(rows, open, choosing) {
    this.rowsNow = rows;
    this.open = open;
    this.choosing = choosing;
    /** @type {number[]} */
    this.rows = [];
    this.cursor = -1;
    this.moved = false;
    this.anchor = -1;
    /** @type {Map<number, any>} */
    this.cards = new Map();
    this.inner = make("div", {className: "cells", role: "presentation"});
    this.root = make("div", {className: "grid", role: "listbox", "aria-label": "Photos", tabIndex: 0, "aria-multiselectable": choosing}, this.inner);
    // outside of the list, which may hold nothing but photos
    this.none = make("p", {className: "empty", textContent: "No photo is like this. Choose “all” or another tag above.", hidden: true, role: "status"});
    this.root.addEventListener("scroll", () => this.render());
    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.sizes = new ResizeObserver(() => this.render());
    this.sizes.observe(this.root);
    this.stop = watch(["server", "route", "selection", "only", "stamp"], (now, before) => {
      if (now.server !== before.server || now.route !== before.route || now.only !== before.only || now.stamp !== before.stamp) this.refresh();
      else this.render();
    });
    this.drag();
    this.refresh();
  }

  close() {
    this.stop();
    this.sizes.disconnect();
  }

  refresh() {
    this.rows = this.rowsNow();
    // until somebody moves it, the cursor is at the first photo, whatever becomes the first
    if (!this.moved || !this.rows.includes(this.cursor)) this.cursor = this.rows[0] ?? -1;
    this.render();
  }

  /** How the cards are laid out: they share the width. */
  layout() {
    const width = this.root.clientWidth - 4, columns = Math.max(1, Math.floor(width / NARROWEST)), card = Math.max(120, Math.floor(width / columns));
    return {columns, card, row: Math.round(0.7 * (card - 16)) + LINES};
  }

  render() {
    const {columns, card: width, row} = this.layout(), seen = visible(this.rows.length, columns, row, this.root.scrollTop, this.root.clientHeight);
    this.inner.style.height = `${seen.total}px`;
    this.none.hidden = this.rows.length > 0;
    const wanted = this.rows.slice(seen.from, seen.to), keep = new Set(wanted);
    for (const [id, card] of this.cards) if (!keep.has(id)) { card.remove(); this.cards.delete(id); }
    wanted.forEach((id, k) => {
      let card = this.cards.get(id);
      if (!card) { card = this.make(id); this.cards.set(id, card); this.inner.append(card); }
      const place = seen.from + k;
      card.style.transform = `translate(${(place % columns) * width}px, ${Math.floor(place / columns) * row}px)`;
      card.style.width = `${width - 4}px`;
      card.style.height = `${row - 4}px`;
      card.setAttribute("aria-posinset", String(place + 1));
      card.setAttribute("aria-setsize", String(this.rows.length));
      this.update(id, card);
    });
    const active = this.cards.get(this.cursor);
    if (active) this.root.setAttribute("aria-activedescendant", active.id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  /** @param {number} id */
  make(id) {
    const picture = make("img", {alt: "", src: `thumb/${id}`, draggable: false, decoding: "async"});
    const card = make("div", {className: "card", role: "option", id: `card-${id}`, "data-photo": id},
      make("div", {className: "pic"}, picture, make("img", {className: "over", alt: "", hidden: true, draggable: false}), make("span", {className: "badge"})),
      make("div", {className: "line"}, make("span", {className: "tags"}), make("span", {className: "fact"})), make("span", {className: "name"}));
    picture.onerror = () => card.classList.add("broken");
    return card;
  }

  /** @param {number} id @param {any} card */
  update(id, card) {
    const {server, selection, stamp, route} = get(), [pic, line, name] = card.children, [, over, badge] = pic.children, [tags, fact] = line.children;
    const selected = this.choosing ? selection.includes(id) : id === this.cursor;
    const checked = server.checked.includes(id), corrected = server.corrected.includes(id), note = server.notes[String(id)] || "";
    card.setAttribute("aria-selected", String(selected));
    card.classList.toggle("cursor", id === this.cursor);
    name.textContent = note ? `${server.photos[id]}: ${note}` : server.photos[id];
    name.title = name.textContent;
    name.classList.toggle("noted", Boolean(note));
    tags.textContent = server.tags[id].join(", ") || "no tag";
    tags.classList.toggle("none", !server.tags[id].length);
    const reviewing = route.step !== "tag", value = (server.facts[id] || {})[ORDERS[route.order || "unsure"]?.[1] || ""];
    const word = {unsure: "doubt", disagree: "differs", score: "IoU"}[route.order || "unsure"];
    fact.textContent = !reviewing || value === undefined ? "" : `${word} ${Math.round(100 * value)} %`;
    badge.textContent = [checked ? "✓ checked" : "", corrected ? "✎" : ""].filter(Boolean).join(" ");
    badge.hidden = !reviewing || !badge.textContent;
    badge.classList.toggle("pen", !checked);
    badge.setAttribute("aria-label", [checked ? "checked" : "", corrected ? "corrected" : ""].filter(Boolean).join(", "));
    badge.setAttribute("role", "img");
    const has = server.masks.includes(id) && reviewing, wanted = has ? `mask-thumb/${id}/${stamp}` : "";
    over.hidden = !has;
    if (has && over.dataset.src !== wanted) { over.dataset.src = wanted; over.src = wanted; }
  }

  /** @param {number} id */
  reveal(id) {
    this.cursor = id;
    this.moved = true;
    const {columns, row} = this.layout(), top = Math.floor(this.rows.indexOf(id) / columns) * row;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + row > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = top + row - this.root.clientHeight;
    this.render();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const {columns} = this.layout(), place = this.rows.indexOf(this.cursor);
    const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -place, End: this.rows.length - 1 - place,
      PageUp: -3 * columns, PageDown: 3 * columns}[event.key];
    if (step !== undefined && this.rows.length) {
      const next = this.rows[Math.min(this.rows.length - 1, Math.max(0, place + step))];
      if (this.choosing && !(event.ctrlKey || event.metaKey)) this.pick(next, {shift: event.shiftKey});
      this.reveal(next);
    } else if (event.key === "a" && (event.ctrlKey || event.metaKey) && this.choosing) set({selection: [...this.rows]});
    else if (event.key === " " && this.cursor >= 0) { if (this.choosing) this.pick(this.cursor, {toggle: true}); else this.open(this.cursor); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} id @param {{shift?: boolean, toggle?: boolean}} keys */
  pick(id, keys) {
    if (!keys.shift || this.anchor < 0) this.anchor = keys.shift ? this.cursor : id;
    set({selection: select(this.rows, get().selection, this.anchor, id, keys)});
    this.cursor = id;
    this.moved = true;
    this.render();
  }

  /** Clicks, and a range by dragging over it. */
  drag() {
    /** @param {Event} event */
    const cardAt = (event) => {
      const card = /** @type {HTMLElement} */ (event.target).closest?.(".card");
      return card ? Number(/** @type {HTMLElement} */ (card).dataset.photo) : -1;
    };
    let from = -1;
    this.root.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
      const id = cardAt(event);
      if (id < 0 || event.button) return;
      if (!this.choosing) return;
      this.pick(id, {shift: event.shiftKey, toggle: event.ctrlKey || event.metaKey});
      from = event.shiftKey || event.ctrlKey || event.metaKey || event.pointerType === "touch" ? -1 : id;
    });
    this.root.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      if (from < 0 || !(event.buttons & 1)) { from = -1; return; }
      const id = cardAt(event);
      if (id >= 0 && id !== this.cursor) { this.anchor = from; this.pick(id, {shift: true}); }
    });
    this.root.addEventListener("click", (/** @type {MouseEvent} */ event) => { const id = cardAt(event); if (!this.choosing && id >= 0) this.open(id); });
    this.root.addEventListener("dblclick", (/** @type {MouseEvent} */ event) => { const id = cardAt(event); if (this.choosing && id >= 0) this.open(id); });
  }
}
