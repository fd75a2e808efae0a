// The tab Race: lanes that ran one after the other, replayed side by side on one clock.
import { drawNotes, drawSame, drawTable } from "./race_figures.js";
import { Lanes } from "./race_lanes.js";
import { OPEN, watchSight } from "./sight.js";
import { count, fixed, setText, spoken } from "./text.js";
import { currentLanguage, t } from "./words.js";

const STEPS = 1000;
const FRAME_MS = 50; // at most 20 drawings a second

// What comes from the server, reduced: the last state, the last whole report, and what was refused.
class Heard {
  constructor() {
    this.race = null;
    this.seq = 0;
    this.state = "";
    this.refused = "";
    this.fresh = 0; // rises with every whole report
    this.report = null;
  }

  take(message) {
    if (message.state === "refused") {
      this.refused = message.text;
      return;
    }
    if (message.race !== this.race) {
      Object.assign(this, { race: message.race, seq: 0, report: null, refused: "", about: message.about });
    }
    if (message.seq <= this.seq) return;
    this.seq = message.seq;
    this.state = message.state;
    this.now = message.now;
    if (!message.report) return;
    this.report = message.report;
    this.fresh += 1;
  }

  get running() {
    return this.state === "running";
  }
}

function nowWords({ now, about }) {
  if (!now) return "";
  const values = { lane: now.lane, repeat: now.repeat + 1, repeats: about.repeats };
  if (now.phase === "waiting") return t("Waiting for an idle moment, so that nobody slows {lane}; after a while it runs all the same, and is marked.", values);
  if (now.phase === "warm-up") return t("Warm-up of {lane}, left out of the figures.", values);
  if (now.phase === "comparing") return t("Comparing the texts: {lane}.", values);
  return about.repeats > 1 ? t("{lane} runs alone, repeat {repeat} of {repeats}.", values) : t("{lane} runs alone.", values);
}

function aboutWords(about) {
  const law = about.temperature === 0 ? t("greedy") : t("temperature {x}", { x: about.temperature });
  return `${spoken(about.prompt.length > 60 ? `${about.prompt.slice(0, 60)}…` : about.prompt)} · ${law} · ${t("at most {n} {n:token|tokens}", { n: count(about.max_tokens) })} · ${t("seed {seed}", about)}`;
}

// The one clock.
class Clock {
  constructor(draw) {
    this.draw = draw;
    this.at = 0;
    this.end = 0;
    this.rate = 1;
    this.playing = false;
    this.last = 0;
  }

  set(seconds) {
    this.at = Math.min(this.end, Math.max(0, seconds));
    this.draw();
  }

  play() {
    if (this.at >= this.end) this.at = 0;
    this.playing = true;
    this.last = performance.now();
    this.tick();
    this.draw();
  }

  pause() {
    this.playing = false;
    this.draw();
  }

  tick() {
    setTimeout(() => requestAnimationFrame(() => {
      if (!this.playing) return;
      const now = performance.now();
      this.at += ((now - this.last) / 1000) * this.rate;
      this.last = now;
      if (this.at >= this.end) {
        this.at = this.end;
        this.playing = false;
      } else this.tick();
      this.draw();
    }), FRAME_MS);
  }
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function mountRace(root, store) {
  const at = (selector) => root.querySelector(selector);
  const heard = new Heard();
  const lanes = new Lanes(at(".ds-lanes"));
  const slider = at(".ds-replay input");
  const button = at(".ds-play");
  const clock = new Clock(() => drawReplay());
  let shown = ""; // the race and report drawn
  let raced = null; // whose lanes stand there
  let replayed = null; // the race whose replay has begun

  function drawReplay() {
    if (!heard.report || heard.running) return;
    lanes.drawAt(heard.report, clock.at, clock.end);
    slider.value = clock.end > 0 ? Math.round((STEPS * clock.at) / clock.end) : 0;
    slider.setAttribute("aria-valuetext", t("{s} of {end} seconds", { s: fixed(clock.at), end: fixed(clock.end) }));
    setText(at(".ds-clock"), `${fixed(clock.at)} s`);
    setText(button, clock.playing ? t("Pause") : t("Play"));
  }

  function beginReplay() {
    replayed = heard.race;
    clock.end = Math.max(0, ...heard.report.lanes.map((lane) => lane.finish_s ?? 0));
    clock.at = calm() ? clock.end : 0;
    if (clock.end > 0 && !calm()) clock.play();
    else drawReplay();
  }

  function drawRace() {
    if (heard.race !== raced) {
      raced = heard.race;
      clock.playing = false;
      lanes.reset(heard.about.lanes);
    }
    const { running, report, about } = heard;
    setText(at(".ds-race-now"), running ? nowWords(heard) : "");
    at(".ds-race-now").hidden = !running;
    at(".ds-replay").hidden = running || !report;
    if (running) lanes.drawLive(heard);
    const seen = [heard.race, heard.fresh, heard.state, currentLanguage()].join(" ");
    if (seen === shown) return;
    shown = seen;
    setText(at(".ds-race-about"), aboutWords(about));
    if (!report) return;
    drawTable(at(".ds-race-table"), report);
    drawSame(at(".ds-race-same"), report, about, running);
    drawNotes(at(".ds-race-notes"), report, about);
    if (!running && replayed !== heard.race) beginReplay();
    else drawReplay();
  }

  button.addEventListener("click", () => (clock.playing ? clock.pause() : clock.play()));
  slider.addEventListener("input", () => {
    clock.playing = false;
    clock.set((clock.end * Number(slider.value)) / STEPS);
  });
  at(".ds-speed select").addEventListener("change", (event) => {
    clock.rate = Number(event.target.value);
  });

  const open = watchSight(root, () => store.changed(), OPEN);
  store.subscribe("race", (message) => heard.take(message));
  store.listen(() => {
    if (!open()) return; // another tab
    at(".ds-notice").hidden = heard.refused === "";
    setText(at(".ds-notice"), heard.refused);
    at(".ds-empty").hidden = heard.race !== null;
    at(".ds-race-body").hidden = heard.race === null;
    if (heard.race !== null) drawRace();
  });
}
