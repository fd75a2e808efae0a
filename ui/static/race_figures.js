// The figures of a race as a table, the comparison of the texts, and what has to be said about both.
import { count, fixed, make, percent, spoken } from "./text.js";
import { later, t } from "./words.js";

function range({ low, high, n }, digits) {
  return n > 1 ? [make("span", "ds-range", `${fixed(low, digits)}–${fixed(high, digits)}`)] : [];
}

function speedCell(lane) {
  const parts = [make("span", "", fixed(lane.speed.median, 1)), ...range(lane.speed, 1)];
  if (lane.laps.some((lap) => lap.disturbed)) {
    const mark = make("span", "ds-disturbed", "⚠");
    mark.tabIndex = 0;
    mark.dataset.tip = t("Somebody else's answer ran beside this lane, so it is slower than it would be alone.");
    parts.splice(1, 0, mark);
  }
  return parts;
}

function ratioCell(lane) {
  if (!lane.ratio) return "–";
  const value = make("span", "ds-ratio", `${fixed(lane.ratio.median)}×`);
  value.dataset.tone = lane.ratio.median >= 1 ? "up" : "down";
  return [value, ...range(lane.ratio, 2)];
}

const countsCell = ({ figures }) => `${count(figures.drafted)} · ${count(figures.verified)} · ${count(figures.accepted)}`;
const wasteCell = ({ figures }) => (figures.verified ? `${count(figures.wasted)} (${percent(figures.wasted / figures.verified)})` : "0");

function timeCell({ figures }) {
  const parts = [["draft", figures.draft_s], ["schedule", figures.schedule_s], ["verify", figures.verify_s]];
  const shares = parts.map(([name, seconds]) => [name, figures.round_s > 0 ? seconds / figures.round_s : 0]);
  const bar = make("div", "ds-bar");
  bar.setAttribute("aria-hidden", "true");
  for (const [name, share] of shares) {
    const part = make("i");
    part.dataset.part = name;
    part.style.width = `${100 * share}%`;
    bar.append(part);
  }
  return [make("span", "", `${shares.map(([, share]) => Math.round(100 * share)).join(" · ")} %`), bar];
}

function energyCell(lane) {
  if (lane.energy_j === null) return t("not measured here");
  return `${fixed(lane.energy_j, 1)} J`;
}

const COLUMNS = [
  [later("tokens/s"), later("Measured: committed tokens per second of round time (draft + schedule + verify; prefill left out). Over several repeats: the median, and the lowest to highest."), speedCell],
  [later("× plain"), later("Measured in this race: tokens/s over those of the lane plain in the same repeat. Below 1 means that drafting cost more than it saved."), ratioCell],
  [later("τ"), later("Committed tokens per round: accepted drafts plus the target's own token."), (lane) => fixed(lane.figures.tau)],
  [later("drafted · verified · accepted"), later("Counts of the answer that is replayed. Acceptance is accepted / verified."), countsCell],
  [later("wasted"), later("Verified in vain: verified − accepted, and its share of the verified."), wasteCell],
  [later("draft · schedule · verify"), later("Where the round time of the answer that is replayed went."), timeCell],
  [later("finish"), later("Seconds from the beginning of the prompt's reading to the last token, by the engine's own clock."), (lane) => `${fixed(lane.finish_s)} s`],
  [later("energy"), later("Joules that the whole device drew during the answer, by its own counter."), energyCell],
];

function cell(content) {
  const made = make("td");
  made.append(...[content].flat());
  return made;
}

export function drawTable(table, report) {
  const head = make("tr");
  head.append(make("th", "", t("lane")), ...COLUMNS.map(([name, definition]) => {
    const made = make("th");
    const inner = make("span", "ds-term", t(name));
    inner.tabIndex = 0;
    inner.dataset.tip = t(definition);
    made.append(inner);
    return made;
  }));
  const rows = report.lanes.filter((lane) => lane.figures).map((lane) => {
    const row = make("tr");
    const name = make("th", "", lane.name);
    name.scope = "row";
    row.append(name, ...COLUMNS.map(([, , value]) => cell(value(lane))));
    return row;
  });
  table.parentElement.hidden = rows.length === 0;
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows);
}

