// One round in detail: the block as in the paper's Figure 1, its numbers, and the laws at the chosen position.
import { markOf } from "./fates.js";
import { candidateTable, verdictWords } from "./laws.js";
import { Picture } from "./picture.js";
import { mountRecords } from "./recorded.js";
import { roundWords, tokenNode } from "./ribbon.js";
import { OPEN, watchSight } from "./sight.js";
import { term } from "./terms.js";
import { fixed, make, setText, spoken } from "./text.js";
import { t } from "./words.js";

const ROWS = [
  ["raw", (token) => fixed(token.rawConfidence ?? token.confidence, 3)],
  ["calibrated", (token) => fixed(token.confidence, 3)],
  ["survival", (token) => fixed(token.survival, 3)],
  ["draftProb", (token) => fixed(token.draftProb, 4)],
  ["targetProb", (token) => (token.targetProb === null ? t("not verified") : fixed(token.targetProb, 4))],
  ["acceptProb", (token) => (token.acceptProb === null ? t("not verified") : fixed(token.acceptProb, 4))],
  ["uniform", (token) => (token.uniform === null ? t("none") : fixed(token.uniform, 4))],
  ["verdict", (token) => {
    const mark = make("span", "ds-mark", markOf(token.fate));
    mark.dataset.fate = token.fate;
    mark.setAttribute("aria-hidden", "true");
    const word = make("span", "ds-word");
    word.append(mark, make("span", "", t(token.fate)));
    return word;
  }],
];

function numberCell(value) {
  const cell = make("td");
  cell.append(value);
  return cell;
}

function stripOf(round, position) {
  const anchor = make("span", "ds-anchor");
  anchor.append(term("anchor"), make("code", "", spoken(round.anchor)));
  const parts = [anchor];
  const place = (token, at) => {
    const node = tokenNode(token, round.index, at);
    node.setAttribute("aria-selected", String(at === position));
    node.setAttribute("aria-label", `${spoken(token.text)}, ${t(token.fate)}, ${t("position {at}", { at: at + 1 })}`);
    node.tabIndex = at === position ? 0 : -1;
    return node;
  };
  round.draft.forEach((token, at) => {
    if (at === round.verifyLen) parts.push(cutNode(round));
    parts.push(place(token, at));
  });
  if (round.draft.length === round.verifyLen && round.draft.length) parts.push(cutNode(round));
  if (round.next) parts.push(make("span", "ds-then", t("target:")), place(round.next, round.draft.length));
  return parts;
}

function cutNode(round) {
  const node = make("span", "ds-cut", `ℓ = ${round.verifyLen}`);
  node.dataset.tip = t("Where the scheduler ended: what lies behind this line was not verified.");
  return node;
}

function drawNumbers(table, round, position) {
  const head = make("tr");
  head.append(make("th", "", "x_k"));
  round.draft.forEach((token, at) => {
    const cell = make("th");
    cell.scope = "col";
    cell.append(make("span", "", `${at + 1} `), make("code", "", spoken(token.text)));
    head.append(cell);
  });
  const rows = ROWS.map(([key, value]) => {
    const row = make("tr");
    const name = term(key, "th");
    name.scope = "row";
    row.append(name, ...round.draft.map((token) => numberCell(value(token))));
    return row;
  });
  for (const row of [head, ...rows]) row.children[position + 1]?.classList.add("ds-chosen");
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows);
}

// The line that the scheduler draws, on the quantity that it cuts.
function levels(picture, round) {
  if (round.policy === "threshold") picture.level(round.threshold, t("threshold {value} on c", { value: fixed(round.threshold) }));
  if (round.policy !== "banded" || round.bandLow === null) return;
  picture.level(round.bandHigh, t("band {value} on c", { value: fixed(round.bandHigh) }));
  picture.level(round.bandLow, t("band {value} on c", { value: fixed(round.bandLow) }));
  if (round.signal?.value != null) picture.level(round.signal.value, t("load {value} on a", { value: fixed(round.signal.value) }), "ds-level ds-level-load");
}

function drawCurves(figure, round, laws) {
  const caption = figure.querySelector("figcaption");
  const svg = figure.querySelector("svg");
  const confident = round.draft.some((token) => token.confidence !== null);
  figure.hidden = !confident && laws?.stoppedAt == null;
  if (figure.hidden) return;
  const stopped = laws?.stoppedAt ?? null;
  const last = round.draft.length + (stopped === null ? 0 : 1);
  const picture = new Picture(svg, { first: 1, last, ticks: [0, 0.5, 1], format: (value) => fixed(value, 1) });
  const points = (key) => round.draft.map((token, at) => [at + 1, token[key]]).filter(([, value]) => value != null);
  if (round.verifyLen < last) picture.shade(round.verifyLen + 1, round.verifyLen < round.draft.length ? t("not verified") : t("not drafted"));
  levels(picture, round);
  picture.path(points("survival"), "ds-line-survival");
  picture.path(points("confidence"), "ds-line-confidence");
  for (const [at, value] of points("rawConfidence")) picture.dot(at, value, "ds-dot-raw");
  for (const [at, value] of points("confidence")) picture.dot(at, value, "ds-dot-fate", round.draft[at - 1].fate);
  if (stopped !== null) picture.dot(last, stopped, "ds-dot-raw");
  const raw = points("rawConfidence").length > 0;
  caption.replaceChildren(term("calibrated"), make("i", "ds-swatch ds-swatch-c"), term("survival"), make("i", "ds-swatch ds-swatch-a"));
  if (raw) caption.append(term("raw"), make("i", "ds-swatch ds-swatch-raw"));
  if (stopped !== null) caption.append(make("span", "", t("drafting ended at c = {value}", { value: fixed(stopped) })));
  svg.setAttribute("aria-label", `${t("Confidence and survival by position; the table below has the numbers.")} ${round.reason}`);
}

