// Small helpers: all text goes through textContent, numbers are formatted in one place.

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const SIGNS = { "\n": "⏎", "\r": "␍", "\t": "⇥" };

// Control characters, and those that cannot be seen or turn the words after them around.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const codeOf = (sign) => sign.codePointAt(0).toString(16).padStart(4, "0");

// A token as it stands in the ribbon: white space and invisible characters get signs.
export function visible(text) {
  if (text === "") return "∅";
  if (/^ +$/.test(text)) return "␣".repeat(Math.min(text.length, 8)) + (text.length > 8 ? `×${text.length}` : "");
  return text
    .replace(/[\n\r\t]/g, (sign) => SIGNS[sign])
    .replace(UNSEEN, (sign) => `⟨${codeOf(sign)}⟩`);
}

// A text in quotes inside of a sentence.
export const spoken = (text) => JSON.stringify(text).replace(UNSEEN, (sign) => `\\u${codeOf(sign)}`);
export const fixed = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
export const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
// So many digits that tell something, thousands apart; very large and very small ones as powers of ten.
export function significant(value, digits = 4) {
  const rounded = Number(value.toPrecision(digits));
  const size = Math.abs(rounded);
  if (size !== 0 && (size >= 1e15 || size < 1e-6)) return String(rounded);
  return rounded.toLocaleString("en-GB", { maximumFractionDigits: 12 }).replaceAll(",", "\u202f");
}
export const ms = (seconds) => (seconds * 1000).toFixed(seconds < 0.01 ? 2 : 1);
export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`);

// Keeps a scrolling box at its end until the reader scrolls up; coming back to the end resumes. Growth of the content
// also fires scroll events, so only a move upwards counts as the reader's.
export function stickToEnd(box) {
  let follow = true;
  let last = 0;
  const atEnd = () => box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
  box.addEventListener("scroll", () => {
    if (box.scrollTop < last - 2 && !atEnd()) follow = false;
    else if (atEnd()) follow = true;
    last = box.scrollTop;
  }, { passive: true });
  return {
    get follows() {
      return follow;
    },
    set follows(value) {
      follow = value;
    },
    // When everything is drawn: reading the height earlier would have the page laid out once for each box.
    settle() {
      queueMicrotask(() => {
        if (!follow) return;
        box.scrollTop = box.scrollHeight;
        last = box.scrollTop;
      });
    },
  };
}
