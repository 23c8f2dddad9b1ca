// Step 5: masks for other tools.

import {post} from "./api.js";
import {button, guarded, make} from "./dom.js";
import {numbersPart} from "./numbers.js";
import {outbox} from "./outbox.js";
import {get, watch} from "./store.js";

export class Exporting {
  /** @param {any} root */
  constructor(root) {
    this.only = make("input", {type: "checkbox", id: "only-checked"});
    this.cards = make("div", {id: "cards"});
    this.note = make("p", {className: "soft"});
    this.shown = "";
    this.done = make("p", {id: "exported", role: "status"});
    this.report = make("p");
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "Export"}), this.note,
      make("label", {}, this.only, "only photos that are checked"), this.done, this.cards, this.report, numbersPart()));
    this.stop = watch(["server"], () => this.update());
    this.update();
  }

  close() { this.stop(); }

  update() {
    const {server} = get(), none = !server.masks.length, current = server.versions.find((version) => version.is_current);
    this.note.textContent = none ? "There are no masks yet." : `${server.masks.length} masks${current ? ` of version ${current.number}` : ""}, with everything that you have corrected; ${server.checked.length} of them are checked. Files go to the folder exports in ${server.out}.`;
    /** @param {[string, string, string]} card */
    const card = ([format, title, text]) => make("section", {className: "export", "aria-label": title}, make("h4", {textContent: title}), make("p", {textContent: text}),
      button("Export", guarded(() => this.write(format)), {"data-format": format, disabled: none, "aria-label": `Export: ${title}`}));
    // the buttons stay while somebody is at one of them, unless something has changed
    const key = JSON.stringify([server.cards, none]);
    if (this.shown !== key) {
      this.shown = key;
      this.cards.replaceChildren(...server.cards.flatMap((group) => [make("h3", {textContent: group.title}), make("div", {className: "cards"}, ...group.cards.map(card))]));
    }
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
