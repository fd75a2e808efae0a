// Recorded answers: the banner that says so, and loading, choosing and saving them.
import { Recording } from "./recording.js";
import { make, setText, spoken } from "./text.js";
import { t } from "./words.js";

const MAX_BYTES = 20_000_000; // as ui/recorded.py reads at most

// Shows what the server sends about recorded answers; `ask` sends a wish there.
export class Records {
  constructor(store) {
    this.store = store;
    this.list = []; // [name, title] of those that ship
    this.error = "";
    this.ask = null;
    store.subscribe("recordings", (message) => this.offered(message));
    store.subscribe("recorded", (message) => this.arrived(message));
    store.subscribe("recorded-error", (message) => this.failed(message.text));
    store.subscribe("file", save);
  }

  offered({ list, first }) {
    this.list = list;
    const { store } = this;
    if (first && store.live.answer === null && !store.liveChat && !store.recording) store.showRecording(new Recording(first)); // the model is not there yet
  }

  arrived(message) {
    this.error = "";
    this.store.showRecording(new Recording(message));
  }

  failed(text) {
    this.error = text;
    this.store.changed();
  }

  show(name) {
    this.ask?.({ do: "show", name });
  }

  save() {
    this.ask?.({ do: "save" });
  }

  async load(file) {
    try {
      this.ask?.({ do: "load", name: file.name, text: await textOf(file) });
    } catch (error) {
      this.failed(t("{name} cannot be read: {why} Load a file as Rounds saves it.", { name: spoken(file.name.slice(0, 80)), why: error.message }));
    }
  }
}

async function textOf(file) {
  const tooLarge = () => new Error(t("it is larger than {size} MB, the most that is read. Save a shorter answer.", { size: MAX_BYTES / 1e6 }));
  if (file.size > MAX_BYTES) throw tooLarge();
  if (!file.name.endsWith(".gz")) return file.text();
  const reader = file.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    size += part.value.length;
    if (size > MAX_BYTES) {
      reader.cancel();
      throw tooLarge();
    }
    parts.push(part.value);
  }
  return new Blob(parts).text();
}

function save({ name, text }) {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// The banner above the figures.
export function mountRecorded(root, store, trigger) {
  store.records.ask = trigger;
  const banner = root.querySelector(".ds-recorded");
  const error = root.querySelector(".ds-recorded-error");
  banner.querySelector("button").addEventListener("click", () => store.showRecording(null));
  error.querySelector("button").addEventListener("click", () => store.records.failed(""));
  store.listen(({ recording, records }) => {
    banner.hidden = !recording;
    if (recording) {
      const { model, dtype, versions } = recording.message;
      setText(banner.querySelector("p"), t("This answer was {label}, not here and now ({model}, {dtype}; {versions}). Ask something to see it live.", { label: recording.label, model, dtype, versions }));
    }
    error.hidden = records.error === "";
    setText(error.querySelector("p"), records.error);
  });
}

// The row in Rounds: choose, load, save. Returns what draws it.
export function mountRecords(row, store) {
  const { records } = store;
  const select = row.querySelector("select");
  const input = row.querySelector("input");
  const saving = row.querySelector(".ds-record-save");
  select.addEventListener("change", () => select.value && records.show(select.value));
  row.querySelector(".ds-record-load").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) records.load(input.files[0]);
    input.value = ""; // the same file may be chosen again
  });
  saving.addEventListener("click", () => records.save());
  return () => {
    if (select.options.length !== records.list.length + 1) {
      select.replaceChildren(select.options[0], ...records.list.map(([name]) => new Option("", name)));
    }
    records.list.forEach(([, title], at) => setText(select.options[at + 1], t(title))); // the language may change
    if (document.activeElement !== select) select.value = store.recording?.name ?? "";
    saving.disabled = Boolean(store.recording) || !store.live.finish;
  };
}

function nameButton(name, store) {
  const button = make("button", "ds-record-name");
  button.type = "button";
  button.addEventListener("click", () => store.records.show(name));
  return button;
}

// The names in Chat's empty state. Returns what draws them.
export function mountRecordNames(root, store) {
  const box = root.querySelector(".ds-record-names");
  return () => {
    const { list } = store.records;
    root.querySelector(".ds-record-offer").hidden = list.length === 0;
    if (box.childElementCount !== list.length) box.replaceChildren(...list.map(([name]) => nameButton(name, store)));
    list.forEach(([, title], at) => setText(box.children[at], t(title)));
  };
}
