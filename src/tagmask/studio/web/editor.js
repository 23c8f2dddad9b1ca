// One photo: rail of tools, the picture, and what is known about it.

import {ask, bytes, post} from "./api.js";
import {button, chooser, guarded, icon, labelled, make, say} from "./dom.js";
import {NONE, UNSURE, labelsIn} from "./labels.js";
import {listed} from "./list.js";
import {outbox} from "./outbox.js";
import {colour} from "./paint.js";
import {go} from "./route.js";
import {Stage} from "./stage.js";
import {get, set, watch} from "./store.js";
import {ICONS, TOOLS, Tools, resizeBrush} from "./tools.js";
import {Why} from "./why.js";
import {adding, changeTags, check, removing} from "./writes.js";

/** @typedef {import("./types.js").State} State */

// seconds from which a preview after every stroke would be in the way
const QUICK = 0.5;

/** @param {number} label */
export function nameOf(label) {
  if (label === UNSURE) return "unsure";
  if (label === NONE) return "not corrected";
  return label === 0 ? "background" : get().server.classes[label - 1];
}

/** @param {number} label */
export function swatch(label) {
  const box = make("span", {className: "swatch"});
  box.style.background = `rgb(${colour(get().server.colours, label).join(",")})`;
  return box;
}

export class Editor {
  /** @param {any} root */
  constructor(root) {
    this.tools = new Tools();
    this.canvas = make("canvas", {id: "picture", tabIndex: 0, role: "application", "aria-label": "Photo, loading"});
    this.rail = make("div", {className: "rail", role: "toolbar", "aria-label": "Tools", "aria-orientation": "vertical"});
    this.side = make("section", {className: "side", "aria-label": "About the photo"});
    this.why = new Why();
    this.bar = make("div", {className: "bar"});
    root.replaceChildren(make("div", {className: "editor"}, this.bar, this.rail, make("div", {className: "stage"}, this.canvas), this.side, this.why.root));
    this.buildRail();
    this.buildBar();
    this.buildSide();
    this.stage = new Stage(this.canvas, this.tools);
    this.tools.stage = this.stage;
    this.keep = watch(["server", "open", "opening", "tool", "label", "size", "pieces", "opacity", "split", "route", "strokes"], (now, before) => {
      this.update(now, before);
      if (now.strokes !== before.strokes && now.preview) void guarded(() => this.showPreview())();
    });
    this.update(get(), /** @type {any} */ ({}));
  }

  close() {
    this.stage.close();
    this.keep();
    this.why.close();
  }

  buildRail() {
    /** @type {Record<string, any>} */
    this.buttons = {};
    for (const [name, [text, key, title]] of Object.entries(TOOLS)) {
      const one = button("", () => this.choose(name), {title: `${text}: ${title} (${key})`, "aria-pressed": false, "aria-keyshortcuts": key, "data-tool": name});
      one.append(icon(ICONS[name]), make("span", {textContent: text}));
      this.buttons[name] = one;
      this.rail.append(one);
    }
    this.rail.append(make("hr"), make("div", {className: "pair"}, button("−", () => this.stage.zoom(1 / 1.5), {title: "Zoom out (-)", "aria-label": "Zoom out"}),
      button("+", () => this.stage.zoom(1.5), {title: "Zoom in (+)", "aria-label": "Zoom in"})),
      button("Whole photo", () => this.stage.fit(), {title: "Show the whole photo", id: "fit"}));
  }

  buildBar() {
    this.name = make("strong", {id: "name"});
    this.place = make("span", {className: "soft", id: "place"});
    this.good = button("Good", () => this.markGood(), {className: "main", id: "good", title: "Right as it is, and on to the next (Enter)"});
    this.bar.append(button("← List", () => go({photo: -1}), {id: "back-to-list", title: "Back to the list (Escape)"}),
      button("‹", () => this.step(-1), {"aria-label": "Previous photo", id: "previous"}), button("›", () => this.step(1), {"aria-label": "Next photo", id: "next"}),
      this.name, this.place, make("span", {className: "grow"}), this.good);
  }

