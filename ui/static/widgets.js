// The pictures of the lessons. Each is drawn into its figure from recorded data, and says where its numbers come from.
import { candidateTable } from "./laws.js";
import { Picture } from "./picture.js";
import { tokenNode } from "./ribbon.js";
import { fixed, make, ms, setText, spoken } from "./text.js";
import { later, t } from "./words.js";

function slider(words, { min, max, value, step = 1, format }, draw) {
  const label = make("label", "ds-slider");
  const input = make("input");
  Object.assign(input, { type: "range", min, max, step, value });
  const shown = make("output");
  const update = () => {
    setText(shown, format(Number(input.value)));
    input.setAttribute("aria-valuetext", shown.textContent);
    draw(Number(input.value));
  };
  input.addEventListener("input", update);
  label.append(make("span", "", words), input, shown);
  return { label, update };
}

const said = (kind, words) => {
  const note = make("figcaption", "ds-said-by");
  note.append(make("b", "", kind), make("span", "", words));
  return note;
};

const recordedNote = (data) => said(t("recorded"), data.made);
const scale = (...numbers) => Math.max(...numbers) * 1.15;

function pictureIn(figure, words) {
  const svg = figure.querySelector("svg");
  svg.setAttribute("aria-label", words);
  return svg;
}

function memory(figure, data) {
  const svg = pictureIn(figure, t("Time of a pass by its tokens"));
  const words = make("p", "ds-outcome");
  const [[, alone]] = data.curve;
  const control = slider(t("tokens in the pass"), { min: 0, max: data.curve.length - 1, value: 0, format: (at) => String(data.curve[at][0]) }, (chosen) => {
    const top = scale(...data.curve.map(([, seconds]) => seconds * 1000));
    const picture = new Picture(svg, {
      first: 0, last: data.curve.length - 1, high: top, ticks: [0, top / 2], format: (value) => `${Math.round(value)} ms`, label: (at) => String(data.curve[at][0]),
    });
    data.curve.forEach(([, seconds], at) => {
      const bar = picture.bar(at, seconds * 1000, at === chosen ? "ds-bar-chosen" : "ds-bar-other");
      picture.text(bar.x, bar.y - 4, ms(seconds), "middle");
    });
    const [tokens, seconds] = data.curve[chosen];
    if (tokens === 1) return setText(words, t("A pass over one token takes {ms} ms.", { ms: ms(seconds) }));
    setText(words, t("A pass over {tokens} tokens takes {ms} ms, {times} times as long as over one. Each token costs {each} ms.", {
      tokens, ms: ms(seconds), times: fixed(seconds / alone, 2), each: ms(seconds / tokens),
    }));
  });
  figure.append(control.label, svg, words, recordedNote(data));
  control.update();
}

const STEPS = [
  later("The anchor is the last token that stands. Press “Next step”."),
  later("The drafter has guessed these tokens. Nobody has checked them."),
  later("The scheduler sends these to the target; the line shows where it cut."),
  later("The target has read them all in one pass: what it agrees with is marked ✓, the first disagreement ✗, what follows it ⊘."),
  later("The accepted drafts and one token of the target's own are committed: that is τ of this round."),
];

function draft(figure, data) {
  const round = data.rounds[data.telling];
  const strip = make("div", "ds-strip");
  const words = make("p", "ds-outcome");
  words.setAttribute("aria-live", "polite");
  const next = make("button", "", t("Next step"));
  next.type = "button";
  let step = 0;
  const show = () => {
    const anchor = make("span", "ds-anchor");
    anchor.append(make("span", "", t("anchor")), make("code", "", spoken(round.anchor)));
    const parts = [anchor];
    round.draft.forEach((token, at) => {
      if (step === 0) return;
      const node = tokenNode(step < 3 ? { ...token, fate: "unverified" } : token, 0, at);
      node.removeAttribute("role");
      if (step > 3 && token.fate !== "accepted") node.classList.add("ds-gone");
      parts.push(node);
      if (step > 1 && at + 1 === round.verifyLen) parts.push(make("span", "ds-cut", `ℓ = ${round.verifyLen}`));
    });
    if (step > 3 && round.next) parts.push(make("span", "ds-then", t("target:")), tokenNode(round.next, 0, round.draft.length));
    strip.replaceChildren(...parts);
    const tau = step === 4 ? ` τ\u00a0=\u00a0${round.accepted + 1}.` : "";
    setText(words, t(STEPS[step]) + tau);
    setText(next, step === STEPS.length - 1 ? t("Once more") : t("Next step"));
  };
  next.addEventListener("click", () => {
    step = (step + 1) % STEPS.length;
    show();
  });
  figure.append(strip, next, words, recordedNote(data));
  show();
}

