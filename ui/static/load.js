// The load in words: what was measured, and what the policy judged by.
import { fixed, percent } from "./text.js";
import { t } from "./words.js";

const energyOf = (joules) => (joules < 10_000 ? `${Math.round(joules)} J` : `${(joules / 1000).toFixed(1)} kJ`);

// Of the device: its name, memory, power, energy, and what it does not give.
export function loadNote(store) {
  const load = store.loads.at(-1)?.load;
  if (!load) return store.status?.phase === "failed" ? t("no model") : t("waits for the model");
  const memory = load.memoryTotal ? t("{used} of {total} GiB", { used: (load.memoryUsed / 2 ** 30).toFixed(1), total: (load.memoryTotal / 2 ** 30).toFixed(0) }) : "";
  const power = load.power === null ? "" : `${Math.round(load.power)} W`;
  const energy = load.energy === null ? "" : t("{energy} since the start", { energy: energyOf(load.energy) });
  return [load.source, memory, power, energy, load.note].filter(Boolean).join(" · ");
}

const said = ({ name, source }) => (source.startsWith(name) ? source : `${name}: ${source}`);

// Of the policy: the load of the latest round and its source; and what the other loads are now.
export function signalWords(store) {
  const load = store.loads.at(-1)?.load;
  if (!load) return "";
  const values = { occupancy: percent(load.occupancy), engine: percent(load.engineBusy), device: percent(load.utilisation) };
  const now = store.recording ? t("In the last round: occupancy {occupancy}, engine {engine}, device {device}.", values) : t("Now: occupancy {occupancy}, engine {engine}, device {device}.", values);
  const round = store.rounds.at(-1);
  if (!round) return now;
  const { signal, policy } = round;
  if (!signal) return `${now} ${policy === "banded" ? t("{policy} had nothing to judge in the latest round.", { policy }) : t("{policy} heeds no load.", { policy })}`;
  if (signal.value === null) return `${now} ${t("{policy} judged as if idle: {signal} is not available ({note}).", { policy, signal: signal.name, note: signal.note.replace(/^not available: /, "") })}`;
  return `${now} ${t("{policy} judged the latest round by the load {value} ({source}).", { policy, value: fixed(signal.value), source: said(signal) })}`;
}
