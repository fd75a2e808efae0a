// The token ribbon: one line a round, appended once and never drawn again; the tooltip is made on demand.
import { markOf } from "./fates.js";
import { watchSight } from "./sight.js";
import { GLANCE_MS } from "./store.js";
import { openTab } from "./tabs.js";
import { nameOf } from "./terms.js";
import { hideTip, showTip } from "./tip.js";
import { fixed, make, setText, spoken, stickToEnd, visible } from "./text.js";
import { later, t } from "./words.js";

const KEPT = 120; // lines in the document, each of which takes time in every drawing; earlier ones come back on request
const SPARE = 40; // so many more before some are taken away
const OUT_OF_SIGHT_MS = 3000; // from one drawing to the next while an answer runs and nobody looks: each line takes time,
// so after the first `FRESH` the ribbon waits until it is looked at, or the answer ends
const BATCH = 40; // lines in one drawing: more at once would hold up the page
const FRESH = 24; // the newest lines, which are laid out wherever they are: their heights say where the end is

const EXPLAIN = {
  accepted: later("verified and kept"),
  rejected: later("failed the acceptance rule"),
  discarded: later("verified in vain after the rejection"),
  unverified: later("cut by the scheduler, never verified"),
  correction: later("the target's own token after a rejection"),
  bonus: later("the target's own token, all verified drafts were accepted"),
};

export function tokenNode(token, roundIndex, position) {
  const node = make("span", "ds-tok");
  node.dataset.fate = token.fate;
  node.dataset.at = `${roundIndex}.${position}`;
  node.setAttribute("role", "option");
  node.setAttribute("aria-selected", "false");
  node.tabIndex = -1;
  const lead = /^ \S/.test(token.text) ? 1 : 0; // the usual space before a word: a faint dot
  if (lead) node.append(make("span", "ds-sp", "·"));
  const blank = /^\s*$/.test(token.text) ? "ds-txt ds-blank" : "ds-txt";
  node.append(make("span", blank, visible(token.text.slice(lead))));
  return node;
}

export function roundWords(round) {
  if (round.draft.length === 0) return t("nothing drafted");
  return t("ℓ {len}/{drafted}, {accepted} accepted", { len: round.verifyLen, drafted: round.draft.length, accepted: round.accepted });
}

function roundNode(round) {
  const line = make("div", "ds-round");
  line.dataset.round = round.index;
  line.dataset.len = round.verifyLen;
  line.dataset.lmax = round.lMax;
  line.setAttribute("role", "group");
  line.setAttribute("aria-label", `${t("Round {n}", { n: round.index + 1 })}: ${roundWords(round)}. ${round.reason}`);
  const head = make("span", "ds-rhead");
  const open = make("button", "ds-open", String(round.index + 1));
  open.type = "button";
  open.tabIndex = -1; // the keyboard opens a round by Enter on one of its tokens
  open.title = t("Show this round in detail");
  open.setAttribute("aria-label", t("Round {n} in detail", { n: round.index + 1 }));
  head.append(open);
  head.append(make("span", "", round.draft.length ? `ℓ ${round.verifyLen}` : t("plain")));
  if (round.draft.length) head.append(make("span", "ds-racc", `${round.accepted} ✓`));
  const tokens = make("span", "ds-toks");
  round.draft.forEach((token, position) => tokens.append(tokenNode(token, round.index, position)));
  if (round.next) tokens.append(tokenNode(round.next, round.index, round.draft.length));
  tokens.append(make("span", "ds-why", round.reason));
  line.append(head, tokens);
  return line;
}

function lostNode(index) {
  const line = make("div", "ds-round ds-lost", t("round {n} comes with the end of the answer", { n: index + 1 }));
  line.dataset.round = index;
  return line;
}

function describe(token, round, position) {
  const own = position >= round.draft.length;
  const rows = [[t("token"), `${spoken(token.text)}, id ${token.id}`]];
  if (own) return rows;
  rows.push(
    [nameOf("calibrated"), fixed(token.confidence)],
    [nameOf("survival"), fixed(token.survival)],
    [nameOf("draftProb"), fixed(token.draftProb, 3)],
    [nameOf("targetProb"), token.targetProb === null ? t("not verified") : fixed(token.targetProb, 3)],
    [nameOf("acceptProb"), token.acceptProb === null ? t("not verified") : fixed(token.acceptProb, 3)],
  );
  if (token.uniform !== null) rows.push([nameOf("uniform"), fixed(token.uniform, 3)]);
  return rows;
}

