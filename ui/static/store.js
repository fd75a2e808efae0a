// The page's state: every message is reduced, drawing happens at most once a frame.
import { AnswerView, FIELDS, loadOf } from "./answer.js";
import { Records } from "./recorded.js";
import { t } from "./words.js";

const LOAD_SAMPLES = 240;
const LONGEST_REST_MS = 600;
export const GLANCE_MS = 400; // between two drawings of what is glanced at, while an answer runs; its text comes sooner

export class Store {
  constructor() {
    this.listeners = [];
    this.left = null; // the timer for what was left out of a drawing
    this.drawnEpoch = null;
    this.scheduled = false;
    this.rested = 0;
    this.status = null;
    this.failed = false; // whether a question for news has failed since an answer last came
    this.away = false; // whether the server does not answer
    this.notice = null;
    this.schedule = null;
    this.controls = null; // policy and load signal that the controls say
    this.live = new AnswerView(); // the visitor's own latest answer
    this.liveLoads = [];
    this.liveChat = null;
    this.recording = null; // a recorded answer that is shown instead of it
    this.closed = new Set();
    this.topics = new Map(); // of other tabs: kind of message -> who takes it
    this.early = []; // what came before its taker
    this.ports = new Map(); // of tabs that send text to the server: name -> send(text)
    this.chosen = null; // the round and position in detail; null follows the newest
    this.lawsWanted = false; // whether the laws behind the rounds are looked at
    this.records = new Records(this);
  }

  // A tab's own messages: take(message) for each of that kind; they are drawn like everything else.
  subscribe(kind, take) {
    this.topics.set(kind, take);
    const early = this.early.filter((message) => message.kind === kind);
    this.early = this.early.filter((message) => message.kind !== kind);
    early.forEach(take);
    this.changed();
  }

  // The answer that all panels show; its fields are properties of the store.
  get view() {
    return this.recording?.view ?? this.live;
  }

  get chat() {
    return this.recording?.chat ?? this.liveChat;
  }

  get loads() {
    return this.recording?.loads ?? this.liveLoads;
  }

  showRecording(recording) {
    this.recording?.pauseTimer();
    this.recording = recording;
    this.chosen = recording?.telling ?? null;
    this.changed();
  }

  forget() {
    this.live.forget();
    this.chosen = null;
  }

  // A new chat: what still comes from the answer that ran is not shown any more.
  close() {
    if (this.live.answer !== null) this.closed.add(this.live.answer);
    this.showRecording(null);
    this.forget();
  }

  // What the tab Rounds shows.
  get shown() {
    const { rounds, laws, prefilled, epoch, recording } = this;
    const which = recording?.label ?? t("the latest answer");
    const from = prefilled ? t("{which}: {drafter}, seed {seed}", { ...prefilled, which }) : "";
    return { rounds, laws, epoch, from };
  }

  choose(round, position = null) {
    this.chosen = round === null ? null : { round, position };
    this.changed();
  }

  // Everything that is drawn is drawn anew: the language has changed.
  startOver() {
    this.live.renew();
    this.recording?.view.renew();
    this.changed();
  }

  // draw(store) is called when something changed; while an answer runs, only when rest() ms have passed since the last
  // time. Each panel that changes has the browser lay out, paint and put together more of the page.
  listen(draw, rest = () => 0) {
    this.listeners.push({ draw, rest, drawn: -Infinity });
    this.changed();
  }

  receive(json) {
    if (typeof json !== "string" || json === "") return;
    const message = JSON.parse(json);
    if (message.kind === "answer") this.reduceAnswer(message);
    else if (message.kind === "status") this.reduceStatus(message);
    else if (message.kind === "chat") this.liveChat = message;
    else if (message.kind === "notice") this.notice = message;
    else if (message.kind === "schedule") this.reduceSchedule(message);
    else if (message.kind === "forget") this.close();
    else if (this.topics.has(message.kind)) this.topics.get(message.kind)(message);
    else this.early.push(message);
    this.changed();
  }

  reduceAnswer(message) {
    if (this.closed.has(message.answer)) return;
    if (message.answer !== this.live.answer) {
      this.forget();
      this.showRecording(null); // whoever asks sees the answer
    }
    this.live.reduce(message);
    this.failed = false;
  }

  reduceStatus(message) {
    this.status = message;
    if (!message.load) return;
    const load = loadOf(message.load);
    const signal = this.live.running ? this.live.rounds.at(-1)?.signal ?? null : null;
    this.liveLoads.push({ t: message.t, load, signal });
    if (this.liveLoads.length > LOAD_SAMPLES) this.liveLoads.shift();
  }

  reduceSchedule(message) {
    if (message.shown) this.controls = message.shown;
    const kept = this.schedule;
    const echo = kept?.sticky && message.level === "info" && !message.sticky && message.t - kept.t < 2;
    if (!echo) this.schedule = message; // the sliders' own echo must not wipe a preset's note
  }

  // Draws in the next frame, then rests twice as long as drawing and painting took: where there is no GPU, or the
  // model runs on the same machine, the page must not take the time that it shows.
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    const wait = this.rested - performance.now();
    if (wait > 0) setTimeout(() => this.drawNextFrame(), wait);
    else this.drawNextFrame();
  }

  drawNextFrame() {
    requestAnimationFrame(() => {
      const begun = performance.now();
      this.scheduled = false;
      this.drawAll(begun);
      setTimeout(() => {
        const now = performance.now(); // after the paint
        this.rested = now + Math.min(LONGEST_REST_MS, 2 * (now - begun));
      });
    });
  }

  drawAll(now) {
    clearTimeout(this.left);
    this.left = null;
    const resting = this.running && !this.recording && this.epoch === this.drawnEpoch; // what begins is drawn at once
    this.drawnEpoch = this.epoch;
    for (const listener of this.listeners) {
      if (resting && now < listener.drawn + listener.rest()) {
        this.left ??= setTimeout(() => this.changed(), GLANCE_MS); // unless something changes sooner
        continue;
      }
      listener.drawn = now;
      listener.draw(this);
    }
  }
}

for (const name of FIELDS) {
  Object.defineProperty(Store.prototype, name, { get() { return this.view[name]; } });
}
