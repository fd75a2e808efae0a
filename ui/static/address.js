// The address follows tab and controls; a link to it brings both back. ui/address.py checks what an address gives.
import { openTab } from "./tabs.js";
import { setText } from "./text.js";
import { later, t } from "./words.js";

const DELAY_MS = 300; // browsers allow some hundred changes of an address in half a minute
const MAX_PROMPT = 2000;

const told = new Map(); // what the controls say
const owned = new Map(); // what scripts say: name -> {value, take}
const asked = new Map(); // what the server was asked to set: name -> what the control said before
let defaults = null; // of the controls, once the session is open
let once = new Set();
let press = () => {};
let timer = null;

const queryNow = () => new URLSearchParams(location.search);
const written = (value) => (typeof value === "number" ? String(Number(value.toFixed(6))) : typeof value === "boolean" ? String(Number(value)) : String(value ?? ""));

function replace(query) {
  const text = query.toString();
  if (text !== queryNow().toString()) history.replaceState(history.state, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
}

function shownTab() {
  return document.querySelector("#ds-tabs [role=tab][aria-selected=true]")?.dataset.tabId;
}

function write() {
  clearTimeout(timer);
  timer = null;
  const query = queryNow();
  const put = (name, value) => (value === null ? query.delete(name) : query.set(name, value));
  const tab = shownTab();
  if (tab) put("tab", tab === document.querySelector("#ds-tabs [role=tab]").dataset.tabId ? null : tab);
  for (const [name, { value }] of owned) put(name, value);
  for (const [name, value] of Object.entries(defaults ?? {})) {
    const now = written(told.get(name));
    if (once.has(name)) {
      if (query.get(name) !== now) query.delete(name);
    } else put(name, now === written(value) || now.length > MAX_PROMPT ? null : now);
  }
  replace(query);
}

function soon() {
  timer ??= setTimeout(write, DELAY_MS);
}

// Gradio's listener says what the controls are.
export function takeControls(names, values) {
  names.forEach((name, i) => told.set(name, values[i]));
  soon();
}

// A script's own parameter: take(text) is called at once if the address has it; what tell() says is followed.
export function own(name, take) {
  const given = queryNow().get(name);
  owned.set(name, { value: given, take });
  if (given !== null) take(given);
}

export function tell(name, value) {
  owned.get(name).value = value === null ? null : String(value);
  soon();
}

// Goes to what ``params`` name: a tab by its key, and values of controls (``tab=chat&policy=fixed``).
export function goTo(params) {
  write();
  const query = queryNow();
  for (const [name, value] of params) {
    if (name === "tab") continue;
    query.set(name, value);
    if (defaults && name in defaults) {
      if (!asked.has(name)) asked.set(name, told.get(name));
      told.set(name, value); // or the address would be put back before the server has read it
    }
    if (!owned.has(name)) continue;
    owned.get(name).value = value;
    owned.get(name).take(value);
  }
  replace(query);
  if (asked.size) press(); // the server reads the address
  openTab(params.get("tab") ?? "chat");
}

function link(store) {
  write();
  const url = new URL(location.href);
  const asked = told.get("prompt") || store.chat?.turns.findLast(([role]) => role === "user")?.[1] || "";
  if (asked && asked.length <= MAX_PROMPT) url.searchParams.set("prompt", asked);
  return url.href;
}

export function mountAddress(root, store, trigger) {
  press = trigger;
  const button = root.querySelector("button");
  const label = later("Copy link");
  button.addEventListener("click", async () => {
    const href = link(store);
    let said = t("Copied");
    try {
      await navigator.clipboard.writeText(href);
    } catch {
      said = t("Copy it from the address bar");
    }
    setText(button, said);
    setTimeout(() => setText(button, t(label)), 1600);
  });
  store.subscribe("address", (message) => {
    defaults = message.defaults;
    once = new Set(message.once);
    for (const [name, before] of asked) told.set(name, before);
    asked.clear();
    for (const [name, value] of Object.entries({ ...defaults, ...Object.fromEntries(told), ...message.values })) told.set(name, value);
    soon();
  });
  const wanted = queryNow().get("tab");
  if (wanted && wanted !== shownTab()) openTab(wanted, { focus: false });
  const tabs = document.querySelector("#ds-tabs [role=tablist]");
  new MutationObserver(soon).observe(tabs, { subtree: true, attributes: true, attributeFilter: ["aria-selected"] });
}