const TOKENS = ["A", "B", "C"];
const TARGET = [0.6, 0.3, 0.1];
const DRAFT = [0.2, 0.3, 0.5];

const pick = (weights) => {
  let left = Math.random() * weights.reduce((sum, weight) => sum + weight, 0);
  return Math.max(0, weights.findIndex((weight) => (left -= weight) < 0));
};

function emitted(keepAll) {
  const drafted = pick(DRAFT);
  if (keepAll || Math.random() < TARGET[drafted] / DRAFT[drafted]) return drafted;
  return pick(TARGET.map((share, token) => Math.max(0, share - DRAFT[token])));
}

function lossless(figure) {
  const svg = pictureIn(figure, t("Frequencies of three tokens beside the target's and the drafter's law"));
  const words = make("p", "ds-outcome");
  words.setAttribute("aria-live", "polite");
  const keep = make("input");
  keep.type = "checkbox";
  const label = make("label", "ds-tick");
  label.append(keep, make("span", "", t("keep every draft (breaks the rule)")));
  let counts = [0, 0, 0];
  const show = () => {
    const total = counts.reduce((sum, count) => sum + count, 0);
    const picture = new Picture(svg, { first: 0, last: 8, ticks: [0, 0.5], high: 0.75, format: (value) => fixed(value, 1), label: (at) => (at % 3 === 1 ? TOKENS[(at - 1) / 3] : "") });
    TOKENS.forEach((_, token) => {
      picture.bar(3 * token, DRAFT[token], "ds-bar-draft");
      picture.bar(3 * token + 1, TARGET[token], "ds-bar-target");
      const bar = picture.bar(3 * token + 2, total ? counts[token] / total : 0, "ds-bar-chosen");
      if (total) picture.text(bar.x, bar.y - 4, fixed(counts[token] / total, 3), "middle");
    });
    setText(words, total
      ? t("{total} {total:token|tokens} drawn: A {a}, B {b}, C {c}.", { total, a: counts[0], b: counts[1], c: counts[2] })
      : t("Nothing drawn yet."));
  };
  const draw = (times) => {
    for (let i = 0; i < times; i += 1) counts[emitted(keep.checked)] += 1;
    show();
  };
  const forget = () => {
    counts = [0, 0, 0];
    show();
  };
  const buttons = [[t("Draw one"), () => draw(1)], [t("Draw a thousand"), () => draw(1000)], [t("Start over"), forget]].map(([name, act]) => {
    const button = make("button", "", name);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  });
  keep.addEventListener("change", forget);
  const row = make("div", "ds-buttons");
  row.append(...buttons, label);
  const legend = make("p", "ds-legend");
  for (const [name, kind] of [[t("draft law"), "draft"], [t("target law"), "target"], [t("drawn"), "chosen"]]) {
    legend.append(make("i", `ds-box ds-box-${kind}`), make("span", "", name));
  }
  figure.append(row, svg, legend, words, said(t("simulated"), t("in your browser, with a made-up vocabulary of three tokens")));
  show();
}

const LINES = [["dspark", "ds-line-confidence", "ds-swatch"], ["dflash", "ds-line-survival", "ds-swatch ds-swatch-a"]];

