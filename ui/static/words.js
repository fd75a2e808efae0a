// The page's words: English in the code, other languages by it (see ui/words). The language can change at any time:
// what stood in a panel's markup is put again here, Gradio's components follow Gradio's own locale, and scripts write
// anew when `onLanguage` tells them to (main.js does that for everything that is drawn from the store).

const LOCALES = { en: "en", zh: "zh-CN" }; // ours -> Gradio's
const KEY = "dspark-language";
const ATTRIBUTES = ["aria-label", "data-tip", "title", "placeholder"];

const known = (language) => (Object.hasOwn(LOCALES, language ?? "") ? language : null);

function stored() {
  try {
    return known(localStorage.getItem(KEY));
  } catch {
    return null; // storage is off
  }
}

function preferred() {
  for (const tag of navigator.languages ?? []) if (known(tag.toLowerCase().split("-")[0])) return tag.toLowerCase().split("-")[0];
  return "en";
}

let language = known(new URLSearchParams(location.search).get("lang")) ?? stored() ?? preferred();
let words = null;
const listeners = [];
const placed = []; // every text of the panels' markup: where it stands, in English, and as it was last put

function dictionary() {
  if (words) return words;
  const all = window.gradio_config?.i18n_translations ?? {};
  words = new Map();
  if (language !== "en") for (const [key, english] of Object.entries(all.en ?? {})) words.set(english, all[language]?.[key] ?? english);
  return words;
}

// A text in the visitor's language; {name} in it is replaced by the value of that name, and {name:one|many} by the first
// wording where that value is 1, else by the second: "{n} {n:token|tokens}".
export function t(english, values = {}) {
  const text = dictionary().get(english) ?? english;
  return text.replace(/\{(\w+)(?::([^{}|]*)\|([^{}|]*))?\}/g, (whole, name, one, many) => {
    if (!Object.hasOwn(values, name)) return whole;
    const value = String(values[name]);
    return one === undefined ? value : value === "1" ? one : many;
  });
}

// Marks a text that goes through t when it is written.
export const later = (english) => english;

// Calls back after each change of the language.
export const onLanguage = (redraw) => listeners.push(redraw);

export const currentLanguage = () => language;

const read = ({ node, attribute }) => (attribute ? node.getAttribute(attribute) : node.data);

function put(record) {
  const { node, attribute, english } = record;
  if (read(record) !== record.put) return; // a script has written there since
  const [, before, core, after] = english.match(/^(\s*)([^]*?)(\s*)$/);
  record.put = before + t(core.replace(/\s+/g, " ")) + after;
  if (record.put === read(record)) return;
  if (attribute) node.setAttribute(attribute, record.put);
  else node.data = record.put;
}

function place(node, attribute) {
  const record = { node, attribute };
  const english = read(record);
  if (!/[A-Za-z]/.test(english)) return;
  Object.assign(record, { english, put: english });
  placed.push(record);
  put(record);
}

// Translates a panel's constant markup, now and whenever the language changes.
export function translate(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) =>
    node.nodeType === Node.ELEMENT_NODE && node.getAttribute("translate") === "no" ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  for (let node = walker.currentNode; node; node = walker.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) place(node, null);
    else for (const name of ATTRIBUTES) if (node.hasAttribute(name)) place(node, name);
  }
}

// Gradio's frontend exports its language switch from one of its modules, which the page has already loaded.
async function tellGradio() {
  const path = document.querySelector('meta[name="dspark-locale-module"]')?.content;
  if (path) (await import(new URL(path, document.baseURI))).changeLocale(LOCALES[language]);
  document.documentElement.lang = LOCALES[language];
}

// Gradio leaves the names of tabs that are not open, and of those in its menu, in the language that they were made in,
// and may put them there again whenever it lays out the row.
function nameTabs() {
  const { components = [], i18n_translations: all = {} } = window.gradio_config ?? {};
  const keys = components.filter(({ type }) => type === "tabitem").map(({ props }) => /ds[0-9a-f]{12}/.exec(props.label)?.[0]);
  const english = new Map(keys.flatMap((key) => Object.values(all).map((texts) => [texts[key], all.en?.[key]])));
  for (const tab of document.querySelectorAll(".tab-wrapper button"))
    for (const node of tab.childNodes) {
      const name = english.get(node.nodeType === Node.TEXT_NODE ? node.data.trim() : "");
      if (name && t(name) !== node.data.trim()) node.data = t(name);
    }
}
const watchedTabs = new MutationObserver(nameTabs);

export async function setLanguage(wanted) {
  if (!known(wanted)) return;
  language = wanted;
  words = null;
  try {
    localStorage.setItem(KEY, language);
  } catch {
    // storage is off: the choice lasts for this page only
  }
  placed.forEach(put);
  listeners.forEach((redraw) => redraw(language));
  await tellGradio();
  nameTabs();
  for (const row of document.querySelectorAll(".tab-wrapper")) watchedTabs.observe(row, { childList: true, characterData: true, subtree: true });
}

tellGradio();
