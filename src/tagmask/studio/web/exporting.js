// Step 5: masks for other tools.

import {post} from "./api.js";
import {button, guarded, labelled, make} from "./dom.js";
import {numbersPart} from "./numbers.js";
import {outbox} from "./outbox.js";
import {get, watch} from "./store.js";

export class Exporting {
  /** @param {any} root */
  constructor(root) {
    this.only = make("input", {type: "checkbox", id: "only-checked"});
    this.cards = make("div", {className: "cards", id: "cards"});
    this.done = make("p", {id: "exported", role: "status"});
    this.report = make("p");
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "Export"}), labelled("only checked photos", this.only), this.done, this.cards, this.report, numbersPart()));
    this.stop = watch(["server"], () => this.update());
    this.update();
  }

  close() { this.stop(); }

  update() {
    const {server} = get(), none = !server.masks.length;
    this.cards.replaceChildren(...Object.entries(server.cards).map(([format, text]) => make("section", {className: "export", "aria-label": format},
      make("h3", {textContent: format}), make("p", {textContent: text}), button("Export", guarded(() => this.write(format)), {"data-format": format, disabled: none, "aria-label": `Export ${format}`}))));
    if (server.report) this.report.replaceChildren(make("a", {href: "report", target: "_blank", rel: "noopener", textContent: "Report of the run"}));
  }

  /** @param {string} format */
  async write(format) {
    await outbox.empty();
    this.done.textContent = "writing …";
    try {
      const {path, name} = await post("export", {format, checked: this.only.checked});
      this.done.replaceChildren(`Written to ${path}. `, make("a", {href: `download/${encodeURIComponent(name)}`, download: "", textContent: "Download"}));
    } catch (problem) {
      this.done.textContent = "";
      throw problem;
    }
  }

  /** @param {KeyboardEvent} _event */
  key(_event) { return false; }

  undo() { return false; }
}
