// The tab Load: live charts of a run, the step curve, and the article's table beside what was measured.
import { drawLines } from "./lines.js";
import { OPEN, watchSight } from "./sight.js";
import { fixed, make, percent, setText } from "./text.js";
import { currentLanguage, later, t } from "./words.js";

const WINDOW_S = 60;
const MOST_MOMENTS = 300;
const WALKED = [1, 2, 4, 8, 16, 32];
const RUNNING = "running";
const STATUS_LATE_MS = 2000; // so long after its end the server's last word may still be of a run
const PLAIN = "plain";

// What the browser keeps of runs: moments of the latest one, and of all of them what was measured last.
export class LoadState {
  constructor() {
    this.machine = null;
    this.note = null;
    this.last = null; // message
    this.moments = [];
    this.cells = new Map(); // lane -> users -> figures
    this.lane = null; // the method of the table
    this.endedAt = -Infinity; // when the latest run of this page did
  }

  take(message) {
    if (message.run === this.last?.run && message.seq < this.last.seq) return;
    if (message.run !== this.last?.run) this.moments = [];
    if (this.running && message.state !== RUNNING) this.endedAt = performance.now();
    this.last = message;
    const newest = this.moments.at(-1)?.i ?? 0;
    this.moments.push(...message.moments.filter((moment) => moment.i > newest));
    if (this.moments.length > MOST_MOMENTS) this.moments.splice(0, this.moments.length - MOST_MOMENTS);
    if (message.lane !== PLAIN || this.lane === null) this.lane = message.lane;
    for (const cell of message.cells) {
      if (!this.cells.has(cell.lane)) this.cells.set(cell.lane, new Map());
      const of = this.cells.get(cell.lane);
      const had = of.get(cell.users);
      if (cell.over.plain || !had?.over.plain || had.run !== message.run) of.set(cell.users, { ...cell, run: message.run });
    }
  }

  get running() {
    return this.last?.state === RUNNING;
  }

  // Whether the run that the server tells of may be this page's own.
  get mayBeOwn() {
    return this.running || performance.now() < this.endedAt + STATUS_LATE_MS;
  }

  of(lane) {
    return [...(this.cells.get(lane)?.values() ?? [])].sort((one, other) => one.users - other.users);
  }
}

const interval = (value, range, digits, unit = "") => {
  if (value === null || value === undefined) return "–";
  return `${value.toFixed(digits)}${unit}${range ? ` (${range[0].toFixed(digits)}–${range[1].toFixed(digits)})` : ""}`;
};

const gain = (over) => {
  if (!over || over.throughput === null) return "–";
  const sign = (ratio) => `${ratio >= 1 ? "+" : "−"}${Math.abs(Math.round((ratio - 1) * 100))}`;
  const range = over.throughput_interval;
  return `${sign(over.throughput)} %${range ? ` (${sign(range[0])} … ${sign(range[1])})` : ""}`;
};

function stateWords(state, status) {
  const { last } = state;
  const other = status?.load_run && !state.mayBeOwn ? t("A load run with {users} {users:user|users} goes on, started by another visitor. Its users share the engine with everybody; yours can begin when it has ended.", { users: status.load_run.users }) : "";
  if (other) return other;
  if (!last) return t("Nothing measured yet. Start lets virtual users ask the built-in prompts, each the next one when the last answer has ended. You can chat beside them: the last places stay free for visitors.");
  const words = { lane: last.lane, users: last.users, place: last.place[0], parts: last.place[1], failure: last.failure };
  if (last.state === RUNNING && last.walking) return t("Step {place} of {parts}: {users} {users:user|users}, {lane}.", words);
  if (last.state === RUNNING) return t("{users} {users:user asks|users ask}: {lane}. Move the slider, or chat beside them.", words);
  if (last.state === "failed") return t("The run ended early: {failure}", words);
  return last.state === "done" ? t("The walk is done; the table below has what was measured.") : t("Stopped; what was measured stays below.");
}

const HEADS = [
  [later("users at once")], [later("article: gain"), later("published")], [later("gain over plain"), later("measured")], [later("tokens/s"), later("measured")], [later("plain tokens/s"), later("measured")],
  [later("speed for a user"), later("measured")], [later("budget"), later("measured")], [later("wasted"), later("measured")], [later("batch"), later("measured")], [later("answers"), "n"],
];

function bandOf(users, published) {
  return published.findIndex(([from, to]) => users >= from && (to === null || users <= to));
}

const bandName = ([from, to]) => (to === null ? `> ${from - 1}` : from === 1 ? `< ${to + 1}` : `${from}–${to}`);

