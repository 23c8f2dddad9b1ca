// Thumbnails of all photos; only those in sight exist.

import {make} from "./dom.js";
import {ORDERS, select, visible} from "./list.js";
import {get, set, watch} from "./store.js";

const CARD = 168, ROW = 172;

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
    this.anchor = -1;
    /** @type {Map<number, any>} */
    this.cards = new Map();
    this.inner = make("div", {className: "cells", role: "presentation"});
    this.root = make("div", {className: "grid", role: "listbox", "aria-label": "Photos", tabIndex: 0, "aria-multiselectable": choosing}, this.inner);
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
    if (!this.rows.includes(this.cursor)) this.cursor = this.rows[0] ?? -1;
    this.render();
  }

  columns() { return Math.max(1, Math.floor((this.root.clientWidth - 4) / CARD)); }

  render() {
    const columns = this.columns(), seen = visible(this.rows.length, columns, ROW, this.root.scrollTop, this.root.clientHeight);
    this.inner.style.height = `${seen.total}px`;
    const wanted = this.rows.slice(seen.from, seen.to), keep = new Set(wanted);
    for (const [id, card] of this.cards) if (!keep.has(id)) { card.remove(); this.cards.delete(id); }
    wanted.forEach((id, k) => {
      let card = this.cards.get(id);
      if (!card) { card = this.make(id); this.cards.set(id, card); this.inner.append(card); }
      const place = seen.from + k;
      card.style.transform = `translate(${(place % columns) * CARD}px, ${Math.floor(place / columns) * ROW}px)`;
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
    const card = make("div", {className: "card", role: "option", id: `card-${id}`, "data-photo": id},
      make("img", {alt: "", src: `thumb/${id}`, draggable: false, decoding: "async"}), make("img", {className: "over", alt: "", hidden: true, draggable: false}),
      make("span", {className: "name"}), make("span", {className: "tags"}), make("span", {className: "marks"}));
    card.firstChild.onerror = () => card.classList.add("broken");
    return card;
  }

  /** @param {number} id @param {any} card */
  update(id, card) {
    const {server, selection, stamp, route} = get(), [, over, name, tags, marks] = card.children;
    const selected = selection.includes(id), checked = server.checked.includes(id);
    card.setAttribute("aria-selected", String(selected));
    card.classList.toggle("cursor", id === this.cursor);
    name.textContent = server.photos[id];
    tags.textContent = server.tags[id].join(", ") || "no tag";
    tags.classList.toggle("none", !server.tags[id].length);
    const fact = (server.facts[id] || {})[ORDERS[route.order || "unsure"]?.[1] || ""];
    const facts = {unsure: "doubt", disagree: "differs", score: "IoU"}[route.order || "unsure"];
    marks.textContent = [checked ? "✓ checked" : "", server.corrected.includes(id) ? "✎ corrected" : "",
      fact === undefined ? "" : `${facts} ${Math.round(100 * fact)} %`, server.notes[String(id)] || ""].filter(Boolean).join(" · ");
    card.classList.toggle("checked", checked);
    const has = server.masks.includes(id) && route.step !== "tag", wanted = has ? `mask-thumb/${id}/${stamp}` : "";
    over.hidden = !has;
    if (has && over.dataset.src !== wanted) { over.dataset.src = wanted; over.src = wanted; }
  }

  /** @param {number} id */
  reveal(id) {
    this.cursor = id;
    const place = this.rows.indexOf(id), top = Math.floor(place / this.columns()) * ROW;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + ROW > this.root.scrollTop + this.root.clientHeight) this.root.scrollTop = top + ROW - this.root.clientHeight;
    this.render();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const columns = this.columns(), place = this.rows.indexOf(this.cursor);
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