export function mountRibbon(root, store) {
  const ribbon = root.querySelector(".ds-ribbon");
  const banner = root.querySelector(".ds-banner");
  const run = root.querySelector(".ds-run");
  const earlier = root.querySelector(".ds-earlier");
  const empty = root.querySelector(".ds-empty");
  let epoch = -1;
  let drawn = 0;
  let first = 0;
  let current = null;
  const end = stickToEnd(ribbon);
  const inSight = watchSight(ribbon, () => store.changed());

  const find = (node) => {
    const [round, position] = node.dataset.at.split(".").map(Number);
    const data = store.rounds[round];
    if (!data) return null;
    const token = position < data.draft.length ? data.draft[position] : data.next;
    return { round: data, position, token };
  };

  // The label is there when the focus arrives, so that a screen reader speaks it.
  const label = (node) => {
    const found = find(node);
    if (!found) return;
    const { round, position, token } = found;
    const words = describe(token, round, position).slice(1).map((row) => row.join(" "));
    const place = t("round {n}, position {at}", { n: round.index + 1, at: position + 1 });
    node.setAttribute("aria-label", [spoken(token.text), t(token.fate), place, ...words].join(", "));
  };

  const explain = (node) => {
    const found = find(node);
    if (!found) return;
    const { round, position, token } = found;
    const rows = describe(token, round, position);
    showTip(node, (tip) => {
      const title = make("p", "ds-tip-title");
      const mark = make("span", "ds-mark", markOf(token.fate));
      mark.dataset.fate = token.fate;
      title.append(mark, make("b", "", t(token.fate)), make("span", "", t(EXPLAIN[token.fate])));
      const list = make("dl");
      for (const [name, value] of rows) list.append(make("dt", "", name), make("dd", "", value));
      tip.append(title, list, make("p", "ds-tip-why", `${t("round {n}, position {at}", { n: round.index + 1, at: position + 1 })}: ${roundWords(round)}; ${round.reason}`));
    });
  };

  const focusToken = (node) => {
    if (!node) return;
    if (current) {
      current.tabIndex = -1;
      current.setAttribute("aria-selected", "false");
    }
    current = node;
    node.tabIndex = 0;
    node.setAttribute("aria-selected", "true");
  };

  ribbon.addEventListener("pointerover", (event) => {
    const node = event.target.closest(".ds-tok");
    if (node) explain(node);
  });
  ribbon.addEventListener("pointerout", (event) => {
    const node = event.target.closest(".ds-tok");
    if (node && !node.contains(event.relatedTarget) && node !== document.activeElement) hideTip(node);
  });
  ribbon.addEventListener("focusin", (event) => {
    const node = event.target.closest(".ds-tok");
    if (!node) return;
    label(node);
    focusToken(node);
    requestAnimationFrame(() => document.activeElement === node && explain(node)); // after the scroll that focus causes
  });
  ribbon.addEventListener("focusout", () => hideTip());
  const openRound = (round, position = null) => {
    hideTip();
    store.choose(round, position);
    openTab("rounds");
  };

  ribbon.addEventListener("click", (event) => {
    const round = event.target.closest(".ds-open")?.closest(".ds-round").dataset.round;
    if (round !== undefined) return openRound(Number(round));
    event.target.closest(".ds-tok")?.focus();
  });
  ribbon.addEventListener("dblclick", (event) => {
    const found = event.target.closest(".ds-tok") && find(event.target.closest(".ds-tok"));
    if (found) openRound(found.round.index, found.position);
  });
  ribbon.addEventListener("keydown", (event) => {
    const node = event.target.closest(".ds-tok");
    if (!node) return;
    if (event.key === "Enter") {
      const found = find(node);
      return found && openRound(found.round.index, found.position);
    }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const jump = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const edge = { Home: 0, End: -1 }[event.key];
    if (step === undefined && jump === undefined && edge === undefined) return;
    event.preventDefault();
    const all = [...ribbon.querySelectorAll(".ds-tok")].filter((token) => token.offsetParent !== null);
    if (edge !== undefined) return all.at(edge)?.focus();
    if (step !== undefined) return all[all.indexOf(node) + step]?.focus();
    const line = node.closest(".ds-round");
    const place = [...line.querySelectorAll(".ds-tok")].indexOf(node);
    const target = jump > 0 ? line.nextElementSibling : line.previousElementSibling;
    const tokens = target ? [...target.querySelectorAll(".ds-tok")] : [];
    tokens[Math.min(place, tokens.length - 1)]?.focus();
  });

  root.querySelector(".ds-legend").addEventListener("click", (event) => {
    const key = event.target.closest(".ds-key");
    if (!key) return;
    key.setAttribute("aria-pressed", key.getAttribute("aria-pressed") === "true" ? "false" : "true");
    const off = [...root.querySelectorAll('.ds-key[aria-pressed="false"]')].map((item) => item.dataset.key);
    ribbon.dataset.hide = off.join(" ");
  });

  const startOver = () => {
    hideTip();
    ribbon.replaceChildren();
    current = null;
    drawn = first = 0;
    end.follows = true;
  };

  earlier.addEventListener("click", () => {
    const from = Math.max(0, first - KEPT);
    const lines = document.createDocumentFragment();
    for (let i = from; i < first; i += 1) lines.append(store.rounds[i] ? roundNode(store.rounds[i]) : lostNode(i));
    ribbon.prepend(lines);
    putBy();
    first = from;
    end.follows = false;
    showEarlier();
  });

  // Of lines that are not fresh, the browser lays out only those in sight.
  const putBy = () => {
    let line = ribbon.children[ribbon.childElementCount - FRESH - 1];
    for (; line && !line.classList.contains("ds-past"); line = line.previousElementSibling) line.classList.add("ds-past");
  };

  const showEarlier = () => {
    earlier.hidden = first === 0;
    if (first > 0) setText(earlier, t("Show {n} of {all} earlier rounds", { n: Math.min(first, KEPT), all: first }));
  };

  const describeRun = ({ prefilled, running, finish, waiting }) => {
    if (!prefilled) return store.answer && running ? waiting || t("reading the prompt…") : "";
    const parts = [prefilled.drafter, t("seed {seed}", prefilled), t("prompt {n} tokens in {s} s", { n: prefilled.prompt_tokens, s: fixed(prefilled.prefill_s) })];
    if (finish) parts.push(finish.detail || finish.reason);
    else if (running) parts.push(t("running"));
    return parts.join(" · ");
  };

  store.listen((state) => {
    if (state.epoch !== epoch) {
      epoch = state.epoch;
      startOver();
    }
    const { rounds } = state;
    if (drawn < rounds.length) {
      if (rounds.length - drawn > KEPT) {
        ribbon.replaceChildren();
        drawn = first = rounds.length - KEPT;
      }
      const lines = document.createDocumentFragment();
      const until = Math.min(rounds.length, drawn + BATCH);
      for (; drawn < until; drawn += 1) lines.append(rounds[drawn] ? roundNode(rounds[drawn]) : lostNode(drawn));
      ribbon.append(lines);
      while (end.follows && drawn - first > KEPT + SPARE) {
        for (let i = 0; i < SPARE; i += 1) ribbon.firstElementChild.remove();
        first += SPARE;
      }
      putBy();
      if (!current?.isConnected) focusToken(ribbon.querySelector(".ds-tok"));
      end.settle();
      if (drawn < rounds.length) store.changed();
    }
    showEarlier();
    if (rounds.length === 0 && !empty.isConnected) ribbon.append(empty);
    if (rounds.length > 0 && empty.isConnected) empty.remove();
  }, () => (inSight() ? GLANCE_MS : drawn < FRESH ? OUT_OF_SIGHT_MS : Infinity));

  store.listen((state) => {
    setText(run, describeRun(state));
    const plain = state.prefilled && state.prefilled.num_draft_tokens === 0;
    const note = plain ? t("Nothing is drafted: this answer is plain decoding, one token a round.") : state.prefilled?.drafter_note ?? "";
    banner.hidden = note === "";
    setText(banner, note);
  });
}
