// Step 2: from tags to masks, with the plan and how far it is.

import {post} from "./api.js";
import {button, guarded, make} from "./dom.js";
import {outbox} from "./outbox.js";
import {go} from "./route.js";
import {get, watch} from "./store.js";

const TITLES = /** @type {Record<string, string>} */ ({train: "Look at every photo", seeds: "Find the tags in the photos", affinity: "Learn what belongs together", pseudo: "Label pixels", segment: "Learn from the labels", predict: "Make the masks", check: "Check them", score: "Compare with true masks", report: "Write the report"});

export class Running {
  /** @param {any} root */
  constructor(root) {
    this.intro = make("p", {id: "plan-intro"});
    this.start = button("Make masks", guarded(async () => { await outbox.empty(); await post("run"); }), {id: "start-run"});
    this.stopButton = button("Stop", guarded(() => post("stop")), {id: "stop-run", className: "big"});
    this.state = make("p", {id: "run-state", role: "status"});
    this.stages = make("ol", {className: "stages", id: "stages"});
    this.log = make("pre", {id: "run-log", tabIndex: 0, "aria-label": "What the run prints"});
    this.details = make("details", {}, make("summary", {textContent: "All messages"}), this.log);
    this.verdictTitle = make("h3", {textContent: "What the self-check says"});
    this.verdicts = make("ul", {id: "run-verdicts"});
    this.next = button("Review the masks →", () => go({step: "review", photo: -1, show: "", tag: "", q: "", order: ""}), {className: "main big", id: "to-review"});
    root.replaceChildren(make("div", {className: "page"}, make("h2", {textContent: "Make masks"}), this.intro, make("div", {className: "row"}, this.next, this.start, this.stopButton),
      this.state, this.stages, this.verdictTitle, this.verdicts, this.details));
    this.stop = watch(["server"], () => this.update());
    this.update();
  }

  close() { this.stop(); }

  update() {
    const {server} = get(), {job} = server, running = job.state === "running", tagged = server.tags.filter((tags) => tags.length).length;
    const kinds = new Set(server.tags.flat()).size, made = Boolean(server.masks.length) && !running;
    this.intro.textContent = server.mode === "folder" ? `${tagged} of ${server.photos.length} photos have tags, ${kinds} different ones. Photos without a tag are left out. Everything is written to ${server.out}; you can stop it, and it goes on where it was.`
      : `This page was opened on a run. \`tagmask run --config ${server.out}/config.toml\` does what is left of it.`;
    this.start.hidden = server.mode !== "folder" || running;
    this.start.disabled = !tagged;
    this.start.className = made ? "" : "main big";
    this.start.textContent = job.state === "stopped" || job.state === "failed" ? "Go on" : server.masks.length ? "Make them again" : "Make masks";
    this.stopButton.hidden = !running;
    this.next.hidden = !made;
    const together = job.together ? ` Estimated time in all: ${job.together}.` : " First it finds out how long it will take.";
    this.state.textContent = {idle: "", running: `It runs.${together} You can go on tagging or looking meanwhile.`, done: "Done.", stopped: "Stopped; what is finished stays.", failed: `It could not go on: ${job.why}`}[/** @type {"idle"} */ (job.state)] || "";
    this.showStages(job, running);
    this.log.textContent = job.log.join("\n");
    this.details.hidden = !job.log.length;
    if (job.state === "failed") this.details.open = true;
    this.verdicts.replaceChildren(...(running ? [] : server.verdicts).map((line) => make("li", {textContent: line})));
    this.verdictTitle.hidden = running || !server.verdicts.length;
  }

  /**
   * A line for each stage: done, under way with what is left, or to come with its estimate.
   * @param {any} job @param {boolean} running
   */
  showStages(job, running) {
    const begun = new Set(job.stages.map((/** @type {any} */ stage) => stage.name));
    const rows = job.stages.map((/** @type {any} */ stage, /** @type {number} */ k) => {
      const now = running && k === job.stages.length - 1 && !stage.is_done, ended = !now && (running || job.state === "done" || k < job.stages.length - 1);
      const bar = make("progress", {max: stage.total || 1, "aria-label": `Progress of ${stage.name}`});
      if (stage.done) bar.value = stage.done;
      const about = (job.plan || []).find((/** @type {any} */ row) => row.name === stage.name)?.about;
      const text = now ? (stage.total ? `${stage.done} of ${stage.total}${stage.left ? `, ${stage.left} left` : ""}` : about ? `about ${about}` : "…") : ended ? "done" : "not finished";
      return make("li", {}, make("span", {className: "mark", textContent: now ? "▸" : ended ? "✓" : "·"}), make("strong", {textContent: TITLES[stage.name] || stage.name}), now ? bar : make("span"), make("span", {className: "soft", textContent: text}));
    });
    for (const row of running ? job.plan || [] : []) {
      if (begun.has(row.name)) continue;
      rows.push(make("li", {className: "todo"}, make("span", {className: "mark", textContent: "·"}), make("span", {textContent: TITLES[row.name] || row.name}), make("span"),
        make("span", {className: "soft", textContent: [row.amount, row.about ? `about ${row.about}` : ""].filter(Boolean).join(", ")})));
    }
    this.stages.replaceChildren(...rows);
    this.stages.hidden = !rows.length;
  }

  /** @param {KeyboardEvent} _event */
  key(_event) { return false; }

  undo() { return false; }
}
