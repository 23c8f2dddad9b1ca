// Step 3: the photos with their masks, most doubtful first.

import {button, make} from "./dom.js";
import {Filters} from "./filters.js";
import {Grid} from "./grid.js";
import {listed} from "./list.js";
import {go} from "./route.js";
import {get, watch} from "./store.js";
import {check} from "./writes.js";

export class Review {
  /** @param {any} root */
  constructor(root) {
    this.filters = new Filters();
    this.grid = new Grid(() => listed(get().server, get().route), (id) => go({photo: id}), false);
    this.count = make("strong", {id: "checked"});
    this.bar = make("progress", {max: 1, value: 0, "aria-label": "Checked photos"});
    this.verdicts = make("details", {id: "verdicts"}, make("summary"), make("ul"));
    this.warning = make("p", {className: "warning", id: "warning"});
    const top = make("div", {className: "row"}, this.count, this.bar, button("Next unchecked", () => this.next(), {className: "main", id: "next-unchecked"}));
    root.replaceChildren(make("div", {className: "review"}, this.warning, top, this.verdicts, this.filters.root, this.grid.none, this.grid.root));
    this.grid.refresh();
    this.stop = watch(["server"], () => this.update());
    this.update();
    this.grid.root.focus({preventScroll: true});
  }

  close() {
    this.filters.close();
    this.grid.close();
    this.stop();
  }

  next() {
    const {server, route} = get(), id = listed(server, route).find((one) => server.masks.includes(one) && !server.checked.includes(one));
    if (id !== undefined) go({photo: id});
  }

  update() {
    const {server} = get(), total = server.masks.length, done = server.checked.length;
    this.count.textContent = total ? `${done} of ${total} checked` : "There are no masks yet.";
    this.bar.value = total ? done / total : 0;
    this.bar.hidden = !total;
    this.verdicts.hidden = !server.verdicts.length;
    this.verdicts.firstChild.textContent = server.verdicts.length ? `Self-check: ${server.verdicts[0]}` : "";
    this.verdicts.lastChild.replaceChildren(...server.verdicts.slice(1).map((line) => make("li", {textContent: line})));
    const text = [server.foreign, server.outdated ? "Tags have changed since these masks were made; make them again in step 2." : ""].filter(Boolean).join(" ");
    this.warning.textContent = text;
    this.warning.hidden = !text;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const id = this.grid.cursor;
    if (event.key === "n") this.next();
    else if (event.key === "Enter" && id >= 0 && get().server.masks.includes(id)) {
      const place = this.grid.rows.indexOf(id);
      check([id], true);
      // the list may have lost it
      const next = this.grid.rows[this.grid.rows[place] === id ? place + 1 : place];
      if (next !== undefined) this.grid.reveal(next);
    } else if (event.key === "e" && id >= 0) go({photo: id});
    else return false;
    return true;
  }

  undo() { return false; }
}
