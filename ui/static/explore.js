// Explore: the form, what the server tells of a sweep, and what is done with a row.
import { drawFront, drawThreshold, thresholdRows } from "./explore-plots.js";
import { AXES, drawHeat, drawTable, fixedWords, settingWords } from "./explore-results.js";
import { own, tell } from "./address.js";
import { OPEN, watchSight } from "./sight.js";
import { openTab } from "./tabs.js";
import { make, setText } from "./text.js";
import { later, onLanguage, t } from "./words.js";

const PRESETS = {
  threshold: { policy: "threshold", l_min: "0", threshold: "0:0.9:0.1" },
  lengths: { policy: "threshold", l_min: "0", l_max: "2,4,7", threshold: "0,0.3,0.6,0.9" },
  policies: { policy: "fixed,threshold,banded,prefix,delayed" },
};
const MAX_BYTES = 2_000_000; // as dspark_core/sweep/read.py reads at most
const MOST_LINKED = 2000; // characters
const STATES = {
  waiting: later("waits for another visitor's sweep: {ahead} ahead"), running: later("measuring"), done: later("done"),
  stopped: later("stopped; what was measured stays"), failed: later("ended early; what was measured stays"), recorded: later("recorded, not measured now"),
};

const timeWords = (seconds) => (seconds >= 90 ? t("{n} min left", { n: Math.round(seconds / 60) }) : t("{n} s left", { n: Math.round(seconds) }));

function save(name, text, kind) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The rows of a sweep, and the report once it is over.
class SweepState {
  constructor() {
    this.name = null;
    this.seq = 0;
    this.state = "";
    this.error = "";
    this.rows = new Map();
    this.left = [];
    this.head = null;
    this.report = null;
    this.csv = null;
    this.chosen = null;
    this.progress = null;
  }

  get over() {
    return !["waiting", "running"].includes(this.state);
  }

  take(message) {
    if (message.state === "refused") {
      this.error = message.error;
      return;
    }
    if (message.sweep !== this.name) Object.assign(this, new SweepState(), { name: message.sweep });
    if (message.seq <= this.seq) return;
    this.seq = message.seq;
    this.state = message.state;
    this.error = message.error ?? "";
    for (const row of message.rows ?? []) this.rows.set(row.id, row);
    if (message.total) this.progress = message;
    this.ahead = message.ahead;
    this.head = message.head ?? this.head;
    this.left = message.left_out ?? this.left;
    if (!message.report) return;
    this.report = this.head = message.report;
    this.csv = message.csv;
    this.left = message.report.left_out;
    this.rows = new Map(message.report.rows.map((row) => [row.id, row]));
  }

  get list() {
    return [...this.rows.values()].sort((a, b) => a.id - b.id);
  }
}

function showHints(form, status) {
  if (!status?.info) return;
  const hints = { drafter: Object.keys(status.drafters ?? {}).filter((name) => name !== "none").join(","), gamma: `1:${status.info[3]}` };
  for (const [name, hint] of Object.entries(hints)) {
    const field = form.elements[name];
    if (field && field.placeholder !== hint) field.placeholder = hint;
  }
}

function drawProgress(at, sweep) {
  const { progress, state } = sweep;
  const bar = at("progress");
  bar.hidden = sweep.over || !progress;
  if (progress) bar.value = progress.done / progress.total;
  const parts = [];
  if (state) parts.push(t(STATES[state], { ahead: sweep.ahead }));
  if (state === "running" && progress) {
    parts.push(t("answer {done} of {total}", { done: progress.done, total: progress.total }));
    if (progress.left_s != null) parts.push(timeWords(progress.left_s));
    parts.push(progress.waits ? t("lets other answers go first") : progress.now);
  }
  setText(at(".ds-ex-now"), parts.join(" · "));
  at(".ds-ex-error").hidden = !sweep.error;
  setText(at(".ds-ex-error"), sweep.error);
  at(".ds-ex-go").disabled = !sweep.over;
  at(".ds-ex-stop").disabled = sweep.over;
}