function decay(figure, data) {
  const svg = pictureIn(figure, t("Conditional acceptance by position"));
  const { drafters, date } = data.acceptance;
  const positions = drafters.dspark.acceptance_by_position.length;
  const picture = new Picture(svg, { first: 1, last: positions, ticks: [0, 0.25, 0.5, 0.75], high: 0.85, format: (value) => fixed(value, 2) });
  const legend = make("p", "ds-legend");
  const table = make("table", "ds-numbers");
  const head = make("tr");
  head.append(make("th", "", t("position")), ...LINES.flatMap(([name]) => [make("th", "", name), make("th", "", t("95 % interval")), make("th", "", "n")]));
  const rows = Array.from({ length: positions }, (_, at) => {
    const row = make("tr");
    row.append(make("th", "", String(at + 1)));
    return row;
  });
  for (const [name, line, swatch] of LINES) {
    const { acceptance_by_position: shares, acceptance_intervals: intervals, n_by_position: seen } = drafters[name];
    picture.path(shares.map((share, at) => [at + 1, share]).filter(([, share]) => share !== null), line);
    shares.forEach((share, at) => {
      const [low, high] = intervals[at] ?? [null, null];
      if (low !== null) picture.line(picture.x(at + 1), picture.y(low), picture.x(at + 1), picture.y(high), `ds-interval ${line}`);
      rows[at].append(make("td", "", fixed(share, 3)), make("td", "", low === null ? "–" : `${fixed(low)} – ${fixed(high)}`), make("td", "", String(seen[at])));
    });
    legend.append(make("i", swatch), make("span", "", name === "dspark" ? t("dspark: with the sequential head") : t("dflash: parallel only")));
  }
  const body = make("tbody");
  body.append(...rows);
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  const box = make("div", "ds-scroll");
  box.tabIndex = 0;
  box.append(table);
  figure.append(legend, svg, box, said(t("recorded"), t("evaluation of {date}, greedy, all prompt sets", { date: date.slice(0, 10) })));
}

function semi(figure, data) {
  const index = data.telling;
  const round = data.rounds[index];
  const strip = make("div", "ds-strip");
  const table = make("table", "ds-candidates");
  table.append(make("thead"), make("tbody"));
  const box = make("div", "ds-scroll");
  box.append(table);
  const note = make("p", "ds-sub");
  const show = (chosen) => {
    strip.replaceChildren(...round.draft.map((token, at) => {
      const node = tokenNode(token, 0, at);
      node.setAttribute("role", "button");
      node.setAttribute("aria-pressed", String(at === chosen));
      node.setAttribute("aria-selected", String(at === chosen));
      node.tabIndex = 0;
      node.addEventListener("click", () => show(at));
      node.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") show(at);
        if (event.key === " ") event.preventDefault();
      });
      return node;
    }));
    candidateTable(table, note, round, chosen, data.laws[index]);
  };
  figure.append(strip, box, note, recordedNote(data));
  show(Math.min(1, round.draft.length - 1));
}

// What a threshold would have left of a recorded round, all of whose drafts were verified: its cut is before the first
// confidence below it, and of what is left the accepted prefix stands.
function cutAt(round, threshold) {
  const below = round.draft.findIndex((token) => token.confidence < threshold);
  const verified = below < 0 ? round.draft.length : below;
  return { verified, accepted: Math.min(verified, round.accepted) };
}

function confidence(figure, data) {
  const svg = pictureIn(figure, t("Confidence by position and the threshold"));
  const round = data.rounds[data.telling];
  const words = make("p", "ds-outcome");
  const control = slider(t("threshold"), { min: 0, max: 0.95, step: 0.05, value: 0.3, format: (value) => fixed(value) }, (threshold) => {
    const cut = cutAt(round, threshold);
    const picture = new Picture(svg, { first: 1, last: round.draft.length, ticks: [0, 0.5, 1], format: (value) => fixed(value, 1) });
    if (cut.verified < round.draft.length) picture.shade(cut.verified + 1, t("not verified"));
    picture.level(threshold, t("threshold"));
    picture.path(round.draft.map((token, at) => [at + 1, token.confidence]), "ds-line-confidence");
    round.draft.forEach((token, at) => picture.dot(at + 1, token.confidence, "ds-dot-fate", at < cut.verified ? token.fate : "unverified"));
    const all = data.rounds.map((each) => cutAt(each, threshold));
    const sum = (key) => all.reduce((total, each) => total + each[key], 0);
    setText(words, t("In all {rounds} rounds: {verified} {verified:draft|drafts} verified, {accepted} accepted, {wasted} wasted; {tau} tokens a round.", {
      rounds: all.length, verified: sum("verified"), accepted: sum("accepted"), wasted: sum("verified") - sum("accepted"), tau: fixed(1 + sum("accepted") / all.length, 2),
    }));
  });
  figure.append(control.label, svg, words, said(t("recorded"), t("{made}; recomputed for each threshold from rounds that verified all drafts", { made: data.made })));
  control.update();
}

