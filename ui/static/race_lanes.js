// The lanes of a race, drawn at any moment of the one clock: how many tokens each had by then, and its text.
import { fixed, make, setText } from "./text.js";
import { t } from "./words.js";

// How many rounds of the track had ended at a moment.
export function roundsBy(track, seconds) {
  let low = 0;
  let high = track.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track[middle][0] <= seconds + 1e-9) low = middle + 1;
    else high = middle;
  }
  return low;
}

class Lane {
  constructor(name) {
    this.node = make("article", "ds-lane");
    this.node.setAttribute("aria-label", t("Lane {name}", { name }));
    const head = make("div", "ds-lane-head");
    this.clock = make("span", "ds-lane-clock");
    head.append(make("span", "ds-lane-name", name), this.clock);
    const bar = make("div", "ds-lane-bar");
    bar.setAttribute("aria-hidden", "true");
    this.fill = make("i");
    bar.append(this.fill);
    this.text = make("div", "ds-lane-text");
    this.text.tabIndex = 0;
    this.error = make("p", "ds-lane-error");
    this.error.hidden = true;
    this.node.append(head, bar, this.error, this.text);
    this.written = 0;
    this.track = null;
  }

  say(words, share) {
    setText(this.clock, words);
    this.fill.style.width = `${Math.round(1000 * Math.min(1, share)) / 10}%`;
  }

  fail(error) {
    this.error.hidden = error === "";
    setText(this.error, error);
  }

  // The text as it stood after so many rounds.
  write(track, rounds) {
    if (track !== this.track || rounds < this.written) {
      this.text.textContent = "";
      this.written = 0;
      this.track = track;
    }
    if (rounds === this.written) return;
    const fresh = track.slice(this.written, rounds).map(([, , text]) => text).join("");
    this.text.append(document.createTextNode(fresh));
    this.written = rounds;
    this.text.scrollTop = this.text.scrollHeight;
  }
}

export class Lanes {
  constructor(box) {
    this.box = box;
    this.lanes = new Map();
  }

  reset(names) {
    this.lanes = new Map(names.map((name) => [name, new Lane(name)]));
    this.box.replaceChildren(...[...this.lanes.values()].map((lane) => lane.node));
  }

  // While the race runs: what each has done, and how far the one is that runs.
  drawLive({ report, now, about }) {
    for (const [name, lane] of this.lanes) {
      const told = report?.lanes.find((one) => one.name === name);
      const laps = told?.laps.length ?? 0;
      lane.fail(told?.error ?? "");
      if (told?.track) lane.write(told.track, told.track.length);
      const runs = now?.lane === name && now.phase === "running";
      if (runs) lane.say(t("running, {n} {n:token|tokens}, {s} s", { n: now.tokens, s: fixed(now.seconds) }), now.tokens / about.max_tokens);
      else if (told?.error) lane.say(t("could not run"), 0);
      else if (laps) lane.say(t("measured, {s} s", { s: fixed(told.finish_s) }), told.figures.tokens / about.max_tokens);
      else lane.say(t("has not run yet"), 0);
    }
  }

  drawAt(report, seconds, end) {
    const most = Math.max(1, ...report.lanes.map((lane) => lane.figures?.tokens ?? 0));
    const finishes = report.lanes.filter((lane) => lane.track).map((lane) => lane.finish_s);
    for (const told of report.lanes) {
      const lane = this.lanes.get(told.name);
      if (!lane) continue;
      lane.fail(told.error);
      if (!told.track) {
        lane.say(told.error ? t("could not run") : t("did not run"), 0);
        continue;
      }
      const rounds = roundsBy(told.track, seconds);
      const tokens = rounds ? told.track[rounds - 1][1] : 0;
      lane.write(told.track, rounds);
      const done = rounds === told.track.length;
      const first = done && told.finish_s === Math.min(...finishes) && told.finish !== "cancelled";
      lane.node.dataset.first = first ? "yes" : "";
      const words = done
        ? told.finish === "cancelled"
          ? t("stopped at {s} s, {n} {n:token|tokens}", { s: fixed(told.finish_s), n: tokens })
          : first && seconds < end
            ? t("first: {s} s, {n} {n:token|tokens}", { s: fixed(told.finish_s), n: tokens })
            : t("finished: {s} s, {n} {n:token|tokens}", { s: fixed(told.finish_s), n: tokens })
        : seconds < told.figures.prefill_s
          ? t("reads the prompt")
          : t("{n} {n:token|tokens}", { n: tokens });
      lane.say(words, tokens / most);
    }
  }
}
