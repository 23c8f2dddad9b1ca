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
    this.look = button("Check the drawn photos →", () => go({step: "review", photo: -1, show: "drawn", tag: "", q: "", order: "name"}), {id: "to-drawn"});
    this.worst = button("", () => {}, {id: "to-worst", hidden: true});
    this.versions = make("ul", {id: "versions"});
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "How good is it?"}),
      make("p", {textContent: "Draw photos at random and check each one completely: correct what is wrong, then say Good. The mask that you were first shown is compared with the one you leave. The number is honest because nobody chose the photos; photos that were picked because they look good or bad would not tell about the others, and a photo that is waved through without a look counts as perfect." }),
      make("div", {className: "row"}, labelled("photos", this.count), draw), this.text, make("div", {className: "row"}, this.look, this.worst), this.table,
      make("h2", {textContent: "Versions"}), make("p", {className: "soft", textContent: "Each learning that you accept is a version of the run. Going back keeps your corrections."}), this.versions));
    this.stop = watch(["server"], (now, before) => { this.showVersions(); if (now.server.checked !== before.server.checked || now.server.drawn !== before.server.drawn) void guarded(() => this.load())(); });
    this.showVersions();
    void guarded(() => this.load())();
  }

  close() { this.stop(); }

  async load() {
    const scores = await json("scores"), known = scores.classes.filter((/** @type {any} */ row) => row.photos);
    const earlier = scores.earlier ? ` ${scores.earlier} photos were first shown with the masks of an earlier version and do not count; draw new ones for this version.` : "";
    this.text.textContent = `${scores.drawn ? `${scores.photos} of ${scores.drawn} drawn photos are checked. ` : ""}${scores.next}${earlier}`;
    this.look.hidden = !scores.drawn;
    this.worst.hidden = !scores.worst;
    this.worst.textContent = `Correct photos of ${scores.worst} →`;
    this.worst.onclick = () => go({step: "review", photo: -1, show: "unchecked", tag: scores.worst, q: "", order: ""});
    /** @param {number} share */
    const percent = (share) => `${Math.round(100 * share)} %`;
    /** @param {any} interval */
    const cells = (interval) => {
      if (!interval) return [make("td", {textContent: "–"}), make("td", {textContent: "too few photos"}), make("td")];
      const range = make("i"), mark = make("b");
      range.style.left = percent(interval.low);
      range.style.width = percent(interval.high - interval.low);
      mark.style.left = percent(interval.value);
      return [make("td", {textContent: percent(interval.value)}), make("td", {textContent: `${Math.round(100 * interval.low)} to ${percent(interval.high)}`}),
        make("td", {className: "range"}, make("div", {className: "scale", "aria-hidden": true}, range, mark))];
    };
    this.table.hidden = !known.length;
    this.table.replaceChildren(make("caption", {textContent: "IoU of the masks as first shown"}),
      make("thead", {}, make("tr", {}, ...["class", "IoU", "19 times out of 20 within"].map((text) => make("th", {textContent: text, scope: "col"})), make("td"), make("th", {textContent: "photos", scope: "col"}))),
      make("tbody", {}, ...known.map((/** @type {any} */ row) => make("tr", {}, make("th", {textContent: row.label, scope: "row"}), ...cells(row.interval), make("td", {textContent: row.photos})))));
  }

  showVersions() {
    const {server} = get();
    this.versions.replaceChildren(...server.versions.map((version) => make("li", {}, make("strong", {textContent: `Version ${version.number}`}), `: ${version.what}, ${version.when}, ${version.corrected} photo${version.corrected === 1 ? "" : "s"} corrected `,
      version.is_current ? make("em", {textContent: "current"}) : button("Go back to it", guarded(() => post("version", {number: version.number}))))));
    if (!server.versions.length) this.versions.append(make("li", {className: "soft", textContent: "No version yet: it comes with the first run or the first learning that you accept."}));
  }

  /** @param {KeyboardEvent} _event */
  key(_event) { return false; }

  undo() { return false; }
}
