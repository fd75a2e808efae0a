// The conversation, as plain text: finished turns from the server, and the running answer round by round.
import { mountRecordNames } from "./recorded.js";
import { make, setText, stickToEnd } from "./text.js";
import { later, onLanguage, t } from "./words.js";

const BLINK_MS = 500;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const NAMES = { user: later("You"), assistant: later("Model") };

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    setText(button, t("Copied"));
  } catch {
    setText(button, t("Select the text to copy it"));
  }
  setTimeout(() => setText(button, t("Copy")), 1600);
}

function turnNode(role, text) {
  const node = make("article", `ds-turn ds-${role === "user" ? "user" : "model"}`);
  const body = make("div", "ds-said", text);
  body.dir = "auto";
  node.append(make("span", "ds-who", t(NAMES[role] ?? role)), body);
  if (role !== "user") {
    const button = make("button", "ds-copy", t("Copy"));
    button.type = "button";
    button.addEventListener("click", () => copy(body.textContent, button));
    node.append(button);
  }
  return node;
}

// Adds to a running text. Each of its lines is a block, so that only the last one is laid out again; the end of a line is
// in it unseen, for the text to be whole.
function write(body, fresh) {
  fresh.split("\n").forEach((piece, i) => {
    let line = body.lastElementChild;
    if (i > 0) {
      line.append(make("i", "ds-eol", "\n"));
      line.classList.remove("ds-caret");
    }
    if (i > 0 || !line) {
      line = make("span", "ds-line ds-caret");
      body.append(line);
    }
    if (piece && line.lastChild) line.lastChild.appendData(piece);
    else if (piece) line.append(piece);
  });
}

export function mountChat(root, store) {
  const box = root.querySelector(".ds-chat");
  const empty = root.querySelector(".ds-empty");
  let shown = null; // the chat message drawn
  let live = null; // the running answer's node
  let epoch = -1;
  let written = 0;
  const drawNames = mountRecordNames(empty, store);
  const end = stickToEnd(box);
  onLanguage(() => {
    shown = null;
  });

  const drawTurns = ({ chat }) => {
    if (chat === shown) return;
    shown = chat;
    box.replaceChildren(...(chat?.turns ?? []).map(([role, text]) => turnNode(role, text)));
    if (box.childElementCount === 0) box.append(empty);
    live = null;
    end.follows = true;
  };

  const drawLive = ({ chat, answer, rounds, text, running, waiting }) => {
    const wanted = answer !== null && chat && chat.done !== answer && chat.turns.length > 0;
    box.setAttribute("aria-busy", String(Boolean(wanted && running)));
    document.documentElement.classList.toggle("ds-running", running);
    if (!wanted) return;
    if (!live || store.epoch !== epoch) {
      live?.remove();
      live = turnNode("assistant", "");
      live.classList.add("ds-live");
      box.append(live);
      epoch = store.epoch;
      written = 0;
    }
    const body = live.querySelector(".ds-said");
    const line = rounds.length === 0 ? waiting : ""; // until it is its turn
    if (written === 0 && (!body.firstChild || body.textContent !== line)) {
      body.replaceChildren();
      write(body, line);
    }
    let fresh = "";
    for (; written < rounds.length; written += 1) fresh += rounds[written] ? rounds[written].text : "…";
    if (fresh) write(body, fresh);
    if (text !== null && body.textContent !== text) body.textContent = text;
    // The cursor blinks as the text comes: an animation would have the whole page drawn sixty times a second.
    body.lastElementChild?.classList.toggle("ds-dim", !still.matches && Math.floor(performance.now() / BLINK_MS) % 2 === 1);
  };

  store.listen((state) => {
    drawNames();
    drawTurns(state);
    drawLive(state);
    end.settle();
  });
}
