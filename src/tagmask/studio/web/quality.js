// Step 4: how good the masks are, measured on photos that were drawn and checked.

import {json, post} from "./api.js";
import {button, guarded, labelled, make} from "./dom.js";
import {go} from "./route.js";
import {get, watch} from "./store.js";

export class Quality {
  /** @param {any} root */
  constructor(root) {
    this.count = make("input", {type: "number", min: 1, max: 1000, value: 20, id: "draw-count"});
    this.table = make("table", {id: "scores"});
    this.text = make("p", {id: "advice", role: "status"});
    const draw = button("Draw at random", guarded(async () => { await post("draw", {count: Number(this.count.value)}); await this.load(); }), {className: "main", id: "draw"});
    const look = button("Check the drawn ones →", () => go({step: "review", photo: -1, show: "drawn", tag: "", q: ""}), {id: "to-drawn"});
    this.versions = make("ul", {id: "versions"});
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "How good is it?"}),
      make("p", {textContent: "Draw photos at random and check each one completely: correct what is wrong, then say Good. The mask that you were first shown is compared with the one you leave. The number is honest because nobody chose the photos; photos that were picked because they look good or bad would not tell about the others, and a photo that is waved through without a look counts as perfect." }),
      make("div", {className: "row"}, labelled("photos", this.count), draw, look), this.text, this.table,
      make("h2", {textContent: "Versions"}), make("p", {className: "soft", textContent: "Each learning that you accept is a version of the run. Going back keeps your corrections."}), this.versions));
    this.stop = watch(["server"], (now, before) => { this.showVersions(); if (now.server.checked !== before.server.checked || now.server.drawn !== before.server.drawn) void guarded(() => this.load())(); });
    this.showVersions();
    void guarded(() => this.load())();
  }

  close() { this.stop(); }

  async load() {
    const scores = await json("scores"), known = scores.classes.filter((/** @type {any} */ row) => row.photos);
    this.text.textContent = `${scores.photos} of ${scores.drawn} drawn photos are checked. ${scores.next}`;
    /** @param {any} interval */
    const cells = (interval) => (interval ? [`${Math.round(100 * interval.value)} %`, `${Math.round(100 * interval.low)} to ${Math.round(100 * interval.high)} %`] : ["–", "too few photos"]);
    this.table.hidden = !known.length;
    this.table.replaceChildren(make("caption", {textContent: "IoU of the masks as first shown"}),
      make("thead", {}, make("tr", {}, ...["class", "IoU", "19 times out of 20 within", "photos"].map((text) => make("th", {textContent: text, scope: "col"})))),
      make("tbody", {}, ...known.map((/** @type {any} */ row) => make("tr", {}, make("th", {textContent: row.label, scope: "row"}), ...[...cells(row.interval), String(row.photos)].map((text) => make("td", {textContent: text}))))));
  }

  showVersions() {
    const {server} = get();
    this.versions.replaceChildren(...server.versions.map((version) => make("li", {}, make("strong", {textContent: `Version ${version.number}`}), `: ${version.what}, ${version.when}, ${version.corrected} photos corrected `,
      version.is_current ? make("em", {textContent: "current"}) : button("Go back to it", guarded(() => post("version", {number: version.number}))))));
    if (!server.versions.length) this.versions.append(make("li", {className: "soft", textContent: "No version yet: it comes with the first run or the first learning that you accept."}));
  }

  /** @param {KeyboardEvent} _event */
  key(_event) { return false; }

  undo() { return false; }
}