function drawTheta(figure, round, laws) {
  const values = laws?.throughputs ?? [];
  figure.hidden = values.length === 0;
  if (figure.hidden) return;
  const first = round.verifyLen - values.indexOf(Math.max(...values));
  const low = 0.9 * Math.min(...values);
  const high = Math.max(...values) + 0.1 * (Math.max(...values) - low);
  const picture = new Picture(figure.querySelector("svg"), {
    first, last: first + values.length - 1, low, high, ticks: [low], format: (value) => value.toPrecision(3),
  });
  values.forEach((value, at) => {
    const top = picture.bar(first + at, value, first + at === round.verifyLen ? "ds-bar-chosen" : "ds-bar-other");
    picture.text(top.x, top.y - 4, value.toPrecision(3), "middle");
  });
  figure.querySelector("figcaption").replaceChildren(term("theta"), make("span", "", t("by length; the axis does not begin at 0; filled: the length chosen")));
  figure.querySelector("svg").setAttribute("aria-label", values.map((value, at) => t("length {len}: {value} tokens a second", { len: first + at, value: value.toPrecision(3) })).join(", "));
}

const firstPlace = (round) => Math.min(round.accepted, Math.max(0, round.draft.length - (round.next ? 0 : 1)));

export function mountRounds(root, store) {
  const at = (selector) => root.querySelector(selector);
  const slider = at(".ds-step input");
  let drawn = "";

  const shown = () => Math.min(store.chosen?.round ?? Infinity, store.shown.rounds.length - 1);

  const choose = (round, position = null) => {
    const last = store.shown.rounds.length - 1;
    if (last < 0) return;
    store.choose(Math.min(last, Math.max(0, round)), position);
  };

  const drawRecords = mountRecords(at(".ds-records"), store);
  const open = watchSight(root, () => store.changed(), OPEN);

  const draw = () => {
    drawRecords();
    const { rounds, laws, from, epoch } = store.shown;
    const index = shown();
    const round = rounds[index];
    store.lawsWanted = open();
    if (!store.lawsWanted) return; // the other tab
    const position = round && Math.min(store.chosen?.position ?? firstPlace(round), round.draft.length - (round.next ? 0 : 1));
    const seen = JSON.stringify([epoch, index, position, Boolean(round), Boolean(laws[index])]);
    slider.max = Math.max(1, rounds.length);
    slider.value = index + 1;
    slider.setAttribute("aria-valuetext", round ? `${t("round {n} of {all}", { n: index + 1, all: rounds.length })}: ${roundWords(round)}` : t("none"));
    setText(at(".ds-rno"), rounds.length ? t("round {n} of {all}", { n: index + 1, all: rounds.length }) : t("no round yet"));
    setText(at(".ds-from"), from);
    at(".ds-newest").hidden = store.chosen === null || !store.running;
    if (seen === drawn) return;
    drawn = seen;
    at(".ds-empty").hidden = Boolean(round);
    at(".ds-detail").hidden = !round;
    if (!round) return;
    const focused = at(".ds-strip").contains(document.activeElement);
    at(".ds-strip").replaceChildren(...stripOf(round, position));
    if (focused) at('.ds-strip [tabindex="0"].ds-tok')?.focus();
    setText(at(".ds-because"), `${roundWords(round)}: ${round.reason} ${t("(policy {policy}, bounds {lMin} to {lMax})", round)}`);
    at(".ds-numbers").parentElement.hidden = round.draft.length === 0;
    drawNumbers(at(".ds-numbers"), round, position);
    drawCurves(at(".ds-curve-figure"), round, laws[index]);
    drawTheta(at(".ds-theta-figure"), round, laws[index]);
    setText(at(".ds-position h3"), position < round.draft.length ? t("Position {at} of {all}", { at: position + 1, all: round.draft.length }) : t("The target's own token"));
    setText(at(".ds-verdict"), verdictWords(round, position, laws[index]));
    candidateTable(at(".ds-candidates"), at(".ds-laws-note"), round, position, laws[index]);
  };

  at(".ds-step").addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]")?.dataset.step;
    if (step) choose(shown() + Number(step));
  });
  slider.addEventListener("input", () => choose(Number(slider.value) - 1));
  at(".ds-newest").addEventListener("click", () => store.choose(null));
  const strip = at(".ds-strip");
  const placeOf = (node) => Number(node.dataset.at.split(".")[1]);
  strip.addEventListener("click", (event) => {
    const node = event.target.closest(".ds-tok");
    if (node) choose(shown(), placeOf(node));
  });
  strip.addEventListener("keydown", (event) => {
    const node = event.target.closest(".ds-tok");
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const other = { ArrowDown: 1, ArrowUp: -1, PageDown: 1, PageUp: -1 }[event.key];
    if (!node || (step === undefined && other === undefined)) return;
    event.preventDefault();
    if (other !== undefined) return choose(shown() + other);
    const all = [...strip.querySelectorAll(".ds-tok")];
    const next = all[all.indexOf(node) + step];
    if (next) choose(shown(), placeOf(next));
  });
  store.listen(draw);
}
