// Before there is a folder: choose one of this machine, or drop photos, which are copied into a new one.

import {ask, json, post, Refusal} from "./api.js";
import {button, guarded, labelled, make, say} from "./dom.js";
import {arranged, counted, gather, megabytes} from "./dropped.js";

/** @typedef {import("./dropped.js").Dropped} Dropped */
/** @typedef {{folder: number, name: string, run?: boolean, photos?: number, counted?: boolean}} Row */
/** @typedef {{folder: number, path: string, name: string, above: Row[], run: boolean, photos: number, counted: boolean, folders: Row[], left: number}} Listing */

export class Choosing {
  /** @param {any} root @param {{places: Row[], listing: Listing, suffixes: string[], most: number}} state */
  constructor(root, state) {
    this.suffixes = state.suffixes;
    this.most = state.most;
    this.listing = state.listing;
    /** @type {Dropped[]} */
    this.photos = [];
    // how many of them are copied, and the folder that gets them
    this.done = 0;
    this.target = -1;
    this.path = make("nav", {className: "path", id: "path", "aria-label": "Where this folder is"});
    this.open = button("Open this folder", guarded(() => this.choose(this.listing.folder)), {className: "main", id: "open-folder"});
    this.about = make("p", {id: "about-folder", role: "status"});
    this.list = make("ul", {className: "folders", id: "folders"});
    const places = state.places.map(({folder, name}) => button(name[0].toUpperCase() + name.slice(1), guarded(() => this.look(folder)), {"data-place": name}));
    this.into = make("strong", {id: "into"});
    this.box = make("section", {className: "drop", id: "drop", "aria-label": "Drop photos"});
    root.replaceChildren(make("div", {className: "page", id: "choosing"}, make("h2", {textContent: "Choose a folder of photos"}),
      make("p", {textContent: "Photos in its sub-folders are taken, too. Nothing is written into it: tags and masks go to a new folder beside it. The folder of a run opens where you left it."}),
      make("div", {className: "row"}, ...places), this.path, make("div", {className: "row"}, this.open, this.about), this.list,
      make("h2", {textContent: "Or drop photos here"}), this.box));
    this.show(this.listing);
    this.showDrop();
    this.catchDrops(root);
  }

  /** @param {number} folder */
  async look(folder) {
    this.show(await this.asked(() => json(`folders/${folder}`)));
    this.path.querySelector("[aria-current]").focus();
  }

  /**
   * Ask something; if another window has chosen meanwhile, its choice is shown.
   * @template T
   * @param {() => Promise<T>} work
   */
  async asked(work) {
    try {
      return await work();
    } catch (problem) {
      if (problem instanceof Refusal && (problem.status === 404 || problem.status === 409)) window.location.reload();
      throw problem;
    }
  }

  /** @param {Listing} listing */
  show(listing) {
    this.listing = listing;
    say("");
    this.into.textContent = listing.path;
    this.path.replaceChildren(...listing.above.map(({folder, name}) => button(name, guarded(() => this.look(folder)), {className: name === "/" ? "root" : ""})),
      make("strong", {textContent: listing.name, tabIndex: -1, "aria-current": "location"}));
    this.path.title = listing.path;
    const none = listing.counted && !listing.photos && !listing.run;
    this.about.textContent = listing.run ? "A run of tagmask: go on with it." : none ? "No photos in it." : `${counted(listing)}.`;
    this.open.disabled = none;
    this.list.replaceChildren(...listing.folders.map((row) => make("li", {}, button(row.name, guarded(() => this.look(row.folder)), {className: "plain"}),
      make("span", {className: "soft", textContent: row.run ? "a run of tagmask" : counted(row)}))));
    if (listing.left) this.list.append(make("li", {className: "soft", textContent: `and ${listing.left} more, which are not listed`}));
    this.list.hidden = !listing.folders.length;
  }

  /** @param {number} folder */
  async choose(folder) {
    this.about.textContent = "Opening …";
    this.open.disabled = true;
    try {
      await this.asked(() => post("choose", {folder}));
    } catch (problem) {
      this.show(this.listing);
      throw problem;
    }
    // the same address is now the studio of this folder
    window.location.reload();
  }

