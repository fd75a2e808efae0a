// The tab Lab: texts of plain decoding beside those of a policy, and the paper's toy.
import { runWords } from "./runwords.js";
import { count, fixed, make, setText, visible } from "./text.js";
import { onLanguage, t } from "./words.js";

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");

function viewName(places) {
  if (places.length > 1) return t("the first {n} tokens together", { n: places.length });
  return t("token {k}", { k: places[0] });
}

function shareCell(part, whole, className) {
  const cell = make("td", `ds-share ${className}`);
  const bar = make("i");
  bar.style.width = `${whole ? (100 * part) / whole : 0}%`;
  cell.append(make("span", "", `${percent(part, whole)} · ${count(part)}`), bar);
  return cell;
}

function rowOf(words, counts, sizes) {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  head.append(...words);
  row.append(head, shareCell(counts[0], sizes[0], "ds-of-plain"), shareCell(counts[1], sizes[1], "ds-of-other"));
  return row;
}

// null stands for a text that had ended.
const word = (text) => (text === null ? make("i", "ds-ended", t("text ended")) : make("code", "", visible(text)));

const shortP = (p) => (p < 0.0001 ? p.toExponential(1) : fixed(p, 4));

export function verdictOf([statistic, degrees, p, n, cells, pooled]) {
  if (p === null) return { level: "none", text: t("Nothing to compare: {n} texts, and all fall into one cell. Take more texts, another prompt or a higher temperature.", { n: count(n) }) };
  const numbers = t("χ² = {statistic}, degrees of freedom {degrees}, p = {p}; {n} {n:text|texts}, {cells} {cells:cell|cells}, {pooled} {pooled:outcome|outcomes} pooled because fewer than 5 were expected.", {
    statistic: fixed(statistic), degrees, p: shortP(p), n: count(n), cells, pooled,
  });
  if (p >= 0.05) return { level: "same", text: `${t("No difference found: what parts the two is what chance does.")} ${numbers}` };
  if (p >= 0.001) return { level: "unsure", text: `${t("A difference that chance alone makes once in {times} {times:try|tries}. Compare again: new texts are drawn.", { times: count(Math.round(1 / p)) })} ${numbers}` };
  return { level: "differ", text: `${t("The laws differ: chance does not explain this.")} ${numbers}` };
}

export function mountLab(root, store) {
  const at = (selector) => root.querySelector(selector);
  const choice = at(".ds-lab-view");
  let views = [];
  let run = null;

  const draw = () => {
    const view = views[Number(choice.value)] ?? views[0];
    if (!view) return;
    const sizes = [0, 1].map((lane) => view.rows.reduce((sum, row) => sum + row[lane + 1], view.rest[lane + 1]));
    const rows = view.rows.map(([words, ...counts]) => rowOf(words.map(word), counts, sizes));
    if (view.rest[0]) rows.push(rowOf([make("span", "", t("{n} rarer {n:one|ones}", { n: view.rest[0] }))], view.rest.slice(1), sizes));
    at(".ds-lab-table tbody").replaceChildren(...rows);
    const verdict = verdictOf(view.verdict);
    at(".ds-lab-verdict").dataset.level = verdict.level;
    setText(at(".ds-lab-verdict"), verdict.text);
  };

  const names = (anew) => {
    const held = choice.value;
    if (choice.options.length === views.length && !anew) return; // a list that is open stays open
    choice.replaceChildren(...views.map(({ places }, index) => Object.assign(make("option", "", viewName(places)), { value: String(index) })));
    const pair = views.findIndex(({ places }) => places.length === 2);
    choice.value = held && Number(held) < views.length ? held : String(Math.max(0, pair));
  };

  choice.addEventListener("change", draw);
  const show = (anew = false) => {
    if (!views.length) return;
    const heeds = run.threshold === null ? "" : ` ${fixed(run.threshold)}`;
    setText(at(".ds-lab-from"), t("measured here: {drafter}, {policy}, L {low}–{high}, temperature {temperature}, seed {seed}", {
      drafter: run.drafter, policy: `${run.policy}${heeds}`, low: run.bounds[0], high: run.bounds[1], temperature: run.temperature, seed: run.seed,
    }));
    names(anew);
    draw();
  };

  onLanguage(() => show(true));
  store.subscribe("lab", ({ run: stands, views: told }) => {
    const done = stands.done ? stands.done[0] + stands.done[1] : 0;
    runWords(at(".ds-lab-run"), stands.done ? { ...stands, done, total: 2 * stands.texts } : stands);
    if (!told) return;
    [run, views] = [stands, told];
    at(".ds-lab-empty").hidden = true;
    at(".ds-lab-body").hidden = false;
    show();
  });
}

