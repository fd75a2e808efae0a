// A recorded answer in place of the live one: shown whole, or played round by round; and where and when it was made.
import { AnswerView } from "./answer.js";
import { t } from "./words.js";

export class Recording {
  constructor(message) {
    this.name = message.name; // of one that ships with the page; empty for one that was loaded
    this.message = message;
    this.total = message.answer.rounds.length;
    this.timer = null;
    this.showAll();
  }

  get label() {
    const { device, date } = this.message;
    return t("recorded on {device}, {date}", { device, date });
  }

  get playing() {
    return this.timer !== null;
  }

  get whole() {
    return !this.view.running;
  }

  // A round that has much to tell: the first one where a draft was rejected after others had been accepted.
  get telling() {
    const round = this.view.rounds.find(({ accepted, draft }) => accepted > 0 && draft[accepted]?.fate === "rejected");
    return round ? { round: round.index, position: null } : null;
  }

  showAll() {
    const { answer, turns, text } = this.message;
    this.view = new AnswerView();
    this.view.reduce(answer);
    this.chat = { turns: text ? [...turns, ["assistant", text]] : turns, done: answer.answer };
    this.loads = loadsOf(this.view.rounds);
  }

  startOver() {
    this.view = new AnswerView();
    this.chat = { turns: this.message.turns, done: null };
    this.loads = [];
    this.view.reduce(this.upTo(0));
  }

  // The message that a page would have got after so many rounds.
  upTo(count) {
    const { answer, after } = this.message;
    const laws = answer.laws.filter(([index]) => index === count - 1);
    const names = Object.keys(answer.figures);
    const figures = count ? Object.fromEntries(names.map((name, at) => [name, after[count - 1][at]])) : null;
    return {
      ...answer, seq: count + 1, full: false, rounds: count ? [answer.rounds[count - 1]] : [], laws, figures, recent: figures,
      recent_rounds: count, text: null, finish: null, held: [0, ""],
    };
  }

  // One round more; after the last one the whole answer. From the whole answer it starts over.
  advance() {
    if (this.whole) this.startOver();
    const next = this.view.rounds.length + 1;
    if (next > this.total) return this.finish();
    this.view.reduce(this.upTo(next));
    this.loads = loadsOf(this.view.rounds);
    if (next === this.total) this.finish();
  }

  finish() {
    const { answer, turns, text } = this.message;
    this.pauseTimer();
    this.view.reduce({ ...answer, seq: this.total + 2 });
    this.chat = { turns: text ? [...turns, ["assistant", text]] : turns, done: answer.answer };
  }

  pauseTimer() {
    clearInterval(this.timer);
    this.timer = null;
  }

  pause(store) {
    this.pauseTimer();
    store.changed();
  }

  step(store) {
    this.pauseTimer();
    store.choose(null);
    this.advance();
    store.changed();
  }

  // At so many rounds a second; null shows the rest at once.
  play(rate, store) {
    this.pauseTimer();
    store.choose(null);
    if (rate === null) this.showAll();
    else {
      if (this.whole) this.startOver();
      this.timer = setInterval(() => {
        this.advance();
        store.changed();
      }, 1000 / rate);
    }
    store.changed();
  }
}

// The machine's load as the rounds saw it, on the clock of the rounds' own seconds.
function loadsOf(rounds) {
  let clock = 0;
  return rounds.map(({ load, signal, seconds }) => {
    clock += seconds.draft + seconds.schedule + seconds.verify;
    return { t: clock, load, signal };
  });
}
