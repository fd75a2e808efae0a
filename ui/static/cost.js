// The tab Cost: figures come from the server, which has the formulas; here they are drawn, and taken from measurements.
import { drawLines } from "./lines.js";
import { make, setText, significant } from "./text.js";
import { currentLanguage, later, t } from "./words.js";

const money = (currency, value) => `${currency ? `${currency}\u00a0` : ""}${significant(value)}`;
const plain = (value) => significant(value);
const times = (value) => `× ${significant(value, 3)}`;

// The latest measurement: throughput of plain decoding and with drafts, tokens a request, joules a token.
function fromLoad(store) {
  const load = store.load;
  if (!load?.lane) return null;
  const pairs = load.of(load.lane).map((cell) => [cell, load.of("plain").find((base) => base.users === cell.users)]);
  const found = pairs.filter(([, base]) => base).at(-1);
  if (!found) return null;
  const [cell, base] = found;
  const tokens = store.load.last?.tokens ?? 200;
  return { before: base.throughput, after: cell.throughput, tokens, joules: [base.joules_per_token, cell.joules_per_token], words: t("taken from Load: {users} {users:user|users}, {lane}", { users: cell.users, lane: cell.lane }) };
}

function fromChat(store) {
  const base = store.status?.baseline?.figures;
  const mine = store.figures;
  if (!base?.tokens_per_s || !mine?.tokens_per_s) return null;
  return { before: base.tokens_per_s, after: mine.tokens_per_s, tokens: mine.tokens, joules: [null, null], words: t("taken from Chat: the latest answer and measured plain decoding") };
}

const HEADS = [later("figure"), later("before"), later("after"), later("change")];

export function mountCost(root, store) {
  const at = (selector) => root.querySelector(selector);
  let figures = null;
  let taken = "";
  let seen = "";
  store.subscribe("cost", (message) => (figures = message));

  // Called by the buttons, whose outputs are: unit, GPUs, before, after, tokens, joules before and after, source.
  window.dsparkPage.takeForCost = (name) => {
    const found = (name === "load" ? fromLoad : fromChat)(store);
    if (!found) {
      taken = name === "load" ? t("Nothing to take: walk under Load with plain decoding beside it first.") : t("Nothing to take: ask something under Chat first, and wait for measured plain decoding.");
      store.changed();
      throw new Error(taken);
    }
    const short = (value) => (value === null || value === undefined ? null : Number(value.toPrecision(5)));
    const [before, after, tokens] = [short(found.before), short(found.after), found.tokens];
    taken = found.words;
    store.changed();
    return ["tokens", 1, before, after, tokens, ...found.joules.map(short), JSON.stringify({ before, after, tokens })];
  };

  const rows = () => {
    const { requests_per_s: requests, cost_per_request: costs, joules_per_request: joules, kwh_per_million: kwh, currency, said } = figures;
    const change = ([before, after]) => (before && after ? times(after / before) : "–");
    const energy = ([before, after], unit) => [before, after].map((value) => (value === null ? t("not measured here") : `${plain(value)} ${unit}`));
    return [
      [t("requests a second"), ...requests.map(plain), change(requests), said],
      [t("cost of a request"), ...costs.map((cost) => money(currency, cost)), change(costs), said],
      [t("cost of a million requests"), ...costs.map((cost) => money(currency, cost * 1e6)), change(costs), ""],
      [t("energy of a request"), ...energy(joules, "J"), change(joules), ""],
      [t("energy of a million requests"), ...energy(kwh, "kWh"), change(kwh), ""],
    ];
  };

  const drawTable = () => {
    const head = make("tr");
    for (const name of HEADS) head.append(make("th", "", t(name)));
    at("thead").replaceChildren(head);
    const said = { published: t("published"), measured: t("measured"), typed: t("typed") };
    at("tbody").replaceChildren(...rows().map(([name, before, after, change, label]) => {
      const line = make("tr");
      const first = make("th", "", name);
      first.scope = "row";
      if (label) first.append(make("span", `ds-label ds-label-${label}`, said[label]));
      line.append(first, make("td", "", before), make("td", "", after), make("td", "", change));
      return line;
    }));
  };

  const drawRebound = () => {
    const { saving, elasticity, demand, total, rises, curve } = figures;
    const values = { s: plain(saving), e: plain(elasticity), demand: plain(demand), total: plain(total) };
    const words = rises
      ? t("Each token got {s} times cheaper, yet with ε = {e} demand grows {demand}-fold and the total rises to {total} times what it was.", values)
      : saving <= 1
        ? t("Tokens did not get cheaper (s = {s}): there is no saving to rebound.", values)
        : t("Each token got {s} times cheaper; with ε = {e} demand grows {demand}-fold and the total is {total} times what it was. Above ε = 1 it would rise.", values);
    setText(at(".ds-rebound"), words);
    const svg = at("svg");
    const shown = curve.filter(([, value]) => value <= 8);
    drawLines(svg, { x: [0, 3], xTicks: [0, 0.5, 1, 1.5, 2, 2.5, 3], xName: t("elasticity ε"), series: [{ points: shown, className: "ds-c-main" }], level: { y: 1, words: t("as before") }, marks: total <= 8 ? [{ x: Math.min(3, elasticity), y: total, words: times(total) }] : [] });
    svg.setAttribute("aria-label", words);
  };

  store.listen(() => {
    if (!figures) return;
    const why = store.loads.at(-1)?.load;
    const note = why?.energy === null || !why ? t("Energy is not measured here: {why}. Joules a token may be typed in.", { why: why?.note || t("no energy counter was found") }) : t("Energy is the card's own counter (NVML) over the tokens of a run under Load: all that the card drew, its idling included.");
    const key = `${JSON.stringify(figures)}:${taken}:${note}:${currentLanguage()}`;
    if (key === seen) return;
    seen = key;
    at("[data-cost-error]").hidden = !figures.error;
    setText(at("[data-cost-error]"), figures.error ?? "");
    at("[data-cost-take]").hidden = !taken;
    setText(at("[data-cost-take]"), taken);
    setText(at("[data-energy-note]"), note);
    if (figures.error) return;
    drawTable();
    drawRebound();
  });
}
