// Line drawings over a number axis, as SVG: all text is text, colours come from the page's variables.

import { along, boxOf, freest } from "./places.js";

const BOX = { left: 46, right: 14, top: 14, bottom: 52, width: 520, height: 212 };

const nodesOf = (svg) => (name, attributes, text) => {
  const made = document.createElementNS(svg.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

// Round numbers from low to high, about so many.
export function ticks(low, high, about = 4) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough - 1e-12);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

const plain = (value) => (Math.abs(value) >= 10000 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(4))));

// series: [{ points: [[x, y or null]], className, dots, bars: [[x, low, high]] }]; marks: [{ x, y, words }]; empty: what to say where
// there is nothing to draw
export function drawLines(svg, { series, xTicks, x = [0, 1], y = null, logX = false, xName = "", level = null, marks = [], band = null, empty = "" }) {
  const node = nodesOf(svg);
  const known = series.flatMap(({ points, bars = [] }) => [...points.map(([, value]) => value), ...bars.flatMap(([, low, high]) => [low, high])]).filter((value) => Number.isFinite(value));
  const most = Math.max(...known, ...marks.map((mark) => mark.y), level?.y ?? -Infinity, band?.high ?? -Infinity);
  const [low, high] = y ?? [0, known.length || level || band ? most * 1.08 || 1 : 1];
  const [first, last] = x;
  const scale = logX ? Math.log2 : (value) => value;
  const px = (at) => BOX.left + ((scale(at) - scale(first)) / (scale(last) - scale(first) || 1)) * (BOX.width - BOX.left - BOX.right);
  const py = (value) => BOX.height - BOX.bottom - ((Math.min(high, Math.max(low, value)) - low) / (high - low || 1)) * (BOX.height - BOX.top - BOX.bottom);
  const all = [];
  const names = []; // above the lines
  const letter = parseFloat(getComputedStyle(svg).fontSize) * 0.54; // about the mean width of one
  const drawn = series.flatMap(({ points }) => along(points.filter(([, each]) => Number.isFinite(each)).map(([each, other]) => [px(each), py(other)])));
  const nothing = !(known.length || marks.length || level || band);
  if (band) all.push(node("rect", { x: px(first), y: py(band.high), width: px(last) - px(first), height: py(band.low) - py(band.high), class: "ds-shade" }));
  if (band) names.push(node("text", { x: px(last) - 6, y: py(band.high) + 15, "text-anchor": "end", class: "ds-level-name" }, band.words));
  for (const value of nothing ? [0] : ticks(low, high)) {
    all.push(node("line", { x1: BOX.left, x2: BOX.width - BOX.right, y1: py(value), y2: py(value), class: "ds-grid" }));
    all.push(node("text", { x: BOX.left - 6, y: py(value) + 4, "text-anchor": "end" }, plain(value)));
  }
  for (const at of xTicks ?? ticks(first, last, 6)) all.push(node("text", { x: px(at), y: BOX.height - 32, "text-anchor": "middle" }, plain(at)));
  all.push(node("text", { x: BOX.width - BOX.right, y: BOX.height - 10, "text-anchor": "end" }, xName));
  if (level) {
    all.push(node("line", { x1: BOX.left, x2: BOX.width - BOX.right, y1: py(level.y), y2: py(level.y), class: "ds-level" }));
    const [start, end] = [BOX.left + 4, BOX.width - BOX.right - 4];
    const feet = [py(level.y) - 6, py(level.y) + 15].filter((foot) => foot < BOX.height - BOX.bottom);
    const ends = [[start, "start"], [end, "end"], [(start + end) / 2, "middle"]];
    const places = feet.flatMap((foot) => ends.map(([left, anchor]) => ({ left, foot, anchor, box: boxOf(level.words, left, foot, anchor, letter) })));
    const { left, foot, anchor } = freest(places, drawn);
    names.push(node("text", { x: left, y: foot, "text-anchor": anchor, class: "ds-level-name" }, level.words));
  }
  for (const { points, className = "", dots = false, bars = [] } of series) {
    let run = [];
    const flush = () => {
      if (run.length > 1) all.push(node("polyline", { points: run.map(([at, value]) => `${px(at).toFixed(1)},${py(value).toFixed(1)}`).join(" "), class: `ds-curve-line ${className}` }));
      run = [];
    };
    for (const point of points) {
      if (Number.isFinite(point[1])) run.push(point);
      else flush();
    }
    flush();
    for (const [at, from, to] of bars) all.push(node("line", { x1: px(at), x2: px(at), y1: py(from), y2: py(to), class: `ds-curve-line ${className}` }));
    if (dots) for (const [at, value] of points) if (Number.isFinite(value)) all.push(node("circle", { cx: px(at), cy: py(value), r: 4, class: `ds-curve-dot ${className}` }));
  }
  for (const { x: at, y: value, words } of marks) {
    const sides = px(at) < BOX.width * 0.6 ? [1, -1] : [-1, 1];
    const places = [-8, 18].flatMap((down) => sides.map((side) => {
      const [wish, foot, anchor] = [px(at) + 10 * side, py(value) + down, side > 0 ? "start" : "end"];
      const box = boxOf(words, wish, foot, anchor, letter);
      const back = Math.max(0, BOX.left - box.left) - Math.max(0, box.right - BOX.width); // into the picture
      return { left: wish + back, foot, anchor, box: { ...box, left: box.left + back, right: box.right + back } };
    }));
    const { left, foot, anchor } = freest(places, drawn);
    all.push(node("circle", { cx: px(at), cy: py(value), r: 6, class: "ds-mark-now" }));
    names.push(node("text", { x: left, y: foot, "text-anchor": anchor, class: "ds-level-name ds-mark-words" }, words));
  }
  if (nothing) names.push(node("text", { x: (BOX.left + BOX.width - BOX.right) / 2, y: BOX.height / 2, "text-anchor": "middle" }, empty));
  svg.replaceChildren(...all, ...names);
}
