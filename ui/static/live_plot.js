// Draws the live charts on a canvas while an answer runs: the same figures as Plotly's, which takes ten times as long for
// each drawing. Of Plotly's language it knows what the charts use.
import { make } from "./text.js";

const EDGES = { left: 44, right: 12, bottom: 40, second: 40 };
const ABOVE = 17; // the legend, whose rows are so high:
const ROW = 19;
const SWATCH = 30;
const DASHES = { dot: [2, 2], dash: [6, 6] };
const MARKS = {
  circle: (g, x, y, r) => g.arc(x, y, r, 0, 2 * Math.PI),
  "circle-open": (g, x, y, r) => g.arc(x, y, r, 0, 2 * Math.PI),
  "diamond-open": (g, x, y, r) => [[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y], [x, y - 1.3 * r]].forEach(([a, b], i) => (i ? g.lineTo(a, b) : g.moveTo(a, b))),
  x: (g, x, y, r) => {
    g.moveTo(x - r, y - r);
    g.lineTo(x + r, y + r);
    g.moveTo(x + r, y - r);
    g.lineTo(x - r, y + r);
  },
};

// Steps of 1, 2 or 5 times a power of ten, at most `most` of them.
function steps([low, high], most) {
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((times) => times * power >= raw) * power;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) => (first + i) * step);
}

function ticksOf(axis, range, most) {
  if (axis.tickvals) return axis.tickvals;
  const all = axis.dtick ? Array.from({ length: Math.floor(range[1] / axis.dtick) + 1 }, (_, i) => i * axis.dtick) : steps(range, most);
  return all.filter((value) => value >= range[0] && value <= range[1]);
}

function extent(values, pad = 0) {
  const all = values.flat().filter((value) => value !== null);
  return all.length ? [Math.min(...all) - pad, Math.max(...all) + pad] : [0, 1];
}

// The corners of a line in steps, as Plotly's shapes "hv" and "hvh" have them.
function corners(points, shape) {
  if (shape === "hv") return points.flatMap(([x, y], i) => (i ? [[x, points[i - 1][1]], [x, y]] : [[x, y]]));
  if (shape !== "hvh") return points;
  return points.flatMap(([x, y], i) => {
    if (!i) return [[x, y]];
    const middle = (points[i - 1][0] + x) / 2;
    return [[middle, points[i - 1][1]], [middle, y], [x, y]];
  });
}

export class LivePlot {
  // Lies over `box`, Plotly's element, while it is shown.
  constructor(box) {
    this.frame = make("div", "ds-frame");
    this.canvas = make("canvas", "ds-live-plot");
    this.canvas.setAttribute("aria-hidden", "true"); // the box below has the words
    this.canvas.hidden = true;
    box.replaceWith(this.frame);
    this.frame.append(box, this.canvas);
    this.width = 0;
    new ResizeObserver(([entry]) => {
      this.width = Math.round(entry.contentRect.width);
    }).observe(this.frame);
  }

  hide() {
    this.canvas.hidden = true;
  }

  draw({ traces, layout }, ground) {
    if (!this.width) return;
    const seen = traces.filter((trace) => trace.visible !== false);
    this.size(layout.height);
    const g = this.canvas.getContext("2d", { alpha: false });
    const scale = devicePixelRatio;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.fillStyle = ground;
    g.fillRect(0, 0, this.width, layout.height);
    g.textBaseline = "middle";
    const top = ABOVE + ROW * this.legend(g, seen, layout) + 6;
    this.area = { left: EDGES.left, top, right: this.width - (layout.yaxis2 ? EDGES.second : EDGES.right), bottom: layout.height - EDGES.bottom };
    const xs = layout.xaxis.range ?? extent(seen.map((trace) => trace.x), 0.6);
    const ys = layout.yaxis.range;
    const second = layout.yaxis2 && [0, extent(seen.filter((trace) => trace.yaxis === "y2").map((trace) => trace.y))[1] * 1.05 || 1];
    const { left, right, bottom } = this.area;
    this.x = (value) => left + ((value - xs[0]) / (xs[1] - xs[0])) * (right - left);
    const upwards = (range) => (value) => bottom - ((value - range[0]) / (range[1] - range[0])) * (bottom - top);
    this.y = upwards(ys);
    this.shapes(g, layout.shapes ?? []);
    this.axes(g, layout, xs, ys, second && upwards(second), second);
    g.save();
    g.beginPath();
    g.rect(left - 6, top - 6, right - left + 12, bottom - top + 12);
    g.clip();
    let before = [];
    for (const trace of seen) before = this.trace(g, trace, trace.yaxis === "y2" ? upwards(second) : this.y, before);
    g.restore();
    this.words(g, layout.annotations ?? [], layout);
    this.canvas.hidden = false;
  }

  size(height) {
    const [wide, high] = [this.width, height].map((length) => Math.round(length * devicePixelRatio));
    if (this.canvas.width === wide && this.canvas.height === high) return;
    Object.assign(this.canvas, { width: wide, height: high });
    this.canvas.style.height = `${height}px`;
  }

  font(g, { size = 12, color }, family) {
    g.font = `${size}px ${family}`;
    if (color) g.fillStyle = color;
  }

