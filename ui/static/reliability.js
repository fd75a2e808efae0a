// Reliability diagrams and histograms as SVG: all text is text, colours come from the page's variables.
import { t } from "./words.js";

const SIDE = { left: 40, top: 12, size: 264, bottom: 276 };
const x = (value) => SIDE.left + value * SIDE.size;
const y = (value) => SIDE.bottom - value * SIDE.size;
const percent = (share) => `${(share * 100).toFixed(0)} %`;

function add(svg, name, attributes, text) {
  const made = document.createElementNS(svg.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  svg.append(made);
  return made;
}

function frame(svg, format, across, upwards) {
  svg.replaceChildren();
  add(svg, "text", { x: x(1), y: SIDE.bottom - 6, "text-anchor": "end", class: "ds-level-name" }, across);
  add(svg, "text", { x: x(0) + 4, y: y(1) + 14, class: "ds-level-name" }, upwards);
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    add(svg, "line", { x1: x(0), x2: x(1), y1: y(value), y2: y(value), class: "ds-grid" });
    add(svg, "text", { x: x(0) - 11, y: y(value) + 4, "text-anchor": "end" }, format(value));
    add(svg, "text", { x: x(value), y: SIDE.bottom + 21, "text-anchor": "middle" }, String(value));
  }
}

// Bins as [low, predicted, happened, n].
export function drawReliability(svg, bins) {
  frame(svg, String, t("promised →"), t("↑ survived"));
  add(svg, "line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "ds-diagonal" });
  const most = Math.max(1, ...bins.map(([, , , n]) => n));
  for (const [, said, came, n] of bins) {
    add(svg, "line", { x1: x(said), x2: x(said), y1: y(said), y2: y(came), class: "ds-gap" });
    const dot = add(svg, "circle", { cx: x(said), cy: y(came), r: 2.5 + 7 * Math.sqrt(n / most), class: "ds-cal-dot" });
    dot.dataset.tip = t("promised {said}, survived {came}, in {n} {n:round|rounds}", { said: percent(said), came: percent(came), n });
  }
  if (bins.length > 1) add(svg, "polyline", { points: bins.map(([, said, came]) => `${x(said)},${y(came)}`).join(" "), class: "ds-cal-line" });
  svg.setAttribute("aria-label", bins.map(([, said, came, n]) => t("promised {said}, survived {came}, in {n} {n:round|rounds}", { said: percent(said), came: percent(came), n })).join("; "));
}

// How many confidences lie in each bin, and how many of these drafts were accepted.
export function drawSpread(svg, bins) {
  const most = Math.max(1, ...bins.map(([, , , n]) => n));
  frame(svg, (value) => String(Math.round(value * most)), "", t("↑ drafts; confidence →"));
  for (const [low, , came, n] of bins) {
    const bar = (count, className) => add(svg, "rect", {
      x: x(low) + 2, width: SIDE.size / 10 - 4, y: y(count / most), height: SIDE.bottom - y(count / most), class: className,
    });
    bar(n, "ds-cal-all").dataset.tip = t("confidence {from} to {to}: {n} {n:draft|drafts}, {came} accepted", { from: low.toFixed(1), to: (low + 0.1).toFixed(1), n, came: Math.round(came * n) });
    bar(came * n, "ds-cal-hit");
  }
  svg.setAttribute("aria-label", bins.map(([low, , came, n]) => t("confidence {from} to {to}: {n} {n:draft|drafts}, {came} accepted", { from: low.toFixed(1), to: (low + 0.1).toFixed(1), n, came: Math.round(came * n) })).join("; "));
}
