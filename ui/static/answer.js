// One answer as the panels read it: reduced from the messages of a running answer, or filled from a recorded one.

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

let epochs = 0;

export class AnswerView {
  constructor() {
    this.forget();
  }

  forget() {
    this.answer = null;
    this.rounds = [];
    this.laws = []; // what decided in each round, where it was collected
    this.holes = false;
    this.renew();
    this.figures = null;
    this.recent = null;
    this.recentRounds = 0;
    this.prefilled = null;
    this.waiting = ""; // the place in the line, while there is one
    this.finish = null;
    this.text = null;
    this.running = false;
    this.held = { rate: null, note: "" }; // rounds a second: 0 is paused, null is full speed
    this.seq = 0;
  }

  // Panels start over when the epoch changes.
  renew() {
    this.epoch = epochs += 1;
  }

  // A message of the answer that is shown; older ones than the last change nothing.
  reduce(message) {
    this.answer = message.answer;
    if (message.seq <= this.seq) return;
    this.seq = message.seq;
    if (message.full && this.holes) {
      this.rounds = [];
      this.holes = false;
      this.renew();
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
    this.held = { rate: message.held[0], note: message.held[1] };
  }
}

// What the panels read of the answer that is shown: properties of the store.
export const FIELDS = ["answer", "rounds", "laws", "epoch", "figures", "recent", "recentRounds", "prefilled", "waiting", "finish", "text", "running", "held"];
