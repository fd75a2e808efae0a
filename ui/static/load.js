// The load in words: what was measured, and what the policy judged by.
import { fixed, percent } from "./text.js";

const energyOf = (joules) => (joules < 10_000 ? `${Math.round(joules)} J` : `${(joules / 1000).toFixed(1)} kJ`);

// Of the device: its name, memory, power, energy, and what it does not give.
export function loadNote(store) {
  const load = store.loads.at(-1)?.load;
  if (!load) return store.status?.phase === "failed" ? "no model" : "waits for the model";
  const memory = load.memoryTotal ? `${(load.memoryUsed / 2 ** 30).toFixed(1)} of ${(load.memoryTotal / 2 ** 30).toFixed(0)} GiB` : "";
  const power = load.power === null ? "" : `${Math.round(load.power)} W`;
  const energy = load.energy === null ? "" : `${energyOf(load.energy)} since the start`;
  return [load.source, memory, power, energy, load.note].filter(Boolean).join(" · ");
}

const said = ({ name, source }) => (source.startsWith(name) ? source : `${name}: ${source}`);

// Of the policy: the load of the latest round and its source; and what the other loads are now.
export function signalWords(store) {
  const load = store.loads.at(-1)?.load;
  if (!load) return "";
  const when = store.recording ? "In the last round" : "Now";
  const now = `${when}: occupancy ${percent(load.occupancy)}, engine ${percent(load.engineBusy)}, device ${percent(load.utilisation)}.`;
  const round = store.rounds.at(-1);
  if (!round) return now;
  const { signal, policy } = round;
  if (!signal) return `${now} ${policy} ${policy === "banded" ? "had nothing to judge in the latest round" : "heeds no load"}.`;
  if (signal.value === null) return `${now} ${policy} judged as if idle: ${signal.name} is not available (${signal.note.replace(/^not available: /, "")}).`;
  return `${now} ${policy} judged the latest round by the load ${fixed(signal.value)} (${said(signal)}).`;
}