  buildSide() {
    this.tags = make("div", {className: "chips", id: "tags", role: "group", "aria-label": "Tags of the photo"});
    this.add = make("select", {id: "add", "aria-label": "Add a tag"});
    this.add.onchange = () => { if (this.add.value) changeTags([/** @type {any} */ (get().open).id], adding(this.add.value), "tag added"); this.add.value = ""; };
    this.label = make("select", {id: "label"});
    this.label.onchange = () => set({label: Number(this.label.value)});
    this.size = make("input", {type: "range", min: 1, max: 200, id: "size"});
    this.size.oninput = () => set({size: Number(this.size.value)});
    this.sizes = chooser([["small", "small"], ["medium", "medium"], ["large", "large"]], get().pieces, (pieces) => { set({pieces}); this.prepare(); }, "Size of the pieces");
    this.opacity = make("input", {type: "range", min: 0, max: 1, step: 0.05, id: "opacity"});
    this.opacity.oninput = () => set({opacity: Number(this.opacity.value)});
    this.doubt = make("input", {type: "checkbox", id: "doubt"});
    this.doubt.onchange = guarded(() => this.showDoubt());
    this.split = make("input", {type: "range", min: 0, max: 1, step: 0.01, value: 0, id: "split"});
    this.split.oninput = () => set({split: Number(this.split.value)});
    this.legend = make("div", {className: "chips", id: "legend", role: "group", "aria-label": "Classes in the picture"});
    this.compare = labelled("After | before", this.split);
    this.learning = make("div", {className: "block", id: "learning"});
    this.paints = make("div", {className: "paints"}, labelled("Paint with", this.label), labelled("Brush size", this.size), labelled("Pieces of the smart click", this.sizes));
    this.side.append(make("h2", {textContent: "Tags"}), this.tags, this.add, make("h2", {textContent: "Paint"}), this.paints,
      make("h2", {textContent: "Show"}), labelled("Mask", this.opacity), labelled("Where the run is unsure", this.doubt), this.compare, this.legend, this.learning,
      button("Why is the mask like this?", () => { this.why.toggle(); }, {id: "why-button", title: "Affinity, maps and stages (y)", "aria-expanded": false}));
    this.buildLearning();
  }

  buildLearning() {
    this.learn = button("Learn from corrections", guarded(async () => { await outbox.empty(); await post("learn"); }), {className: "main", id: "learn"});
    this.accept = button("Accept", guarded(() => post("accept")), {id: "accept", className: "main"});
    this.takeBack = button("Take back", guarded(() => post("take-back")), {id: "back"});
    this.progress = make("progress", {id: "bar", max: 1, "aria-label": "Progress"});
    this.state = make("p", {className: "soft", id: "state", role: "status"});
    this.changed = make("div", {id: "changed", className: "chips"});
    this.preview = make("input", {type: "checkbox", id: "preview", checked: get().preview});
    this.preview.onchange = guarded(() => this.setPreview(this.preview.checked));
    this.previewRow = labelled("Preview after each stroke", this.preview);
    this.learning.append(make("h2", {textContent: "Learn again"}), this.previewRow, make("div", {className: "row"}, this.accept, this.learn, this.takeBack, this.progress), this.state, this.changed);
  }

  /** @param {string} tool */
  choose(tool) {
    const {server, open: truth} = get();
    if (tool !== "move" && !server.editable) { say(truth ? truth.refusal : "Corrections need a run."); return; }
    this.tools.corners = [];
    set({tool});
    this.prepare();
  }

  prepare() {
    const {open: truth} = get();
    if (truth) void this.tools.prepare(truth).then(() => this.stage.redraw());
  }

  /** @param {number} by */
  step(by) {
    const rows = listed(get().server, get().route), place = rows.indexOf(get().route.photo) + by;
    if (place >= 0 && place < rows.length) go({photo: rows[place]});
  }

  markGood() {
    const {open: truth, server, route} = get();
    if (!truth || get().opening >= 0 || !server.editable) return;
    const rows = listed(server, route), place = rows.indexOf(truth.id);
    check([truth.id], true);
    const next = [...rows.slice(place + 1), ...rows.slice(0, Math.max(0, place))].find((id) => !get().server.checked.includes(id) && server.masks.includes(id));
    if (next !== undefined) go({photo: next});
    else say("Every listed photo is checked.", true);
  }

  /** @param {boolean} on */
  async setPreview(on) {
    set({preview: on});
    if (on) await this.showPreview();
    else { this.stage.setTrial(new Uint8Array()); set({split: 0}); }
  }

