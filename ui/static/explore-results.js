// A sweep's rows as a sortable table and as a heat map.
import { fixed, make, percent, setText } from "./text.js";
import { later, t } from "./words.js";

// name, title
export const AXES = [
  ["drafter", later("Drafter")], ["policy", later("Policy")], ["gamma", "γ"], ["l_min", later("L_min")], ["l_max", later("L_max")],
  ["threshold", later("Threshold")], ["temperature", later("Temperature")],
];
const SYMBOL = Object.fromEntries(AXES);

// name, title, format, whether more is better, definition
export const METRICS = [
  ["ratio", later("ratio"), (value) => fixed(value), true, later("Tokens/s over those of plain decoding on the same prompt, measured beside it. Median over the prompts.")],
  ["tau", "τ", (value) => fixed(value), true, later("Committed tokens per round, the target's own token included.")],
  ["acceptance", later("acceptance"), percent, true, later("Accepted drafts over verified ones.")],
  ["waste", later("waste"), (value) => fixed(value), false, later("Drafts verified in vain for each committed token.")],
  ["budget", later("tokens a step"), (value) => fixed(value), false, later("Tokens in the target's pass per round: the anchor and ℓ drafts, 1 + ℓ.")],
];
const EXTRA = [
  ["tokens_per_s", later("tokens/s"), (value) => fixed(value, 1), later("Committed tokens over the seconds of the rounds; prefill left out.")],
  ["plain_tokens_per_s", later("plain"), (value) => fixed(value, 1), later("Tokens/s of plain decoding beside this setting.")],
];

export const axisValue = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value));
export const sweptAxes = (rows) => AXES.map(([name]) => name).filter((name) => new Set(rows.map((row) => row[name])).size > 1);
export const settingWords = (row) => AXES.map(([name]) => `${t(SYMBOL[name])} ${axisValue(row[name])}`).join(", ");

export function fixedWords(rows) {
  if (rows.length === 0) return "";
  const swept = sweptAxes(rows);
  const same = AXES.filter(([name]) => !swept.includes(name)).map(([name]) => `${t(SYMBOL[name])} ${axisValue(rows[0][name])}`);
  return same.length ? t("The same in all rows: {settings}", { settings: same.join(", ") }) : "";
}

const bare = (words) => words.replace(" %", "");
const interval = (row, name, format) => (row[`${name}_95`] ? ` (${row[`${name}_95`].map((end) => bare(format(end))).join("–")})` : "");

function marksOf(row) {
  return [
    [row.best, "★", later("the fastest")], [row.front, "◆", later("on the front")], [row.near, "≈", later("not told apart from the fastest")], [row.beside > 0, "⚠", later("other answers ran beside it")],
  ].filter(([on]) => on);
}

function columns(rows) {
  const axes = sweptAxes(rows).map((name) => ({ by: name, title: t(SYMBOL[name]), tip: "", cell: (row) => axisValue(row[name]) }));
  const figures = METRICS.map(([name, title, format, , tip]) => ({ by: name, title: t(title), tip: t(tip), cell: (row) => format(row[name]), more: (row) => interval(row, name, format) }));
  const extra = EXTRA.map(([name, title, format, tip]) => ({ by: name, title: t(title), tip: t(tip), cell: (row) => format(row[name]) }));
  const n = { by: "n", title: "n", tip: t("How many prompts (or answers, with a single prompt) the figures are over."), cell: (row) => String(row.n) };
  const same = { by: "", title: t("same text"), tip: t("At temperature 0: answers that equal plain decoding's token for token. In bfloat16 they may part at near-ties, since one row and several are computed by different kernels."), cell: (row) => (row.same ? `${row.same.same}/${row.same.n}` : "–") };
  return [...axes, ...figures, ...extra, n, same];
}

function headOf(shown, order) {
  const line = make("tr");
  line.append(make("th", "", ""));
  for (const { by, title, tip } of shown) {
    const cell = make("th");
    cell.scope = "col";
    const button = make(by ? "button" : "span", "ds-ex-by", title);
    if (by) {
      Object.assign(button, { type: "button" });
      button.dataset.by = by;
      cell.setAttribute("aria-sort", order.by !== by ? "none" : order.down ? "descending" : "ascending");
    }
    if (tip) button.dataset.tip = tip;
    cell.append(button);
    line.append(cell);
  }
  return line;
}