function rows(state) {
  const published = state.machine?.published ?? [];
  const plain = new Map(state.of(PLAIN).map((cell) => [cell.users, cell]));
  const measured = new Map((state.lane ? state.of(state.lane) : []).map((cell) => [cell.users, cell]));
  const users = [...new Set([...WALKED, ...measured.keys(), ...plain.keys()])].sort((one, other) => one - other);
  const found = [];
  let before = -1;
  for (const n of users) {
    const band = bandOf(n, published);
    const claim = band < 0 ? "–" : `+${published[band][2]}–${published[band][3]} %`;
    const [cell, base] = [measured.get(n), plain.get(n)];
    found.push([
      String(n), band !== before ? `${claim} (${bandName(published[band] ?? [n, n])})` : "″", gain(cell?.over.plain), interval(cell?.throughput, cell?.throughput_interval, 1),
      interval(base?.throughput, base?.throughput_interval, 1), interval(cell?.user_tokens_per_s, cell?.user_tokens_per_s_interval, 1),
      interval(cell?.budget, cell?.budget_interval, 2), percent(cell?.wasted_share), fixed(cell?.batch, 1), cell ? String(cell.answers) : "–",
    ]);
    before = band;
  }
  const rest = published[before + 1];
  if (rest) found.push([bandName(rest), `+${rest[2]}–${rest[3]} %`, t("not measured here: at most 32 users"), ...Array(HEADS.length - 3).fill("")]);
  return found;
}

