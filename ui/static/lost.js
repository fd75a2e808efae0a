// A lost connection. Gradio ends its own streams then, sends nothing more, and loads the page anew once the server
// answers again; the server knows nothing of the conversation by then. So what stood here is kept over that, and said.
import { t } from "./words.js";

const KEY = "dspark-lost";
const READY_MS = 200; // from one look whether the page is ready to the next

const prompt = () => document.querySelector("#ds-prompt textarea");

function turnsOf({ liveChat, live }) {
  const turns = liveChat?.turns ?? [];
  const came = live.text ?? live.rounds.map((round) => round?.text ?? "…").join("");
  return came && turns.length && liveChat.done !== live.answer ? [...turns, ["assistant", came]] : turns;
}

function keep(store) {
  const { running } = store.live;
  if (!running && !store.failed) return;
  const turns = turnsOf(store);
  const asked = running ? turns.findLast(([role]) => role === "user")?.[1] : "";
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ turns, running, message: prompt()?.value || asked }));
  } catch {
    // storage is off or full: the page begins anew
  }
}

function kept() {
  try {
    const text = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Not before the session has fitted the page's controls: that would empty the field again.
function putBack(message) {
  if (!document.querySelector("#ds-send:enabled")) return setTimeout(() => putBack(message), READY_MS);
  const field = prompt();
  if (!message || field.value) return;
  field.value = message;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

export function keepLost(store) {
  addEventListener("pagehide", () => keep(store));
  const was = kept();
  if (!was?.turns.length && !was?.message) return;
  const said = was.running
    ? t("The page was loaded anew before the answer's end: the rest of it is lost. Its message is in the field; send it to ask again. The model begins a new conversation.")
    : t("The server did not answer for a while, and the page was loaded anew. The model begins a new conversation with your next message.");
  store.liveChat = { turns: was.turns, done: null };
  store.notice = { level: "info", text: said };
  store.changed();
  putBack(was.message);
}
