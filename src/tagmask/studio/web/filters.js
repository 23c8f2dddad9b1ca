// Search, filter and order of the list; they are in the address.

import {chooser, labelled, make} from "./dom.js";
import {ORDERS, SHOWS, listed} from "./list.js";
import {go} from "./route.js";
import {get, watch} from "./store.js";

export class Filters {
  constructor() {
    this.search = make("input", {type: "search", id: "search", placeholder: "name or tag", value: get().route.q});
    this.search.oninput = () => go({q: this.search.value}, true);
    this.tag = chooser([["", "any"]], "", (tag) => go({tag}), "Tag");
    this.tag.id = "tag";
    this.show = chooser([["", "all"], ...Object.entries(SHOWS)], get().route.show, (show) => go({show}), "Show");
    this.show.id = "show";
    this.order = chooser([["", "by name"]], "", (order) => go({order}), "Order");
    this.order.id = "order";
    this.count = make("span", {className: "soft", id: "count", role: "status"});
    this.root = make("div", {className: "filters row", role: "search"}, labelled("Search", this.search), labelled("Tag", this.tag), labelled("Show", this.show), labelled("Order", this.order), this.count);
    this.stop = watch(["server", "route", "only"], () => this.update());
    this.update();
  }

  close() { this.stop(); }

  update() {
    const {server, route, only} = get(), tags = [...new Set(server.tags.flat())].sort();
    this.fill(this.tag, [["", "any"], ...tags.map((tag) => /** @type {[string, string]} */ ([tag, tag]))], route.tag);
    /** @type {[string, string][]} */
    const orders = route.step === "review" ? [["", "most doubtful first"], ["name", "by name"]] : [["", "by name"]];
    if (server.order.length) orders.push(["alike", "similar photos together"]);
    for (const [key, [text, fact]] of Object.entries(ORDERS)) if (key !== "unsure" && server.facts.some((one) => one && fact in one)) orders.push([key, text]);
    this.fill(this.order, orders, route.order);
    this.show.value = route.show;
    if (document.activeElement !== this.search) this.search.value = route.q;
    this.count.textContent = `${listed(server, route, only).length} of ${server.photos.length} photos`;
  }

  /** @param {any} select @param {[string, string][]} choices @param {string} value */
  fill(select, choices, value) {
    const key = JSON.stringify(choices);
    if (select.dataset.choices !== key) {
      select.dataset.choices = key;
      select.replaceChildren(...choices.map(([one, text]) => make("option", {value: one, textContent: text})));
    }
    select.value = value;
  }
}