  /** Ask for photos, or for the name of the folder that gets them. */
  showDrop() {
    if (this.photos.length) { this.showName(); return; }
    const folders = make("input", {type: "file", id: "pick-folder", multiple: true, webkitdirectory: true, hidden: true});
    const files = make("input", {type: "file", id: "pick-files", multiple: true, accept: this.suffixes.join(","), hidden: true});
    for (const input of [folders, files]) input.onchange = () => this.take([...input.files].map((file) => ({file, path: file.webkitRelativePath || file.name})));
    this.box.replaceChildren(make("p", {textContent: "A browser does not tell where dropped photos are, so they are copied into a folder that you name. Nothing leaves this machine."}),
      make("div", {className: "row"}, button("Take a folder …", () => folders.click(), {id: "take-folder"}), button("Take photos …", () => files.click(), {id: "take-files"})), folders, files);
  }

  /** @param {Dropped[]} found */
  take(found) {
    const {name, photos, left} = arranged(found, this.suffixes, this.most);
    if (!photos.length) { say("There is no photo in what you dropped."); return; }
    say(left ? `${left} file${left === 1 ? " is" : "s are"} left out: no photos, hidden, or too large.` : "", true);
    this.photos = photos;
    this.done = 0;
    this.target = -1;
    this.name = make("input", {id: "new-name", value: name, autocomplete: "off", spellcheck: false});
    this.name.onkeydown = (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") { event.preventDefault(); this.copy.click(); } };
    this.copy = button("Copy and open", guarded(() => this.send()), {className: "main", id: "copy"});
    this.bar = make("progress", {id: "copying", max: photos.length, hidden: true, "aria-label": "Photos copied"});
    this.progress = make("span", {className: "soft", id: "copied", role: "status"});
    this.showDrop();
    this.name.focus();
    this.name.select();
  }

  showName() {
    const bytes = this.photos.reduce((sum, {file}) => sum + file.size, 0), count = this.photos.length;
    const what = make("p", {id: "what-dropped"}, `${count} photo${count === 1 ? "" : "s"}, ${megabytes(bytes)}. A new folder for them is made in `, this.into, "; choose another place above.");
    this.box.replaceChildren(what,
      make("div", {className: "row"}, labelled("Name of the new folder", this.name), this.copy, button("Cancel", () => this.cancel(), {id: "cancel-copy"}), this.bar, this.progress));
  }

  cancel() {
    if (this.done) say(`The ${this.done} photos that were copied stay in ${this.where}.`, true);
    this.photos = [];
    this.showDrop();
  }

  /** Copy one photo after the other; after a failure it goes on with the one that failed. */
  async send() {
    this.copy.disabled = true;
    try {
      if (this.target < 0) {
        const size = this.photos.reduce((sum, {file}) => sum + file.size, 0);
        const made = await this.asked(() => post("make", {folder: this.listing.folder, name: this.name.value.trim(), size}));
        this.target = made.folder;
        this.where = made.path;
        this.name.disabled = true;
        this.copy.textContent = "Go on";
      }
      this.bar.hidden = false;
      for (; this.done < this.photos.length; this.done++) {
        const {file, path} = this.photos[this.done];
        this.progress.textContent = `${this.done} of ${this.photos.length} copied`;
        this.bar.value = this.done;
        await ask(`receive/${this.target}`, {method: "POST", body: file, headers: {"X-File": encodeURIComponent(path)}});
        // cancelled meanwhile
        if (!this.photos.length) return;
      }
      await this.choose(this.target);
    } finally {
      this.copy.disabled = false;
    }
  }

  /** Photos may be dropped anywhere on the page. @param {any} root */
  catchDrops(root) {
    root.addEventListener("dragover", (/** @type {DragEvent} */ event) => { event.preventDefault(); this.box.classList.add("over"); });
    root.addEventListener("dragleave", () => this.box.classList.remove("over"));
    root.addEventListener("drop", (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      this.box.classList.remove("over");
      const items = [...(event.dataTransfer?.items || [])].filter((item) => item.kind === "file");
      // both are there only while the event is
      const entries = items.map((item) => ({entry: item.webkitGetAsEntry?.() || null, file: item.getAsFile()}));
      void guarded(async () => this.take(await gather(entries)))();
    });
  }
}
