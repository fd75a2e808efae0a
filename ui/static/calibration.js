// The tab Calibration: all figures come from the server; the slider chooses among those computed beforehand.
import { drawReliability, drawSpread } from "./reliability.js";
import { fixed, make, setText } from "./text.js";
import { runWords } from "./runwords.js";
import { later, onLanguage, t } from "./words.js";

const KEPT_ANSWERS = 100;
const share = (value) => (value === null ? "–" : `${(value * 100).toFixed(1)} %`);
const SOURCES = {
  recorded: (about) => t("recorded: {label}; {setting}", about),
  collected: (about) => t("measured here: {label}; {setting}", about),
  own: (about) => t("measured here: your answers in this page, {label}", about),
};

// What this page has seen of its own answers: rows [accepted, observed, confidence …] of the latest drafter.
export function watchAnswers(store) {
  let kept = { drafter: "", positions: 0, answers: [] };
  let last = null;
  store.listen(() => {
    const { answer, finish, rounds, prefilled } = store.live; // never a recorded answer, which may be shown instead
    if (!finish || !prefilled || answer === last) return;
    last = answer;
    const told = rounds.filter((round) => round && round.draft.length && round.draft.every((token) => token.confidence !== null));
    if (!told.length) return;
    if (kept.drafter !== prefilled.drafter) kept = { drafter: prefilled.drafter, positions: prefilled.num_draft_tokens, answers: [] };
    kept.answers.push(told.map((round) => {
      const observed = round.next === null ? round.accepted : round.verifyLen;
      return [round.accepted, observed, ...round.draft.slice(0, observed).map((token) => token.rawConfidence ?? token.confidence)];
    }));
    if (kept.answers.length > KEPT_ANSWERS) kept.answers.shift();
  });
  window.dsparkPage.ownRounds = () => (kept.answers.length ? kept : null);
}

export function mountCalibration(root, store, press) {
  const at = (selector) => root.querySelector(selector);
  const [before, after, spread] = root.querySelectorAll(".ds-cal-pictures svg");
  const position = at(".ds-cal-position");
  const slider = at(".ds-cal-slide input");
  let figures = null;
  let about = null;
  let asked = false;

  const chosen = () => Number(position.value) - 1; // -1: all together
  const turns = () => figures.dials[chosen()] ?? [];
  const fittedAt = () => turns().findIndex((turn) => turn[0] === figures.temperatures[chosen()]);

  const drawTable = (turn) => {
    const rows = figures.positions.map(([k, n, survived, ece, reached, auc]) => {
      const row = make("tr");
      const head = make("th", "", String(k));
      head.scope = "row";
      const now = turn[3][k - 1];
      const afterwards = figures.together[1][3][k - 1];
      row.append(head, ...[fixed(figures.temperatures[k - 1]), String(n), share(survived), share(ece), share(afterwards), now === afterwards ? "–" : share(now), String(reached), fixed(auc)].map((text) => make("td", "", text)));
      if (k - 1 === chosen()) row.className = "ds-chosen";
      return row;
    });
    at(".ds-cal-table tbody").replaceChildren(...rows);
  };

  const draw = () => {
    const all = chosen() < 0;
    const turn = all ? figures.together[1] : turns()[Number(slider.value)];
    at(".ds-cal-slide").hidden = at(".ds-cal-back").hidden = all;
    const plain = all ? figures.together[0][1] : figures.positions[chosen()][6];
    drawReliability(before, plain);
    drawReliability(after, turn[1]);
    drawSpread(spread, turn[2]);
    const ece = all ? figures.together[0][4] : figures.positions[chosen()][3];
    const now = all ? turn[4] : turn[3][chosen()];
    const words = all ? later("mean ECE over the positions {ece}") : later("ECE {ece}");
    setText(at(".ds-cal-before"), t(words, { ece: share(ece) }));
    setText(at(".ds-cal-after"), t(words, { ece: share(now) }));
    setText(at(".ds-cal-spread"), t("filled: accepted; AUC {auc}", { auc: all ? t("by position, below") : fixed(figures.positions[chosen()][5]) }));
    const output = at(".ds-cal-slide output");
    if (!all) setText(output, Number(slider.value) === fittedAt() ? t("T = {value} (fitted)", { value: fixed(turn[0]) }) : t("T = {value}", { value: fixed(turn[0]) }));
    slider.setAttribute("aria-valuetext", output.textContent);
    drawTable(turn);
  };

  const choose = () => {
    if (chosen() >= 0) {
      slider.max = turns().length - 1;
      slider.value = fittedAt();
    }
    draw();
  };

  const show = () => {
    at(".ds-cal-empty").hidden = true;
    at(".ds-cal-body").hidden = false;
    const held = position.value;
    const entry = (value, words) => Object.assign(make("option", "", words), { value });
    const open = figures.dials.flatMap((dial, index) => (dial.length ? [index + 1] : []));
    position.replaceChildren(entry("0", t("all together")), ...open.map((k) => entry(String(k), t("position {k}", { k }))));
    position.value = open.includes(Number(held)) ? held : "0";
    setText(at(".ds-cal-from"), SOURCES[about.source](about));
    setText(at(".ds-cal-summary"), figures.fitted
      ? t("Fitted on {fit} {fit:round|rounds}, measured on {rounds} {rounds:other|others}: mean ECE of the survival {before} before, {after} after.", { fit: figures.fit_rounds, rounds: figures.rounds, before: share(figures.together[0][4]), after: share(figures.together[1][4]) })
      : t("{rounds} {rounds:round|rounds} of one answer: too few to fit and to measure apart. Two answers or more are needed.", { rounds: figures.rounds }));
    at(".ds-cal-notes").replaceChildren(...figures.notes.map((note) => make("li", "", note)));
    choose();
  };

  position.addEventListener("change", choose);
  slider.addEventListener("input", draw);
  at(".ds-cal-back").addEventListener("click", choose);
  store.subscribe("calibration", (message) => {
    // The set that comes by itself gives way to whatever the visitor asked for, however late it arrives.
    if (message.unasked && asked) return;
    asked ||= !message.unasked;
    runWords(at(".ds-cal-run"), message.run);
    if (!message.figures) return;
    ({ figures, about } = message);
    show();
  });
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    if (!asked) press(); // the recorded set, once the tab has been opened
  }, { rootMargin: "4000px" }); // on a phone the panel begins below the fold
  watch.observe(root);
  onLanguage(() => figures && show());
}
