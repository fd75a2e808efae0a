// Small drawings of one round as SVG: all text is text, colours come from the page's variables.

import { along, boxOf, freest } from "./places.js";

const BOX = { left: 44, right: 12, top: 14, bottom: 30, width: 520, height: 190 };

function node(svg, name, attributes, text) {
  const made = document.createElementNS(svg.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export class Picture {
  // Positions first … last along the bottom with their labels, values low … high upwards.
  constructor(svg, { first, last, low = 0, high = 1, ticks, format, label = String }) {
    this.svg = svg;
    this.span = Math.max(1, last - first + 1);
    this.first = first;
    this.low = low;
    this.high = high > low ? high : low + 1;
    this.names = []; // of the lines across
    this.drawn = []; // points of what names should not cover
    this.taken = []; // boxes of other words
    svg.replaceChildren();
    for (const value of ticks) {
      const y = this.y(value);
      this.line(BOX.left, y, BOX.width - BOX.right, y, "ds-grid");
      this.text(BOX.left - 6, y + 4, format(value), "end");
    }
    for (let at = first; at <= last; at += 1) this.text(this.x(at), BOX.height - 10, label(at), "middle");
  }

  x(at) {
    return BOX.left + ((at - this.first + 0.5) / this.span) * (BOX.width - BOX.left - BOX.right);
  }

  y(value) {
    const share = (value - this.low) / (this.high - this.low);
    return BOX.height - BOX.bottom - share * (BOX.height - BOX.top - BOX.bottom);
  }

  line(x1, y1, x2, y2, className) {
    this.svg.append(node(this.svg, "line", { x1, y1, x2, y2, class: className }));
  }

  text(x, y, words, anchor = "start", className = "") {
    this.svg.append(node(this.svg, "text", { x, y, "text-anchor": anchor, class: className }, words));
  }

  // Names of lines stay above what is drawn later.
  under(made) {
    this.svg.insertBefore(made, this.svg.querySelector(".ds-level-name"));
  }

  // A line across at a value, with its name on it where nothing else is drawn, at the right end if it can be.
  level(value, words, className = "ds-level") {
    this.line(BOX.left, this.y(value), BOX.width - BOX.right, this.y(value), className);
    const made = node(this.svg, "text", { class: "ds-level-name" }, words);
    this.svg.append(made);
    this.names.push({ made, words, y: this.y(value) });
    this.placeNames();
  }

  placeNames() {
    const [left, right] = [BOX.left + 4, BOX.width - BOX.right];
    const taken = [...this.taken];
    for (const { made, words, y } of this.names) {
      const feet = [y - 4, y + 13].filter((foot) => foot < BOX.height - BOX.bottom && foot > BOX.top + 8);
      const ends = [[right, "end"], [left, "start"], [(left + right) / 2, "middle"]];
      const places = feet.flatMap((foot) => ends.map(([x, anchor]) => ({ x, y: foot, anchor, box: boxOf(words, x, foot, anchor) })));
      const { x, y: foot, anchor, box } = freest(places, this.drawn, taken);
      taken.push(box);
      for (const [name, value] of Object.entries({ x, y: foot, "text-anchor": anchor })) made.setAttribute(name, value);
    }
  }

  // What lies behind a place is grey.
  shade(from, words) {
    const x = (this.x(from) + this.x(from - 1)) / 2;
    const width = Math.max(0, BOX.width - BOX.right - x);
    this.svg.append(node(this.svg, "rect", { x, y: BOX.top, width, height: BOX.height - BOX.top - BOX.bottom, class: "ds-shade" }));
    this.text(x + 4, BOX.top + 10, words, "start", "ds-level-name");
    this.taken.push(boxOf(words, x + 4, BOX.top + 10, "start"));
  }

  path(points, className) {
    if (!points.length) return;
    const places = points.map(([at, value]) => [this.x(at), this.y(value)]);
    this.under(node(this.svg, "polyline", { points: places.map((place) => place.join(",")).join(" "), class: className }));
    this.drawn.push(...along(places));
    this.placeNames();
  }

  dot(at, value, className, fate) {
    const made = node(this.svg, "circle", { cx: this.x(at), cy: this.y(value), r: 5, class: className });
    if (fate) made.dataset.fate = fate;
    this.under(made);
  }

  bar(at, value, className) {
    const wide = Math.min(44, ((BOX.width - BOX.left - BOX.right) / this.span) * 0.6);
    const top = this.y(value);
    this.svg.append(node(this.svg, "rect", { x: this.x(at) - wide / 2, y: top, width: wide, height: BOX.height - BOX.bottom - top, rx: 2, class: className }));
    return { x: this.x(at), y: top };
  }
}