const tokenText = (id, text) => (id === null ? t("the end of the text") : text === "" ? t("token {id}", { id }) : spoken(text));

// Sentences about one lane's text: [words, verdict].
function sameWords(lane, report, about) {
  const same = lane.sameness;
  const name = lane.name;
  if (!same) return null;
  if (same.verdict === "same") return [t("{name}: the same as {reference}, token for token ({n} {n:token|tokens}).", { name, reference: report.reference, n: same.tokens }), "same"];
  if (same.verdict === "so far") return [t("{name}: the same as {reference} as far as both got ({n} {n:token|tokens}); one of them was stopped.", { name, reference: report.reference, n: same.tokens }), "same"];
  const values = {
    name,
    reference: report.reference,
    place: same.tokens + 1,
    ours: tokenText(same.ours, lane.gap?.ours ?? ""),
    theirs: tokenText(same.theirs, lane.gap?.theirs ?? ""),
  };
  const part = t("{name}: differs from {reference}. They part at token {place}: {ours} here, {theirs} there.", values);
  return [`${part} ${gapWords(lane, about)}`, about.dtype === "float32" ? "fault" : "differs"];
}

function gapWords({ gap }, about) {
  const fault = about.dtype === "float32" ? t("In float32 this must not happen: please report it.") : "";
  if (!gap || gap.gap === null) return [t("The logit gap there is not known."), fault].join(" ").trim();
  const size = fixed(Math.abs(gap.gap), 3);
  const words = gap.at_least
    ? t("The logit gap there is at least {gap}, by one extra pass of the target over the same text.", { gap: size })
    : t("The logit gap there is {gap}, by one extra pass of the target over the same text.", { gap: size });
  return [words, fault].join(" ").trim();
}

export function drawSame(box, report, about, running) {
  const greedy = about.temperature === 0;
  const told = greedy ? report.lanes.map((lane) => sameWords(lane, report, about)).filter(Boolean) : [];
  const items = told.map(([words, verdict]) => {
    const item = make("li", "", words);
    item.dataset.verdict = verdict;
    return item;
  });
  box.querySelector("ul").replaceChildren(...items);
  const law = !greedy
    ? t("At temperature {temperature} the texts differ although their law is the same: every lane compares other uniforms with other drafts. So nothing here is called identical; the losslessness lab tests the law itself.", { temperature: about.temperature })
    : told.some(([, verdict]) => verdict === "differs")
      ? t("In {dtype}, a pass over several tokens and a pass over one round differently, so greedy texts may part where two tokens nearly tie.", { dtype: about.dtype })
      : "";
  box.querySelector(".ds-race-law").textContent = law;
  box.hidden = running || (items.length === 0 && law === "");
}

export function drawNotes(list, report, about) {
  const notes = [];
  if (report.stopped) notes.push(t("Stopped before its end: what had been measured by then stays."));
  if (report.disturbed) notes.push(t("⚠ Other answers ran beside the marked lanes: those figures are disturbed, and so is what is divided by them. Race again when nobody else is here."));
  if (!report.lanes.some((lane) => lane.name === "plain" && lane.figures)) notes.push(t("Without the lane plain there is no speed-up to tell: it is never estimated."));
  notes.push(
    report.repeats === 1
      ? t("One run of each lane: a few percent either way are noise. Let each lane run 3 times for a median and its spread.")
      : t("Figures over {n} repeats in rotating order: the median, and lowest to highest. The seed is the same in all, so the spread is the machine's. Replayed is each lane's middle run.", { n: report.repeats }),
  );
  notes.push(t("Measured inside the engine on {device}, {dtype}, after a warm-up run of each lane that is left out.", about));
  if (report.lanes.some((lane) => lane.figures && lane.energy_j === null)) notes.push(t("Energy is not measured here: {reason}", { reason: about.energy_note || t("the device has no counter.") }));
  list.replaceChildren(...notes.map((words) => make("li", "", words)));
}
