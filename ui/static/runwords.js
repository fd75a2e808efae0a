// How an experiment stands, in words.
import { setText } from "./text.js";
import { onLanguage, t } from "./words.js";

const left = (seconds) => (seconds === null || seconds === undefined ? t("time left not known yet")
  : seconds >= 90 ? t("{minutes} min left", { minutes: Math.round(seconds / 60) }) : t("{seconds} s left", { seconds: Math.round(seconds) }));

const WORDS = {
  running: (run) => t("{done} of {total}, {left}", { done: run.done, total: run.total, left: left(run.left_s) }),
  fitting: () => t("fitting the temperatures"),
  stopped: () => t("Stopped; what was done is kept and shown."),
  nothing: () => t("Stopped before anything was done; what is shown is from before."),
  failed: (run) => run.text,
  done: () => "",
};

const told = new Map(); // node -> how its experiment stands

export function runWords(node, run) {
  told.set(node, run);
  const words = WORDS[run.state](run);
  setText(node, words);
  node.hidden = words === "";
  node.dataset.level = run.state === "failed" ? "error" : "info";
}

onLanguage(() => told.forEach((run, node) => runWords(node, run)));