  // Returns its rows.
  legend(g, traces, { legend, font }) {
    this.font(g, { ...legend.font, color: font.color }, font.family);
    g.textAlign = "left";
    const named = traces.filter((trace) => trace.showlegend !== false);
    if (named.some((trace) => trace.fill === "tonexty")) named.reverse(); // as Plotly has them
    let [x, row] = [EDGES.left, 0];
    const places = named.map(({ name }) => {
      const wide = SWATCH + 8 + g.measureText(name).width + 12;
      if (x + wide > this.width && x > EDGES.left) [x, row] = [EDGES.left, row + 1];
      x += wide;
      return [x - wide, ABOVE + row * ROW + ROW / 2];
    });
    named.forEach((trace, i) => {
      const [at, y] = places[i];
      g.fillStyle = font.color;
      g.fillText(trace.name, at + SWATCH + 6, y);
      if (trace.type === "bar" || trace.fill) {
        g.fillStyle = trace.fillcolor ?? trace.marker.color;
        if (trace.type === "bar") g.fillRect(at + 9, y - 6, 12, 12);
        else g.fillRect(at, y, SWATCH, 6);
      }
      if (trace.type === "bar") return;
      this.stroke(g, [[at, y], [at + SWATCH, y]], trace.line);
      if (trace.marker?.symbol?.length) this.mark(g, trace.marker, 0, at + SWATCH / 2, y);
    });
    return row + 1;
  }

  shapes(g, shapes) {
    const { top, bottom } = this.area;
    for (const { x0, x1, fillcolor } of shapes) {
      g.fillStyle = fillcolor;
      g.fillRect(this.x(x0), top, this.x(x1) - this.x(x0), bottom - top);
    }
  }

  axes(g, { xaxis, yaxis, yaxis2, font }, xs, ys, second, seconds) {
    const { left, right, bottom } = this.area;
    const tick = (axis, value) => `${Number(value.toPrecision(6))}${axis.ticksuffix ?? ""}`.replace("-", "−");
    this.font(g, { size: 11, color: font.color }, font.family);
    for (const value of ticksOf(yaxis, ys, 6)) {
      this.stroke(g, [[left, this.y(value)], [right, this.y(value)]], { color: yaxis.gridcolor, width: 1 });
      g.textAlign = "right";
      g.fillText(tick(yaxis, value), left - 5, this.y(value));
    }
    if (second) for (const value of steps(seconds, 4)) {
      g.textAlign = "left";
      g.fillText(tick(yaxis2, value), right + 5, second(value));
    }
    g.textAlign = "center";
    for (const value of ticksOf(xaxis, xs, 5)) g.fillText(tick(xaxis, value), this.x(value), bottom + 10);
    g.fillText(xaxis.title.text, (left + right) / 2, bottom + 28);
  }

  stroke(g, points, { color, width = 2, dash }) {
    g.strokeStyle = color;
    g.lineWidth = width;
    g.setLineDash((DASHES[dash] ?? []).map((part) => part * (dash === "dot" ? width : 1)));
    g.beginPath();
    points.forEach(([x, y], i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
    g.stroke();
    g.setLineDash([]);
  }

  mark(g, { symbol, color, line, size = 6 }, i, x, y) {
    const kind = Array.isArray(symbol) ? symbol[i] : symbol ?? "circle";
    const own = Array.isArray(color) ? color[i] : color;
    g.beginPath();
    MARKS[kind](g, x, y, size / 2);
    g.fillStyle = g.strokeStyle = own;
    g.lineWidth = line?.width ?? 0;
    if (kind === "circle") g.fill();
    if (g.lineWidth && line?.width) g.stroke();
  }

  // Returns its corners, up to which the next one may be filled.
  trace(g, trace, y, before) {
    if (trace.type === "bar") {
      g.fillStyle = trace.marker.color;
      g.globalAlpha = trace.marker.opacity;
      trace.x.forEach((at, i) => g.fillRect(this.x(at - trace.width / 2), y(trace.y[i]), this.x(at + trace.width / 2) - this.x(at - trace.width / 2), y(0) - y(trace.y[i])));
      g.globalAlpha = 1;
      return [];
    }
    const pieces = [[]]; // what is not there parts the line
    trace.x.forEach((at, i) => (trace.y[i] == null ? pieces.push([]) : pieces.at(-1).push([this.x(at), y(trace.y[i])])));
    const lines = pieces.filter((piece) => piece.length).map((piece) => corners(piece, trace.line.shape));
    for (const line of lines) {
      const back = trace.fill === "tonexty" ? [...before].reverse() : [[line.at(-1)[0], y(0)], [line[0][0], y(0)]];
      if (trace.fill) {
        g.beginPath();
        [...line, ...back].forEach(([a, b], i) => (i ? g.lineTo(a, b) : g.moveTo(a, b)));
        g.fillStyle = trace.fillcolor;
        g.fill();
      }
      this.stroke(g, line, trace.line);
    }
    if (trace.mode.includes("markers")) {
      trace.x.forEach((at, i) => trace.y[i] != null && this.mark(g, { color: trace.line.color, ...trace.marker }, i, this.x(at), y(trace.y[i])));
    }
    return lines.flat();
  }

  words(g, annotations, { font }) {
    const { left, right, top, bottom } = this.area;
    for (const { xref, x, y, yanchor, text, font: own, bgcolor } of annotations) {
      this.font(g, own, font.family);
      const at = xref === "paper" ? left + x * (right - left) : this.x(x);
      const middle = bottom - y * (bottom - top) + (yanchor === "top" ? 8 : 0);
      if (bgcolor) {
        const wide = g.measureText(text).width;
        g.fillStyle = bgcolor;
        g.fillRect(at - wide / 2 - 1, middle - 8, wide + 2, 16);
        g.fillStyle = own.color;
      }
      g.textAlign = "center";
      g.fillText(text, at, middle);
    }
  }
}
