// Pause, one round, play and speed: of the running answer in the engine itself, or of a recorded one in the browser.
import { setText } from "./text.js";
import { t } from "./words.js";

// A running answer is steered by the server.
function live(store, ask) {
  return {
    canPause: () => store.running && store.held.rate !== 0,
    canPlay: (rate) => store.running && store.held.rate !== rate,
    canStep: () => store.running,
    pause: () => ask({ do: "pace", rate: 0 }),
    play: (rate) => ask({ do: "pace", rate }),
    step: () => ask({ do: "step" }),
    note() {
      if (!store.running) return "";
      if (store.held.rate === 0) return t("paused after round {n}: the engine holds this answer", { n: store.rounds.length });
      return store.held.note;
    },
  };
}

function recorded(recording, store) {
  return {
    canPause: () => recording.playing,
    canPlay: () => !recording.playing,
    canStep: () => true,
    pause: () => recording.pause(store),
    play: (rate) => recording.play(rate, store),
    step: () => recording.step(store),
    note: () => (recording.whole ? "" : t("recorded: round {n} of {total}", { n: recording.view.rounds.length, total: recording.total })),
  };
}

export function mountStepper(root, store, trigger) {
  const button = (name) => root.querySelector(`[data-pace="${name}"]`);
  const speed = root.querySelector("select");
  const note = root.querySelector(".ds-pace-note");
  let greeted = null; // the answer that was told the speed
  const rate = () => (speed.value === "" ? null : Number(speed.value));
  const shown = () => (store.recording ? recorded(store.recording, store) : live(store, trigger));
  const acts = {
    pause: () => shown().canPause() && shown().pause(),
    step: () => shown().canStep() && shown().step(),
    play: () => shown().canPlay(rate()) && shown().play(rate()),
  };

  root.addEventListener("click", (event) => acts[event.target.closest("[data-pace]")?.dataset.pace]?.());
  speed.addEventListener("change", () => {
    if (store.recording?.playing || (!store.recording && store.running && store.held.rate !== 0)) shown().play(rate());
    store.changed();
  });
  document.addEventListener("keydown", (event) => {
    if (!event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    if (event.code === "KeyP") (shown().canPause() ? acts.pause : acts.play)();
    else if (event.code === "KeyN") acts.step();
    else return;
    event.preventDefault();
  });

  store.listen(() => {
    const { live: own } = store;
    if (own.running && own.answer !== greeted) {
      greeted = own.answer;
      if (rate() !== null && !store.recording) trigger({ do: "pace", rate: rate() }); // the speed holds for new answers too
    }
    const now = shown();
    button("pause").disabled = !now.canPause();
    button("step").disabled = !now.canStep();
    button("play").disabled = !now.canPlay(rate());
    setText(note, now.note());
  });
}
