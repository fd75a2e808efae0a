// Where a name may stand in a drawing: at the place that the fewest drawn points run through.

const BETWEEN = 12; // points looked at on each stretch of a line

// The points of a line and those between them, as [x, y].
export function along(points) {
  const all = points.slice(0, 1);
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    for (let step = 1; step <= BETWEEN; step += 1) all.push([x1 + ((x2 - x1) * step) / BETWEEN, y1 + ((y2 - y1) * step) / BETWEEN]);
  }
  return all;
}

const inside = ({ left, right, top, bottom }, [x, y]) => x >= left && x <= right && y >= top && y <= bottom;
const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

// The box of a text of one line whose foot is at (x, y).
export function boxOf(words, x, y, anchor, letter = 5.8) {
  const width = words.length * letter;
  const left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
  return { left, right: left + width, top: y - 13, bottom: y + 4 };
}

// Of places, each with a box, the best one; the first of equal ones.
export function freest(places, points, taken = []) {
  const cost = ({ box }) => points.filter((point) => inside(box, point)).length + 100 * taken.filter((other) => overlap(box, other)).length;
  const costs = places.map(cost);
  return places[costs.indexOf(Math.min(...costs))];
}
