// A recorded answer in place of the live one: an answer, its conversation, and where and when it was made.
import { AnswerView } from "./answer.js";
import { t } from "./words.js";

export class Recording {
  constructor(message) {
    this.name = message.name; // of one that ships with the page; empty for one that was loaded
    this.message = message;
    this.view = new AnswerView();
    this.view.reduce(message.answer);
    this.chat = {
      turns: message.text ? [...message.turns, ["assistant", message.text]] : message.turns,
      done: message.answer.answer,
    };
    this.loads = loadsOf(this.view.rounds);
  }

  get label() {
    const { device, date } = this.message;
    return t("recorded on {device}, {date}", { device, date });
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