export function drawTable(table, rows, order, chosen) {
  const shown = columns(rows);
  const key = (row) => row[order.by] ?? (order.down ? -Infinity : Infinity);
  const sorted = [...rows].sort((a, b) => {
    const [one, two] = [key(a), key(b)];
    const less = typeof one === "string" && typeof two === "string" ? one.localeCompare(two) : one - two;
    return (order.down ? -less : less) || a.id - b.id;
  });
  const focusedBy = table.contains(document.activeElement) ? document.activeElement.dataset.by : undefined;
  const focusedId = table.contains(document.activeElement) ? document.activeElement.dataset.id : undefined;
  table.tHead.replaceChildren(headOf(shown, order));
  table.tBodies[0].replaceChildren(...sorted.map((row) => {
    const line = make("tr");
    line.dataset.id = row.id;
    line.tabIndex = 0;
    line.setAttribute("aria-selected", String(row.id === chosen));
    const marks = make("td", "ds-ex-marks");
    for (const [, mark, words] of marksOf(row)) {
      const node = make("span", "", mark);
      node.title = t(words);
      node.setAttribute("role", "img");
      node.setAttribute("aria-label", t(words));
      marks.append(node);
    }
    line.append(marks, ...shown.map(({ cell, more }) => {
      const node = make("td", "", cell(row));
      if (more) node.append(make("small", "", more(row)));
      return node;
    }));
    if (row.failure) line.lastChild.append(make("small", "ds-ex-failed", ` ${t("failed")}: ${row.failure}`));
    return line;
  }));
  if (focusedBy) table.querySelector(`[data-by="${focusedBy}"]`)?.focus();
  if (focusedId) table.querySelector(`tr[data-id="${focusedId}"]`)?.focus();
}

function fill(select, options, value) {
  const wanted = JSON.stringify(options);
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...options.map(([name, title]) => {
      const option = make("option", "", title);
      option.value = name;
      return option;
    }));
  }
  select.value = value;
}

export function drawHeat(root, rows, heat, chosen) {
  const swept = sweptAxes(rows);
  root.querySelector(".ds-ex-heat").hidden = swept.length === 0;
  if (swept.length === 0) return;
  const wish = (name, other) => (swept.includes(heat.wanted[name]) && heat.wanted[name] !== other ? heat.wanted[name] : swept.findLast((axis) => axis !== other) ?? "");
  heat.x = wish("x", null);
  heat.y = wish("y", heat.x);
  const axes = swept.map((name) => [name, t(SYMBOL[name])]);
  const select = (name) => root.querySelector(`[data-heat="${name}"]`);
  fill(select("x"), axes, heat.x);
  fill(select("y"), swept.length > 1 ? axes.filter(([name]) => name !== heat.x) : [["", "–"]], heat.y);
  fill(select("metric"), METRICS.map(([name, title]) => [name, t(title)]), heat.metric);
  const [, , format, more, definition] = METRICS.find(([name]) => name === heat.metric);
  const across = [...new Set(rows.map((row) => row[heat.x]))];
  const down = heat.y ? [...new Set(rows.map((row) => row[heat.y]))] : [null];
  const inOrder = (values) => values.sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
  inOrder(across);
  if (heat.y) inOrder(down);
  const cellOf = (x, y) => rows
    .filter((row) => row[heat.x] === x && (y === null || row[heat.y] === y) && row[heat.metric] != null)
    .reduce((best, row) => (best && (best.ratio ?? 0) >= (row.ratio ?? 0) ? best : row), null);
  const cells = down.map((y) => across.map((x) => cellOf(x, y)));
  const known = cells.flat().filter(Boolean).map((row) => row[heat.metric]);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const table = root.querySelector(".ds-ex-map");
  const head = make("tr");
  head.append(make("th", "", heat.y ? `${t(SYMBOL[heat.y])} ↓  ${t(SYMBOL[heat.x])} →` : `${t(SYMBOL[heat.x])} →`), ...across.map((x) => make("th", "", axisValue(x))));
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...cells.map((line, at) => {
    const node = make("tr");
    node.append(make("th", "", down[at] === null ? t(METRICS.find(([name]) => name === heat.metric)[1]) : axisValue(down[at])));
    node.append(...line.map((row) => {
      const cell = make("td");
      if (!row) {
        cell.append(make("span", "ds-ex-none", "–"));
        return cell;
      }
      const share = high > low ? (row[heat.metric] - low) / (high - low) : 0.5;
      const button = make("button", "", format(row[heat.metric]));
      Object.assign(button, { type: "button" });
      button.dataset.choose = row.id;
      button.dataset.tip = `${settingWords(row)}: ${t("ratio")} ${fixed(row.ratio)}${interval(row, "ratio", (value) => fixed(value))}, τ ${fixed(row.tau)}, n ${row.n}`;
      button.style.setProperty("--heat", `${Math.round(8 + 40 * (more ? share : 1 - share))}%`);
      button.setAttribute("aria-pressed", String(row.id === chosen));
      if (row[heat.metric] === (more ? high : low)) button.classList.add("ds-ex-top");
      cell.append(button);
      return cell;
    }));
    return node;
  }));
  const others = swept.length > 2 ? ` ${t("Where more axes vary, the fastest setting of those is shown.")}` : "";
  setText(root.querySelector(".ds-ex-heat-note"), `${t(definition)} ${t("Darker is better.")}${others}`);
}