  /** Show what the strokes so far would lead to, if that is known at once. */
  async showPreview() {
    const {server, open: truth} = get();
    if (!truth || !server.corrected.length || server.learning?.state === "learnt") return;
    // strokes that come meanwhile are seen by the next one
    if (this.previewing) { this.previewAgain = true; return; }
    this.previewing = true;
    try {
      const answer = await ask(`preview/${truth.id}`), labels = new Uint8Array(await answer.arrayBuffer());
      const seconds = Number(answer.headers.get("Seconds"));
      if (seconds < QUICK && get().open?.id === truth.id && get().preview) { this.stage.setTrial(labels, "preview"); set({split: 1}); }
      if (seconds >= QUICK && get().preview) {
        this.preview.checked = false;
        await this.setPreview(false);
        say(`A preview takes ${seconds.toFixed(1)} s here, so it is not made after every stroke; the button learns.`, true);
      }
    } finally {
      this.previewing = false;
    }
    if (this.previewAgain) { this.previewAgain = false; await this.showPreview(); }
  }

  async showDoubt() {
    const truth = get().open, on = this.doubt.checked;
    set({doubt: on});
    if (!on || !truth || this.stage.doubt) return;
    const data = new Uint8Array(await bytes(`doubt/${truth.id}`)), end = data.indexOf(10);
    const {grid} = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
    if (get().open?.id === truth.id) this.stage.setDoubt(grid, data.subarray(end + 1));
  }

  /** @param {State} now @param {State} before */
  update(now, before) {
    const {server, open: truth, opening} = now;
    for (const [name, one] of Object.entries(this.buttons || {})) one.setAttribute("aria-pressed", String(name === now.tool));
    this.size.value = String(now.size);
    this.opacity.value = String(now.opacity);
    this.split.value = String(now.split);
    const busy = opening >= 0 && opening !== truth?.id;
    this.name.textContent = busy ? `${server.photos[opening]} …` : truth ? truth.name : "";
    const rows = listed(server, now.route), place = truth ? rows.indexOf(truth.id) : -1, checked = server.checked.length;
    this.place.textContent = truth ? `${place >= 0 ? place + 1 : "–"} of ${rows.length}${server.editable ? ` · ${checked} of ${server.masks.length} checked` : ""}` : "";
    const good = Boolean(truth && server.checked.includes(truth.id));
    this.good.textContent = good ? "✓ Checked, next" : "✓ Good, next";
    this.good.hidden = !server.editable;
    this.side.inert = busy;
    if (truth && (truth !== before.open || server !== before.server || now.label !== before.label)) this.updateSide(now);
    if (truth && truth.id !== before.open?.id) {
      this.tools.corners = [];
      this.prepare();
      if (now.doubt) void guarded(() => this.showDoubt())();
      void guarded(() => this.showTrial())();
    } else if (truth && server.learning !== before.server?.learning) void guarded(() => this.showTrial())();
    if (server.learning !== before.server?.learning || truth?.id !== before.open?.id) this.updateLearning(now);
  }

  /** @param {State} now */
  updateSide(now) {
    const {server} = now, truth = /** @type {import("./types.js").Truth} */ (now.open), tags = server.tags[truth.id];
    this.canvas.setAttribute("aria-label", `${truth.name}: ${tags.join(", ") || "no tag"}. ${TOOLS[now.tool][2]}`);
    this.tags.replaceChildren(...tags.map((tag, place) => {
      const label = server.classes.indexOf(tag) + 1;
      const chip = button("", () => set({label}), {title: `paint ${tag} (${place + 1})`, "aria-pressed": now.label === label, disabled: !label});
      chip.append(...(label ? [swatch(label)] : []), tag);
      const remove = button("×", () => changeTags([truth.id], removing(tag), "tag removed"), {"aria-label": `Remove the tag ${tag}`, hidden: !server.editable});
      return make("span", {className: "chip"}, chip, remove);
    }));
    const others = server.classes.filter((name) => !tags.includes(name));
    this.add.replaceChildren(make("option", {value: "", textContent: "+ tag"}), ...others.map((name) => make("option", {value: name, textContent: name})));
    this.add.hidden = !server.editable;
    /** @type {[number, string][]} */
    const labels = [...tags.map((tag) => /** @type {[number, string]} */ ([server.classes.indexOf(tag) + 1, tag])).filter(([label]) => label), [0, "background"], [UNSURE, "unsure"],
      ...others.map((tag) => /** @type {[number, string]} */ ([server.classes.indexOf(tag) + 1, `${tag} (adds the tag)`]))];
    this.label.replaceChildren(...labels.map(([value, text]) => make("option", {value, textContent: text})));
    this.label.value = String(now.label);
    this.doubt.disabled = !truth.hasHead;
    const untagged = labelsIn(truth.mask).filter((label) => label > 0 && label < 254 && !tags.includes(nameOf(label)));
    this.legend.replaceChildren(...untagged.map((label) => make("span", {}, swatch(label), nameOf(label))));
  }

