// Small drawings of one round as SVG: all text is text, colours come from the page's variables.

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

  // A line across at a value, with its name at the right end.
  level(value, words, className = "ds-level") {
    this.line(BOX.left, this.y(value), BOX.width - BOX.right, this.y(value), className);
    this.text(BOX.width - BOX.right, this.y(value) - 4, words, "end", "ds-level-name");
  }

  // What lies behind a place is grey.
  shade(from, words) {
    const x = (this.x(from) + this.x(from - 1)) / 2;
    const width = Math.max(0, BOX.width - BOX.right - x);
    this.svg.append(node(this.svg, "rect", { x, y: BOX.top, width, height: BOX.height - BOX.top - BOX.bottom, class: "ds-shade" }));
    this.text(x + 4, BOX.top + 10, words, "start", "ds-level-name");
  }

  path(points, className) {
    if (points.length) this.under(node(this.svg, "polyline", { points: points.map(([at, value]) => `${this.x(at)},${this.y(value)}`).join(" "), class: className }));
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
