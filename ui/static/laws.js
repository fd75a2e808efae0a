// The laws at one position: a token a row, its probability under each law, and what was decided by them.
import { term } from "./terms.js";
import { fixed, make, setText, spoken } from "./text.js";
import { later, t } from "./words.js";

const share = (value) => (value === null ? "–" : value !== 0 && value < 0.0001 ? value.toExponential(1) : fixed(value, 4));

function barCell(value, className) {
  const cell = make("td", `ds-share ${className}`);
  cell.append(make("span", "", share(value)));
  if (value !== null) {
    const bar = make("i");
    bar.style.width = `${Math.min(100, Math.max(0, value * 100))}%`;
    cell.append(bar);
  }
  return cell;
}

function changeCell({ base, draft }) {
  const change = draft - base;
  return make("td", "ds-change", `${change > 0 ? "+" : change < 0 ? "−" : ""}${fixed(Math.abs(change), 4)}`);
}

const COLUMNS = [
  ["base", (row) => barCell(row.base, "ds-of-base"), (rows) => rows.some((row) => row.base !== null)],
  ["corrected", (row) => barCell(row.draft, "ds-of-draft"), (rows) => rows.some((row) => row.draft !== null)],
  ["change", changeCell, (rows) => rows.some((row) => row.base !== null)],
  ["target", (row) => barCell(row.target, "ds-of-target"), () => true],
  ["residual", (row) => barCell(row.residual, "ds-of-residual"), (rows) => rows.some((row) => row.residual !== null)],
];

// Which candidate was drawn, and which one the text got.
function badges(row, round, position) {
  const drafted = position < round.draft.length && row.id === round.draft[position].id;
  const own = round.next && row.id === round.next.id && position === (round.next.fate === "bonus" ? round.draft.length : round.accepted);
  return [drafted && later("drafted"), own && round.next.fate].filter(Boolean);
}

function rowsOf(round, position, laws) {
  if (!laws) return [];
  if (position < round.draft.length) return laws.candidates[position] ?? [];
  return round.next?.fate === "bonus" ? laws.bonus : laws.candidates[round.accepted] ?? [];
}

export function candidateTable(table, note, round, position, laws) {
  const at = position >= round.draft.length && round.next?.fate === "correction" ? round.accepted : position;
  const rows = [...rowsOf(round, position, laws)].sort((one, two) => (two.draft ?? two.target ?? 0) - (one.draft ?? one.target ?? 0));
  table.parentElement.hidden = rows.length === 0;
  const columns = COLUMNS.filter(([, , here]) => here(rows));
  const head = make("tr");
  head.append(make("th", "", t("token")), ...columns.map(([key]) => term(key, "th")));
  const body = rows.map((row) => {
    const line = make("tr");
    const name = make("th");
    name.scope = "row";
    name.append(make("code", "", spoken(row.text)));
    for (const badge of badges(row, round, at)) {
      const mark = make("span", "ds-badge", t(badge));
      mark.dataset.fate = badge === "drafted" ? round.draft[at].fate : badge;
      name.append(mark);
    }
    line.append(name, ...columns.map(([, cell]) => cell(row)));
    return line;
  });
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...body);
  setText(note, noteOf(round, rows, laws));
}

function noteOf(round, rows, laws) {
  if (!laws) return t("The laws behind this round were not collected, or come with the end of the answer. Tick “Collect the laws for Rounds” under Chat before you ask.");
  if (rows.length === 0) return "";
  const temperature = laws.greedy ? t("Greedy decoding: probabilities are shown at temperature 1.") : t("The very laws that were drawn from, at temperature {temperature}.", laws);
  return `${temperature} ${t("Shown: the most likely tokens of each law and those that were drawn; the rest of each law lies on other tokens.")}`;
}

export function verdictWords(round, position, laws) {
  const own = position >= round.draft.length;
  if (own && round.next?.fate === "bonus") return t("All verified drafts ({n}) were accepted, so {token} is a bonus, drawn from the target's law after them.", { n: round.verifyLen, token: spoken(round.next.text) });
  if (own) return t("{token} replaces the rejected draft {n}; it was drawn from the residual law.", { token: spoken(round.next.text), n: round.accepted + 1 });
  const token = round.draft[position];
  if (token.fate === "unverified") return t("{token} was drafted, but the scheduler cut before it: {reason}.", { token: spoken(token.text), reason: round.reason });
  const rule = `min(1, ${fixed(token.targetProb, 4)} / ${fixed(token.draftProb, 4)})`;
  const chance = laws?.greedy || (token.acceptProb === 0 && token.targetProb > 0)
    ? token.acceptProb === 1 ? t("the target's most likely token is this one") : t("the target's most likely token is another one")
    : `${rule} = ${fixed(token.acceptProb, 4)}`;
  if (token.fate === "discarded") return t("{token} was verified in vain: the round had ended before it ({chance}).", { token: spoken(token.text), chance });
  const uniform = token.uniform === null ? t("nothing had to be drawn") : token.fate === "accepted" ? t("the uniform {value} is below it", { value: fixed(token.uniform, 4) }) : t("the uniform {value} is not below it", { value: fixed(token.uniform, 4) });
  const end = token.fate === "rejected" && round.next ? ` ${t("In its place came {token}.", { token: spoken(round.next.text) })}` : "";
  return `${token.fate === "accepted" ? t("{token} was accepted: {chance}; {uniform}.", { token: spoken(token.text), chance, uniform }) : t("{token} was rejected: {chance}; {uniform}.", { token: spoken(token.text), chance, uniform })}${end}`;
}
