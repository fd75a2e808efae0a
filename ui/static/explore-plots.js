// The front of speed against waste, and the paper's threshold figure, drawn as SVG: all text is text.
import { axisValue, settingWords } from "./explore-results.js";
import { fixed, percent } from "./text.js";
import { t } from "./words.js";

const EDGE = { left: 52, right: 16, top: 30, bottom: 42 };

function nice(low, high) {
  const raw = (high - low) / 4 || 0.1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const first = Math.ceil(low / step - 1e-9) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, at) => Number((first + at * step).toPrecision(6)));
}

// A plane with two numeric axes.
class Plane {
  constructor(svg, { x, y, names }) {
    this.svg = svg;
    const box = svg.viewBox.baseVal;
    [this.width, this.height] = [box.width, box.height];
    [this.xs, this.ys] = [x, y];
    svg.replaceChildren();
    for (const value of nice(...y)) {
      this.add("line", { x1: EDGE.left, x2: this.width - EDGE.right, y1: this.y(value), y2: this.y(value), class: "ds-grid" });
      this.text(EDGE.left - 6, this.y(value) + 4, axisValue(value), "end");
    }
    for (const value of nice(...x)) this.text(this.x(value), this.height - EDGE.bottom + 16, axisValue(value), "middle");
    this.text((EDGE.left + this.width - EDGE.right) / 2, this.height - 6, names[0], "middle");
    this.text(4, 11, names[1], "start");
  }

  x(value) {
    const [low, high] = this.xs;
    return EDGE.left + ((value - low) / (high - low)) * (this.width - EDGE.left - EDGE.right);
  }

  y(value) {
    const [low, high] = this.ys;
    return this.height - EDGE.bottom - ((value - low) / (high - low)) * (this.height - EDGE.top - EDGE.bottom);
  }

