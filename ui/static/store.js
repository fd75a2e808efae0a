// The page's state: every message is reduced, drawing happens at most once a frame.

export const roundOf = (raw) => ({
  index: raw.i,
  anchor: raw.anchor,
  draft: raw.draft.map(([id, text, fate, confidence, survival, draftProb, targetProb, acceptProb, uniform, rawConfidence]) => ({
    id, text, fate, confidence, survival, draftProb, targetProb, acceptProb, uniform, rawConfidence,
  })),
  verifyLen: raw.len,
  reason: raw.why,
  accepted: raw.acc,
  next: raw.next && { id: raw.next[0], text: raw.next[1], fate: raw.next[2] },
  text: raw.text,
  seconds: { draft: raw.s[0], schedule: raw.s[1], verify: raw.s[2] },
  policy: raw.sched[0],
  lMin: raw.sched[1],
  lMax: raw.sched[2],
  threshold: raw.sched[3],
  stopEarly: raw.sched[4],
  bandLow: raw.sched[5],
  bandHigh: raw.sched[6],
  signal: raw.signal && { name: raw.signal[0], value: raw.signal[1], source: raw.signal[2], note: raw.signal[3] },
  load: loadOf(raw.load),
});

const candidatesOf = (list) => list.map(([id, text, base, draft, target, residual]) => ({ id, text, base, draft, target, residual }));

export const lawsOf = ([candidates, bonus, throughputs, stoppedAt, temperature]) => ({
  candidates: candidates.map(candidatesOf), bonus: candidatesOf(bonus), throughputs, stoppedAt, temperature, greedy: temperature === 0,
});

export const loadOf = ([source, kind, utilisation, memoryUsed, memoryTotal, power, note, energy, occupancy, engineBusy, simulated]) => ({
  source, kind, utilisation, memoryUsed, memoryTotal, power, note, energy, occupancy, engineBusy, simulated,
});

const LOAD_SAMPLES = 240;
const LONGEST_REST_MS = 600;

export class Store {
  constructor() {
    this.listeners = [];
    this.scheduled = false;
    this.rested = 0;
    this.status = null;
    this.notice = null;
    this.schedule = null;
    this.controls = null; // policy and load signal that the controls say
    this.loads = [];
    this.closed = new Set();
    this.chat = null;
    this.topics = new Map(); // of other tabs: kind of message -> who takes it
    this.early = []; // what came before its taker
    this.ports = new Map(); // of tabs that send text to the server: name -> send(text)
    this.forget();
  }

  // A tab's own messages: take(message) for each of that kind; they are drawn like everything else.
  subscribe(kind, take) {
    this.topics.set(kind, take);
    const early = this.early.filter((message) => message.kind === kind);
    this.early = this.early.filter((message) => message.kind !== kind);
    early.forEach(take);
    this.changed();
  }

  forget() {
    this.answer = null;
    this.chosen = null; // the round and position in detail; null follows the newest
    this.rounds = [];
    this.laws = []; // what decided in each round, where it was collected
    this.holes = false;
    this.epoch = (this.epoch ?? 0) + 1; // panels start over when it changes
    this.figures = null;
    this.recent = null;
    this.prefilled = null;
    this.waiting = ""; // the place in the line, while there is one
    this.finish = null;
    this.text = null;
    this.running = false;
    this.seq = 0;
  }

  // A new chat: what still comes from the answer that ran is not shown any more.
  close() {
    if (this.answer !== null) this.closed.add(this.answer);
    this.forget();
  }

  // What the tab Rounds shows.
  get shown() {
    const { rounds, laws, prefilled, epoch } = this;
    const from = prefilled ? `the latest answer: ${prefilled.drafter}, seed ${prefilled.seed}` : "";
    return { rounds, laws, epoch, from };
  }

  choose(round, position = null) {
    this.chosen = round === null ? null : { round, position };
    this.changed();
  }

  // Everything that is drawn is drawn anew: the language has changed.
  startOver() {
    this.epoch += 1;
    this.changed();
  }

  listen(draw) {
    this.listeners.push(draw);
    this.changed();
  }

  receive(json) {
    if (typeof json !== "string" || json === "") return;
    const message = JSON.parse(json);
    if (message.kind === "answer") this.reduceAnswer(message);
    else if (message.kind === "status") this.reduceStatus(message);
    else if (message.kind === "chat") this.chat = message;
    else if (message.kind === "notice") this.notice = message;
    else if (message.kind === "schedule") this.reduceSchedule(message);
    else if (message.kind === "forget") this.close();
    else if (this.topics.has(message.kind)) this.topics.get(message.kind)(message);
    else this.early.push(message);
    this.changed();
  }

  reduceAnswer(message) {
    if (this.closed.has(message.answer)) return;
    if (message.answer !== this.answer) {
      this.forget();
      this.answer = message.answer;
    }
    if (message.seq <= this.seq) return;
    this.seq = message.seq;
    if (message.full && this.holes) {
      this.rounds = [];
      this.holes = false;
      this.epoch += 1;
    }
    for (const raw of message.rounds) {
      if (raw.i < this.rounds.length && this.rounds[raw.i]) continue;
      while (this.rounds.length < raw.i) {
        this.rounds.push(null); // lost between two draws; the last message brings it
        this.holes = true;
      }
      this.rounds[raw.i] = roundOf(raw);
    }
    for (const [index, laws] of message.laws) this.laws[index] ??= lawsOf(laws);
    this.prefilled = message.prefilled;
    this.waiting = message.waiting;
    this.figures = message.figures;
    this.recent = message.recent;
    this.recentRounds = message.recent_rounds;
    this.finish = message.finish && { reason: message.finish[0], detail: message.finish[1] };
    this.text = message.text;
    this.running = !message.finish;
  }

  reduceStatus(message) {
    this.status = message;
    if (!message.load) return;
    const load = loadOf(message.load);
    const signal = this.running ? this.rounds.at(-1)?.signal ?? null : null;
    this.loads.push({ t: message.t, load, signal });
    if (this.loads.length > LOAD_SAMPLES) this.loads.shift();
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
      for (const draw of this.listeners) draw(this);
      setTimeout(() => {
        const now = performance.now(); // after the paint
        this.rested = now + Math.min(LONGEST_REST_MS, 2 * (now - begun));
      });
    });
  }
}
