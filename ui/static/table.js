// Rounds in words; rows are made only while the table is open.
import { markOf } from "./fates.js";
import { GLANCE_MS } from "./store.js";
import { fixed, make, ms, spoken } from "./text.js";
import { t } from "./words.js";

const KEPT = 400;

// Policy, the numbers it heeds beside its bounds, and the load that it judged by.
function judgedBy({ policy, threshold, bandLow, bandHigh, signal }) {
  if (policy === "threshold") return `${policy} ${fixed(threshold)}`;
  if (policy !== "banded") return policy;
  return `${policy} ${fixed(bandLow)}–${fixed(bandHigh)}${signal ? t(", load {value} ({name})", { value: fixed(signal.value), name: signal.name }) : ""}`;
}

function cells(round) {
  const drafted = make("td", "ds-drafted");
  round.draft.forEach((token) => {
    const item = make("span", "ds-word");
    const mark = make("span", "ds-mark", markOf(token.fate));
    mark.dataset.fate = token.fate;
    mark.setAttribute("aria-hidden", "true");
    item.append(make("code", "", spoken(token.text)), mark, make("span", "", t(token.fate)));
    drafted.append(item);
  });
  if (round.draft.length === 0) drafted.append(t("nothing drafted"));
  const own = make("td");
  if (round.next) own.append(make("code", "", spoken(round.next.text)), ` ${t(round.next.fate)}`);
  else own.append(t("none: the text ended"));
  const plain = (text) => make("td", "", text);
  const code = make("td");
  code.append(make("code", "", spoken(round.anchor)));
  return [
    make("th", "", String(round.index + 1)), code, drafted, plain(String(round.verifyLen)), plain(round.reason),
    plain(String(round.accepted)), own, plain(`${round.lMin}–${round.lMax}, ${judgedBy(round)}${round.stopEarly ? t(", drafting ends at the cut") : ""}`),
    plain(ms(round.seconds.draft)), plain(ms(round.seconds.schedule)), plain(ms(round.seconds.verify)),
  ];
}

function rowOf(round, index) {
  const row = make("tr");
  if (round) {
    row.append(...cells(round));
    row.firstElementChild.scope = "row";
  } else {
    const cell = make("td", "", t("round {n} comes with the end of the answer", { n: index + 1 }));
    cell.colSpan = 11;
    row.append(cell);
  }
  return row;
}

export function mountTable(root, store) {
  const details = root.querySelector("details");
  const body = root.querySelector("tbody");
  const earlier = root.querySelector(".ds-earlier");
  let epoch = -1;
  let drawn = 0;
  let first = 0;

  const draw = () => {
    if (store.epoch !== epoch) {
      epoch = store.epoch;
      body.replaceChildren();
      drawn = first = 0;
    }
    if (!details.open) return;
    if (store.rounds.length - drawn > KEPT) {
      body.replaceChildren();
      drawn = first = store.rounds.length - KEPT;
    }
    const rows = document.createDocumentFragment();
    for (; drawn < store.rounds.length; drawn += 1) rows.append(rowOf(store.rounds[drawn], drawn));
    body.append(rows);
    earlier.hidden = first === 0;
    earlier.textContent = t("Show {n} of {all} earlier rounds", { n: Math.min(first, KEPT), all: first });
  };

  earlier.addEventListener("click", () => {
    const from = Math.max(0, first - KEPT);
    const rows = document.createDocumentFragment();
    for (let i = from; i < first; i += 1) rows.append(rowOf(store.rounds[i], i));
    body.prepend(rows);
    first = from;
    draw();
  });
  details.addEventListener("toggle", draw);
  store.listen(draw, () => GLANCE_MS);
}