function toyBars(figure, toy, policy) {
  const told = toy.policies[policy];
  const counts = toy.counts?.[policy];
  const caption = make("figcaption");
  caption.append(make("b", "", policy), make("span", told.lossless ? "ds-toy-good" : "ds-toy-bad", told.lossless ? t("keeps the target's law") : t("bends the target's law")));
  const rows = toy.tokens.map((token, index) => {
    const row = make("div", "ds-toy-row");
    const drawn = counts ? counts[index] / (counts[0] + counts[1]) : null;
    const track = make("div", "ds-toy-track");
    const bar = make("i", "ds-toy-bar");
    bar.style.width = `${100 * (drawn ?? told.law[index])}%`;
    const mark = make("i", "ds-toy-mark");
    mark.style.left = `${100 * toy.target[index]}%`;
    track.append(bar, mark);
    const sampled = drawn === null ? "" : `, ${t("drawn {share}", { share: fixed(drawn, 3) })}`;
    row.append(make("b", "", token), track, make("span", "ds-toy-number", `${t("exact {share}", { share: fixed(told.law[index], 2) })}${sampled}`));
    return row;
  });
  figure.replaceChildren(caption, ...rows, make("p", "ds-sub", t("The line marks the target's own law.")));
}

function toyTable(body, toy) {
  const rows = Object.entries(toy.policies).flatMap(([policy, { branches, law }]) => branches.map(([first, probability, confidences, , throughputs, length, reason, , ownLaw], index) => {
    const row = make("tr");
    const cells = [`${toy.tokens[first]} (${fixed(probability, 1)})`, confidences.map((c) => fixed(c, 1)).join(", "), throughputs.map((theta) => fixed(theta, 2)).join(", "), String(length), `${fixed(ownLaw[0], 2)}${index ? t("; in all {share}", { share: fixed(law[0], 2) }) : ""}`];
    const head = make("th", "", index ? "" : policy);
    head.scope = "row";
    row.append(head, ...cells.map((text) => make("td", "", text)));
    row.children[4].dataset.tip = reason;
    return row;
  }));
  body.replaceChildren(...rows);
}

export function mountToy(root, store, press) {
  const at = (selector) => root.querySelector(selector);
  const choice = at(".ds-toy-policy");
  let toy = null;

  const draw = () => {
    toyBars(at('[data-policy="retrospective"]'), toy, "retrospective");
    toyBars(at('[data-policy="prefix"]'), toy, choice.value);
    const counts = toy.counts && Object.values(toy.counts)[0];
    setText(at(".ds-toy-count"), counts ? t("{n} texts of each drawn", { n: count(counts[0] + counts[1]) }) : "");
  };

  choice.addEventListener("change", draw);
  onLanguage(() => {
    if (!toy) return;
    toyTable(at(".ds-toy-table tbody"), toy);
    draw();
  });
  at(".ds-toy-draw").addEventListener("click", () => press());
  store.subscribe("toy", (message) => {
    const counts = message.counts ?? toy?.counts ?? null;
    toy = { ...message, counts };
    if (!choice.options.length) {
      const lossless = Object.keys(toy.policies).filter((policy) => toy.policies[policy].lossless);
      choice.replaceChildren(...lossless.map((policy) => Object.assign(make("option", "", policy), { value: policy })));
      choice.value = "prefix";
      toyTable(at(".ds-toy-table tbody"), toy);
    }
    draw();
  });
}
