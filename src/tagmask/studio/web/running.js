// Step 2: from tags to masks, with the plan and how far it is.

import {post} from "./api.js";
import {button, guarded, make} from "./dom.js";
import {outbox} from "./outbox.js";
import {go} from "./route.js";
import {get, watch} from "./store.js";

const TITLES = /** @type {Record<string, string>} */ ({train: "look at every photo", seeds: "find the tags in the photos", pseudo: "label pixels", segment: "learn from the labels", predict: "make the masks", check: "check them", score: "compare with true masks", report: "write the report"});

export class Running {
  /** @param {any} root */
  constructor(root) {
    this.intro = make("p", {id: "plan-intro"});
    this.start = button("Make masks", guarded(async () => { await outbox.empty(); await post("run"); }), {className: "main big", id: "start-run"});
    this.stopButton = button("Stop", guarded(() => post("stop")), {id: "stop-run"});
    this.state = make("p", {id: "run-state", role: "status"});
    this.stages = make("ol", {className: "stages", id: "stages"});
    this.log = make("pre", {id: "run-log", tabIndex: 0, "aria-label": "What the run prints"});
    this.verdicts = make("ul", {id: "run-verdicts"});
    this.next = button("Review the masks →", () => go({step: "review", photo: -1, show: "", tag: "", q: "", order: ""}), {className: "main", id: "to-review"});
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "Make masks"}), this.intro, make("div", {className: "row"}, this.start, this.stopButton, this.next),
      this.state, this.stages, this.verdicts, make("details", {open: true}, make("summary", {textContent: "Plan and messages"}), this.log)));
    this.stop = watch(["server"], () => this.update());
    this.update();
  }

  close() { this.stop(); }

  update() {
    const {server} = get(), {job} = server, running = job.state === "running", tagged = server.tags.filter((tags) => tags.length).length;
    const kinds = new Set(server.tags.flat()).size;
    this.intro.textContent = server.mode === "folder" ? `${tagged} of ${server.photos.length} photos have tags (${kinds} different ones). Masks are made of the tagged ones, in ${server.out}. The plan with its times comes first; it can be stopped and goes on where it was.`
      : `This page was opened on a run. \`tagmask run --config ${server.out}/config.toml\` does what is left of it.`;
    this.start.hidden = server.mode !== "folder" || running;
    this.start.disabled = !tagged;
    this.start.textContent = job.state === "stopped" || job.state === "failed" ? "Go on" : server.masks.length ? "Make masks again" : "Make masks";
    this.stopButton.hidden = !running;
    this.next.hidden = running || !server.masks.length;
    this.state.textContent = {idle: "", running: "It runs. You can go on tagging or looking meanwhile.", done: "Done.", stopped: "Stopped; what is finished stays.", failed: job.why}[/** @type {"idle"} */ (job.state)] || "";
    this.stages.replaceChildren(...job.stages.map((/** @type {any} */ stage, /** @type {number} */ k) => {
      const now = running && k === job.stages.length - 1 && !stage.is_done;
      const bar = make("progress", {max: stage.total || 1, "aria-label": `Progress of ${stage.name}`});
      if (stage.done) bar.value = stage.done;
      const text = now ? (stage.total ? `${stage.done} of ${stage.total}${stage.left ? `, ${stage.left} left` : ""}` : "…") : stage.note || "done";
      return make("li", {className: now ? "now" : "done"}, make("strong", {textContent: TITLES[stage.name] || stage.name}), now ? bar : " ✓ ", make("span", {className: "soft", textContent: ` ${text}`}));
    }));
    this.log.textContent = job.log.join("\n");
    this.log.parentElement.hidden = !job.log.length;
    this.verdicts.replaceChildren(...(running ? [] : server.verdicts).map((line) => make("li", {textContent: line})));
  }

  /** @param {KeyboardEvent} _event */
  key(_event) { return false; }

  undo() { return false; }
}