function drawHead(at, sweep, rows) {
  const { head } = sweep;
  at(".ds-ex-results").hidden = !head;
  if (!head) return;
  const kind = sweep.state === "recorded" ? t("recorded") : t("measured");
  setText(at(".ds-ex-kind"), kind);
  at(".ds-ex-kind").dataset.kind = sweep.state === "recorded" ? "recorded" : "measured";
  const versions = Object.entries(head.versions).map(([name, value]) => `${name} ${value}`).join(", ");
  setText(at(".ds-ex-head"), `${head.model} · ${head.dtype} · ${head.device} · ${head.date} · ${versions}`);
  setText(at(".ds-ex-fixed"), fixedWords(rows));
  const beside = rows.filter((row) => row.beside > 0).length;
  at(".ds-ex-beside").hidden = beside === 0;
  setText(at(".ds-ex-beside"), t("⚠ In {n} {n:setting|settings} other answers ran on the engine at the same time: {n:its speed is|their speeds are} disturbed, and marked.", { n: beside }));
  const counts = new Map();
  for (const it of sweep.left) counts.set(it.reason, [...(counts.get(it.reason) ?? []), it]);
  const left = at(".ds-ex-left");
  left.hidden = counts.size === 0;
  setText(left.querySelector("summary"), t("{n} {n:combination was|combinations were} left out", { n: sweep.left.length }));
  left.querySelector("ul").replaceChildren(...[...counts].map(([reason, of]) => make("li", "", `${of.length} × ${reason} (${t("the first")}: ${settingWords(of[0])})`)));
}

function drawChosen(at, row, canApply) {
  at(".ds-ex-chosen").hidden = !row;
  if (!row) return;
  setText(at(".ds-ex-chosen h3"), t("Chosen: {setting}", { setting: settingWords(row) }));
  at(".ds-ex-apply").disabled = !canApply;
  const { vllm, sglang, notes } = row.launch;
  const lines = [["vLLM", vllm], ["SGLang", sglang || t("no counterpart")]].flatMap(([name, command]) => {
    const text = make("dd");
    text.append(make("code", "", command));
    return [make("dt", "", name), text];
  });
  at(".ds-ex-flags").replaceChildren(...lines);
  at(".ds-ex-notes").replaceChildren(...notes.map((note) => make("li", "", note)));
}