function load(figure, data) {
  const svg = pictureIn(figure, t("Mean verification length by users"));
  const words = make("p", "ds-outcome");
  const mean = (entry) => entry.lengths.flat().reduce((sum, length) => sum + length, 0) / entry.lengths.flat().length;
  const rate = (entry) => entry.throughputs.reduce((sum, value) => sum + value, 0) / entry.throughputs.length;
  const all = data.users.map(mean);
  const control = slider(t("users"), { min: 0, max: data.users.length - 1, value: 0, format: (at) => String(data.users[at].users) }, (chosen) => {
    const top = scale(...all);
    const picture = new Picture(svg, { first: 0, last: all.length - 1, high: top, ticks: [0, top / 2], format: (value) => fixed(value, 1), label: (at) => String(data.users[at].users) });
    all.forEach((value, at) => {
      const bar = picture.bar(at, value, at === chosen ? "ds-bar-chosen" : "ds-bar-other");
      picture.text(bar.x, bar.y - 4, fixed(value), "middle");
    });
    const entry = data.users[chosen];
    const round = data.telling;
    setText(words, t("With {users} {users:user|users} a request verifies {length} drafts a round on average, and Θ is {theta} tokens a second for all. One round: {reason}.", {
      users: entry.users, length: fixed(all[chosen]), theta: Math.round(rate(entry)), reason: entry.reasons[round],
    }));
  });
  figure.append(control.label, svg, words, said(t("computed"), t("by the policy prefix from recorded confidences and step times; {made}", { made: data.made })));
  control.update();
}

function rebound(figure) {
  const svg = pictureIn(figure, t("Total use by elasticity"));
  const words = make("p", "ds-outcome");
  let elasticity = 1.2;
  let speed = 2;
  const at = (index) => index / 5;
  const total = (each) => speed ** (each - 1);
  const show = () => {
    const picture = new Picture(svg, { first: 0, last: 10, high: Math.max(2.2, total(2) * 1.05), ticks: [0, 1], format: (value) => fixed(value, 1), label: (index) => fixed(at(index), 1) });
    picture.level(1, t("as before"));
    picture.path(Array.from({ length: 11 }, (_, index) => [index, total(at(index))]), "ds-line-confidence");
    picture.dot(elasticity * 5, total(elasticity), "ds-dot-fate");
    setText(words, t("{speed} times the speed, elasticity {elasticity}: a token costs {price} of before, {demand} times as many are used, the total is {total} of before.", {
      speed: fixed(speed, 1), elasticity: fixed(elasticity, 1), price: fixed(1 / speed), demand: fixed(speed ** elasticity), total: fixed(total(elasticity)),
    }));
  };
  const one = slider(t("elasticity"), { min: 0, max: 2, step: 0.1, value: elasticity, format: (value) => fixed(value, 1) }, (value) => {
    elasticity = value;
    show();
  });
  const two = slider(t("speed-up"), { min: 1, max: 4, step: 0.1, value: speed, format: (value) => `× ${fixed(value, 1)}` }, (value) => {
    speed = value;
    show();
  });
  figure.append(one.label, two.label, svg, words, said(t("simulated"), t("a formula with constant elasticity, no measurement")));
  one.update();
  two.update();
}

const WIDGETS = { memory, draft, lossless, decay, semi, confidence, load, rebound };

export function drawWidgets(root, data) {
  for (const figure of root.querySelectorAll("[data-widget]")) {
    figure.replaceChildren(...figure.querySelectorAll("svg"));
    WIDGETS[figure.dataset.widget](figure, data);
  }
}