  async showTrial() {
    const {server, open: truth} = get(), learnt = server.learning?.state === "learnt";
    this.compare.hidden = !learnt;
    if (truth && !learnt && get().preview) { await this.showPreview(); return; }
    if (!truth || !learnt) { this.stage.setTrial(new Uint8Array()); set({split: 0}); return; }
    const labels = new Uint8Array(await bytes(`trial/0/${truth.id}`));
    if (get().open?.id !== truth.id) return;
    this.stage.setTrial(labels);
    set({split: 0.5});
  }

  /** @param {State} now */
  updateLearning(now) {
    const learning = now.server.learning || {state: "idle"}, busy = ["learning", "accepting"].includes(learning.state), refusal = now.open?.refusal || "";
    this.learning.hidden = !now.server.editable;
    this.progress.hidden = !busy;
    this.learn.disabled = busy || Boolean(refusal);
    this.previewRow.hidden = Boolean(refusal) || busy || learning.state === "learnt";
    this.learn.classList.toggle("main", learning.state !== "learnt");
    this.accept.hidden = !(learning.state === "learnt" || learning.trial);
    this.takeBack.hidden = this.accept.hidden;
    this.changed.replaceChildren();
    if (busy) {
      this.progress.max = learning.total;
      if (learning.done) this.progress.value = learning.done; else this.progress.removeAttribute("value");
      this.state.textContent = `${learning.what} ${learning.done ? `${learning.done} of ${learning.total}` : "…"}`;
    } else if (learning.state === "learnt") {
      const count = `${learning.photos} photo${learning.photos === 1 ? " changes" : "s change"}`;
      this.accept.textContent = `Accept: ${count}`;
      this.state.textContent = learning.photos ? "Those that change most, with the share of their area. Better or worse is told of photos that you have checked or corrected." : "No mask changes: correct more, or another photo.";
      for (const row of learning.changed.slice(0, 12)) {
        const better = row.better === undefined ? "" : row.better > 0 ? ", better" : row.better < 0 ? ", worse" : "";
        const share = row.share < 0.01 ? "below 1 %" : `${Math.round(100 * row.share)} %`;
        this.changed.append(button(`${now.server.photos[row.photo]}: ${share}${better}`, () => go({photo: row.photo})));
      }
    } else this.state.textContent = {accepted: "Accepted: the run has the new head and masks, as a new version.", failed: learning.why, idle: ""}[/** @type {"idle"} */ (learning.state)] || refusal;
    if (refusal) this.state.textContent = refusal;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const key = event.key, tool = Object.keys(TOOLS).find((name) => TOOLS[name][1] === key), {server, open: truth} = get();
    if (key === "Escape") { if (this.tools.corners.length) { this.tools.corners = []; this.stage.redraw(); } else go({photo: -1}); }
    else if (key === "Enter") { if (this.tools.corners.length && truth) this.tools.closing(truth); else this.markGood(); }
    else if (key === "ArrowRight" || key === "ArrowLeft") this.step(key === "ArrowRight" ? 1 : -1);
    else if (tool) this.choose(tool);
    else if (key === "[" || key === "]") resizeBrush(key === "]" ? 1.25 : 0.8);
    else if (key === "+" || key === "=") this.stage.zoom(1.5);
    else if (key === "-") this.stage.zoom(1 / 1.5);
    else if (key === "0") set({label: 0});
    else if (key === "u") set({label: UNSURE});
    else if (key === "h") set({hidden: true});
    else if (key === "d" && !this.doubt.disabled) this.doubt.click();
    else if (key === "y") this.why.toggle();
    else if (key >= "1" && key <= "9" && truth) {
      const tag = server.tags[truth.id][Number(key) - 1], label = tag ? server.classes.indexOf(tag) + 1 : 0;
      if (label) set({label});
    } else return false;
    return true;
  }

  /** Ctrl+Z takes back a corner of an open polygon first. */
  undo() { return this.tools.undoCorner(); }
}