export function mountExplore(root, store) {
  const at = (selector) => root.querySelector(selector);
  const form = at("form");
  const sweep = new SweepState();
  const heat = { x: "", y: "", metric: "ratio", wanted: {} };
  const order = { by: "ratio", down: true };
  let applied = null;
  let dirty = true;

  // The form's fields stand in the address: a grid can be linked. Only what differs from an empty form is told.
  const fields = [...form.elements].filter(({ name, type }) => name && ["text", "number", "textarea"].includes(type));
  const follow = () => {
    for (const field of fields) tell(`explore_${field.name}`, field.value === field.defaultValue || field.value.length > MOST_LINKED ? null : field.value);
  };
  const fill = (field, text) => {
    field.value = text;
    if (field.value || !text.trim()) return;
    field.value = field.defaultValue; // a field of numbers is empty after any other text
    sweep.error = t("{name} is “{text}” in the address; it must be a number.", { name: `explore_${field.name}`, text: text.slice(0, 40) });
    tell(`explore_${field.name}`, null);
    redraw();
  };
  form.addEventListener("input", follow);

  const send = (name, body) => store.ports.get(`explore-${name}`)?.(JSON.stringify(body));
  const redraw = () => {
    dirty = true;
    store.changed();
  };
  const choose = (id) => {
    sweep.chosen = id;
    redraw();
  };

  for (const field of fields) own(`explore_${field.name}`, (text) => fill(field, text));

  const open = watchSight(root, redraw, OPEN);
  const draw = () => {
    if (!open()) return; // another tab
    showHints(form, store.status);
    if (!dirty) return;
    dirty = false;
    const rows = sweep.list;
    drawProgress(at, sweep);
    drawHead(at, sweep, rows);
    if (!sweep.head) return;
    const row = sweep.rows.get(sweep.chosen) ?? null;
    drawTable(at(".ds-ex-table"), rows, order, sweep.chosen);
    drawChosen(at, row, Boolean(store.status?.info));
    for (const button of root.querySelectorAll("[data-export]")) button.disabled = !sweep.report;
    drawHeat(root, rows, heat, sweep.chosen);
    drawFront(at(".ds-ex-front svg"), rows, sweep.chosen);
    const group = thresholdRows(rows, row);
    at(".ds-ex-threshold").hidden = group.length < 2;
    if (group.length >= 2) {
      setText(at(".ds-ex-for"), fixedWords(group));
      drawThreshold(root, group);
    }
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (at(".ds-ex-go").disabled) return;
    sweep.error = "";
    const data = new FormData(form);
    const axes = Object.fromEntries(AXES.map(([name]) => [name, data.get(name)]));
    const numbers = Object.fromEntries(["limit", "tokens", "repeats"].map((name) => [name, Number(data.get(name))]));
    send("start", { axes, prompts: data.get("prompts"), sets: data.getAll("set"), ...numbers, id: Math.random() });
    redraw();
  });
  form.addEventListener("keydown", (event) => event.key === "Escape" && !sweep.over && at(".ds-ex-stop").click());
  at(".ds-ex-stop").addEventListener("click", () => send("stop", { id: Math.random() }));
  at(".ds-ex-presets").addEventListener("click", (event) => {
    const preset = PRESETS[event.target.closest("[data-preset]")?.dataset.preset];
    if (!preset) return;
    for (const [name] of AXES) form.elements[name].value = preset[name] ?? "";
    if (preset === PRESETS.policies) form.elements.drafter.value = form.elements.drafter.placeholder;
    follow();
    form.elements.threshold.focus();
  });
  const file = at("input[type=file]");
  at(".ds-ex-file").addEventListener("click", () => file.click());
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    file.value = "";
    if (!chosen) return;
    if (chosen.size > MAX_BYTES) sweep.error = t("This file is too large for a sweep: at most {size} MB are read. Open a JSON file that Explore has exported.", { size: MAX_BYTES / 1e6 });
    else send("open", { file: await chosen.text(), id: Math.random() });
    redraw();
  });

  const table = at(".ds-ex-table");
  table.addEventListener("click", (event) => {
    const by = event.target.closest("[data-by]")?.dataset.by;
    if (by) {
      Object.assign(order, { by, down: order.by === by ? !order.down : true });
      return redraw();
    }
    const id = event.target.closest("tr[data-id]")?.dataset.id;
    if (id !== undefined) choose(Number(id));
  });
  table.addEventListener("keydown", (event) => {
    const line = event.target.closest("tr[data-id]");
    if (!line) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(Number(line.dataset.id));
    }
    const next = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling }[event.key];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
  root.addEventListener("click", (event) => {
    const id = event.target.closest("[data-choose]")?.dataset.choose;
    if (id !== undefined) choose(Number(id));
    const kind = event.target.closest("[data-export]")?.dataset.export;
    if (kind === "csv") save("sweep.csv", sweep.csv, "text/csv");
    if (kind === "json") save("sweep.json", JSON.stringify(sweep.report), "application/json");
  });
  for (const select of root.querySelectorAll("[data-heat]")) {
    select.addEventListener("change", () => {
      if (select.dataset.heat === "metric") heat.metric = select.value;
      else heat.wanted[select.dataset.heat] = select.value;
      redraw();
    });
  }
  at(".ds-ex-apply").addEventListener("click", () => {
    const row = sweep.rows.get(sweep.chosen);
    if (row) send("apply", { ...Object.fromEntries(AXES.map(([name]) => [name, row[name]])), id: Math.random() });
  });

  store.subscribe("explore", (message) => {
    if (message.applied !== undefined) {
      if (message.id !== applied) openTab("chat");
      applied = message.id;
      return;
    }
    sweep.take(message);
    redraw();
  });
  onLanguage(redraw);
  store.listen(draw);
}