  add(name, attributes, words) {
    const node = document.createElementNS(this.svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (words !== undefined) node.textContent = words;
    this.svg.append(node);
    return node;
  }

  text(x, y, words, anchor, className = "") {
    return this.add("text", { x, y, "text-anchor": anchor, class: className }, words);
  }

  line(points, className) {
    return this.add("polyline", { points: points.map(([x, y]) => `${this.x(x)},${this.y(y)}`).join(" "), class: className });
  }
}

const spread = (values, least) => {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = Math.max(least, 0.08 * (high - low));
  return [Math.max(0, low - pad), high + pad];
};

export function drawFront(svg, rows, chosen) {
  const known = rows.filter((row) => row.ratio != null && row.waste != null);
  if (known.length === 0) {
    svg.replaceChildren();
    svg.setAttribute("aria-label", t("No setting has a ratio yet."));
    return;
  }
  const ends = known.flatMap((row) => row.ratio_95 ?? [row.ratio]);
  const plane = new Plane(svg, { x: spread(known.map((row) => row.waste), 0.05), y: spread([...ends, 1], 0.05), names: [t("drafts verified in vain for each token"), t("speed, × plain decoding")] });
  plane.line([[plane.xs[0], 1], [plane.xs[1], 1]], "ds-level");
  plane.text(plane.width - EDGE.right, plane.y(1) - 5, t("plain decoding"), "end", "ds-level-name");
  const front = known.filter((row) => row.front).sort((a, b) => a.waste - b.waste);
  plane.line(front.map((row) => [row.waste, row.ratio]), "ds-ex-frontline");
  for (const row of [...known].sort((a, b) => Number(a.front) - Number(b.front))) {
    const x = plane.x(row.waste);
    if (row.ratio_95) plane.add("line", { x1: x, x2: x, y1: plane.y(row.ratio_95[0]), y2: plane.y(row.ratio_95[1]), class: row.front ? "ds-ex-bar" : "ds-ex-bar ds-ex-faint" });
    const dot = plane.add("circle", { cx: x, cy: plane.y(row.ratio), r: row.best ? 8 : 6, class: `ds-ex-dot${row.front ? " ds-ex-on" : ""}${row.id === chosen ? " ds-ex-is" : ""}`, tabindex: -1 });
    dot.dataset.choose = row.id;
    dot.dataset.tip = `${settingWords(row)}: ${t("ratio")} ${fixed(row.ratio)}${row.ratio_95 ? ` (${row.ratio_95.map((end) => fixed(end)).join("–")})` : ""}, ${t("waste")} ${fixed(row.waste)}, n ${row.n}`;
    if (row.best) plane.text(x, plane.y(row.ratio) - 12, "★", "middle", "ds-ex-star");
  }
  const best = known.find((row) => row.best);
  svg.setAttribute("aria-label", t("{n} {n:setting|settings}; the fastest: {setting}, {ratio} times plain decoding. The table has all of them.", { n: known.length, setting: best ? settingWords(best) : "–", ratio: fixed(best?.ratio) }));
}

const REST = ["drafter", "policy", "gamma", "l_min", "l_max", "temperature"];

// The rows of one line over the threshold: those of the chosen row's kind, else the largest such group.
export function thresholdRows(rows, chosen) {
  const groups = new Map();
  for (const row of rows.filter((it) => it.policy === "threshold" && it.tau != null)) {
    const key = JSON.stringify(REST.map((name) => row[name]));
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const mine = chosen && groups.get(JSON.stringify(REST.map((name) => chosen[name])));
  const group = mine?.length > 1 ? mine : [...groups.values()].sort((a, b) => b.length - a.length)[0] ?? [];
  return [...group].sort((a, b) => a.threshold - b.threshold);
}

function drawLines(svg, rows, lines, high, name, format) {
  const xs = [rows[0].threshold, rows.at(-1).threshold];
  const plane = new Plane(svg, { x: xs[1] > xs[0] ? xs : [xs[0], xs[0] + 1], y: [0, high], names: [t("threshold"), name] });
  lines.forEach(([key, title, className], at) => {
    const known = rows.filter((row) => row[key] != null);
    plane.line(known.map((row) => [row.threshold, row[key]]), `ds-ex-line ${className}`);
    for (const row of known) {
      const x = plane.x(row.threshold);
      const ends = row[`${key}_95`];
      if (ends) plane.add("line", { x1: x, x2: x, y1: plane.y(ends[0]), y2: plane.y(Math.min(high, ends[1])), class: `ds-ex-bar ${className}` });
      const dot = plane.add("circle", { cx: x, cy: plane.y(row[key]), r: 4.5, class: `ds-ex-mark ${className}` });
      dot.dataset.tip = `${title} ${format(row[key])}${ends ? ` (${ends.map((end) => format(end)).join(" to ")})` : ""}, ${t("threshold")} ${axisValue(row.threshold)}, n ${row.n}`;
      dot.dataset.choose = row.id;
    }
    const x = EDGE.left + 130 + at * 190;
    plane.add("line", { x1: x, x2: x + 22, y1: 7, y2: 7, class: `ds-ex-line ${className}` });
    plane.text(x + 28, 11, title, "start");
  });
  svg.setAttribute("aria-label", lines.map(([key, title]) => `${title}: ${rows.map((row) => `${axisValue(row.threshold)} → ${row[key] == null ? "–" : format(row[key])}`).join(", ")}`).join(". "));
}

export function drawThreshold(root, rows) {
  const svg = (name) => root.querySelector(`.ds-ex-threshold [data-plot="${name}"]`);
  drawLines(svg("shares"), rows, [["acceptance", t("acceptance rate"), "ds-ex-accepted"], ["wasted_share", t("rejected share"), "ds-ex-rejected"]], 1, t("share of verified"), percent);
  const top = Math.max(...rows.flatMap((row) => [row.tau, row.budget, row.tau_95?.[1] ?? 0, row.budget_95?.[1] ?? 0]));
  drawLines(svg("steps"), rows, [["tau", t("committed, τ"), "ds-ex-tau"], ["budget", t("in the target's pass"), "ds-ex-budget"]], top * 1.05, t("tokens per step"), (value) => fixed(value));
}