export function mountLoadTab(root, store, press) {
  const state = new LoadState();
  store.load = state; // the tab Cost takes its figures from here
  store.subscribe("load", (message) => state.take(message));
  store.subscribe("load_machine", (message) => (state.machine = message));
  store.subscribe("load_note", (message) => (state.note = message));
  const at = (selector) => root.querySelector(selector);
  const charts = Object.fromEntries([...root.querySelectorAll("[data-chart]")].map((svg) => [svg.dataset.chart, svg]));
  const [thead, tbody] = [at(".ds-load-table thead"), at(".ds-load-table tbody")];
  let asked = null; // about the machine, when it knew so much of its step times
  let drawnRows = "";

  const head = () => {
    const line = make("tr");
    for (const [name, label] of HEADS) {
      const cell = make("th", "", t(name));
      cell.scope = "col";
      if (label) cell.append(make("span", `ds-label ds-label-${label}`, label === "n" ? "n" : t(label)));
      line.append(cell);
    }
    thead.replaceChildren(line);
  };

  const drawTable = () => {
    const all = rows(state);
    const key = JSON.stringify([all, currentLanguage()]);
    if (key === drawnRows) return;
    drawnRows = key;
    head();
    tbody.replaceChildren(...all.map((cells) => {
      const line = make("tr");
      cells.forEach((text, place) => {
        const cell = make(place ? "td" : "th", "", text);
        if (!place) cell.scope = "row";
        line.append(cell);
      });
      return line;
    }));
    setText(at(".ds-load-lane"), state.lane ? t("measured: {lane}", { lane: state.lane }) : t("nothing measured yet"));
  };

  const time = () => {
    const end = Math.max(WINDOW_S, state.moments.at(-1)?.t ?? 0);
    return { x: [end - WINDOW_S, end], xName: t("seconds since the start"), empty: t("nothing measured yet") };
  };

  const line = (name) => {
    const from = (state.moments.at(-1)?.t ?? 0) - WINDOW_S;
    return state.moments.filter((moment) => moment.t >= from).map((moment) => [moment.t, moment[name]]);
  };

  const say = (svg, words) => svg.setAttribute("aria-label", words);

  const drawLive = () => {
    const now = state.moments.at(-1);
    for (const box of root.querySelectorAll("[data-now]")) {
      const name = box.dataset.now;
      const value = state.running ? now?.[name] : null;
      const text = name === "wasted_share" ? percent(value) : name === "waiting" ? (value ?? null) === null ? "–" : String(value) : fixed(value, name === "budget" ? 2 : 1);
      setText(box.querySelector(".ds-big"), text);
    }
    drawLines(charts.throughput, { ...time(), series: [{ points: line("throughput"), className: "ds-c-main" }] });
    drawLines(charts.speed, { ...time(), series: [{ points: line("user_tokens_per_s"), className: "ds-c-main", dots: false }] });
    drawLines(charts.crowd, { ...time(), series: [{ points: line("users"), className: "ds-c-users" }, { points: line("batch"), className: "ds-c-main" }, { points: line("waiting"), className: "ds-c-waiting" }] });
    drawLines(charts.budget, { ...time(), series: [{ points: line("budget"), className: "ds-c-main" }] });
    const said = now ? { throughput: fixed(now.throughput, 1), speed: fixed(now.user_tokens_per_s, 1), users: now.users, batch: fixed(now.batch, 1), waiting: now.waiting, budget: fixed(now.budget) } : null;
    say(charts.throughput, said ? t("Throughput {throughput} tokens/s with {users} {users:user|users}", said) : t("nothing measured yet"));
    say(charts.speed, said ? t("Speed for a user {speed} tokens/s with {users} {users:user|users}", said) : t("nothing measured yet"));
    say(charts.crowd, said ? t("{users} {users:user|users}, batch {batch}, {waiting} waiting", said) : t("nothing measured yet"));
    say(charts.budget, said ? t("Budget {budget} tokens a request with {users} {users:user|users}", said) : t("nothing measured yet"));
  };

  const drawMeasured = () => {
    const cells = state.lane ? state.of(state.lane) : [];
    const plain = state.lane === PLAIN ? [] : state.of(PLAIN);
    const budget = (of, className) => ({ points: of.map((cell) => [cell.users, cell.budget]), bars: of.filter((cell) => cell.budget_interval).map((cell) => [cell.users, ...cell.budget_interval]), className, dots: true });
    drawLines(charts.figure8, { x: [1, 32], xTicks: WALKED, logX: true, xName: t("users at once"), series: [budget(cells, "ds-c-main"), budget(plain, "ds-c-plain")], band: { low: 4, high: 6, words: t("light load, published: 4–6") }, level: { y: 1, words: t("1: no drafts verified") } });
    say(charts.figure8, cells.length ? cells.map((cell) => t("{users} {users:user|users}: {budget}", { users: cell.users, budget: fixed(cell.budget) })).join("; ") : t("nothing measured yet"));
    const curve = state.machine?.curve ?? [];
    const now = state.running ? state.moments.at(-1) : null;
    const dots = [...cells, ...plain].filter((cell) => cell.pass_s).map((cell) => [cell.pass_tokens, 1 / cell.pass_s]).sort((one, other) => one[0] - other[0]);
    const most = Math.max(64, ...curve.map(([tokens]) => tokens), ...dots.map(([tokens]) => tokens), now?.pass_tokens ?? 0);
    const marks = now?.pass_s ? [{ x: Math.max(1, now.pass_tokens), y: 1 / now.pass_s, words: t("now: {tokens} {tokens:token|tokens}, {sps}/s", { tokens: now.pass_tokens.toFixed(0), sps: (1 / now.pass_s).toFixed(1) }) }] : [];
    const powers = [...Array(11).keys()].map((n) => 2 ** n).filter((n) => n <= most);
    drawLines(charts.sps, { x: [1, most], xTicks: powers, logX: true, xName: t("tokens in the pass, B"), empty: t("nothing measured yet"), series: [{ points: curve.map(([tokens, seconds]) => [tokens, 1 / seconds]), className: "ds-c-main" }, { points: dots.flatMap((dot) => [dot, [dot[0], null]]), className: "ds-c-plain", dots: true }], marks });
    say(charts.sps, marks[0]?.words ?? (curve.length ? t("The profile of this machine") : t("nothing measured yet")));
    const note = (state.machine?.curve_note ?? "").replace(/\.$/, ""); // a sentence of ours ends with it
    setText(at("[data-curve-note]"), curve.length ? t("Line: {note}", { note }) : t("No line: {note}. The dots need none.", { note: store.status?.profiling || note || t("waits for the model") }));
  };

  let seen = "";
  const open = watchSight(root, () => store.changed(), OPEN);
  const draw = () => {
    const { status } = store;
    if (status?.phase === "ready" && asked !== status.step_curve) {
      asked = status.step_curve;
      press();
    }
    const note = at(".ds-load-note");
    note.hidden = !state.note?.text;
    setText(note, state.note?.text ?? "");
    note.dataset.level = state.note?.level ?? "info";
    setText(at(".ds-load-state"), stateWords(state, status));
    if (!open()) return; // another tab is open
    const key = `${state.last?.run}:${state.last?.seq}:${state.last?.state}:${state.machine?.curve_note}:${store.status?.profiling}:${document.body.className}:${currentLanguage()}`;
    if (key === seen) return;
    seen = key;
    drawLive();
    drawMeasured();
    drawTable();
  };
  store.listen(draw);
}
