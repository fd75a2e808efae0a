// The tab Learn: one lesson at a time, its picture drawn from recorded figures, and the glossary.
import { goTo } from "./address.js";
import { GENERAL_TERMS } from "./glossary.js";
import { lawsOf, roundOf } from "./answer.js";
import { TERMS } from "./terms.js";
import { make, setText } from "./text.js";
import { drawWidgets } from "./widgets.js";
import { onLanguage, t } from "./words.js";

const SEEN = "dspark-lessons";

// Which lessons the reader has opened; a browser that keeps nothing forgets it, and that is all.
const seen = {
  read() {
    try {
      return new Set(JSON.parse(localStorage.getItem(SEEN) ?? "[]"));
    } catch {
      return new Set();
    }
  },
  add(key) {
    try {
      localStorage.setItem(SEEN, JSON.stringify([...seen.read().add(key)]));
    } catch {
      /* private window */
    }
  },
};

async function recorded() {
  const answer = await fetch(new URL("./lessons.json", import.meta.url));
  if (!answer.ok) throw new Error(`${answer.status}`);
  const raw = await answer.json();
  return { ...raw, rounds: raw.rounds.map(roundOf), laws: raw.laws.map((laws) => laws && lawsOf(laws)) };
}

export function mountLearn(root) {
  const lessons = [...root.querySelectorAll(".ds-lesson")];
  const nav = root.querySelector(".ds-lessons");
  let current = 0;

  const tabs = lessons.map((lesson, at) => {
    const button = make("button");
    button.type = "button";
    button.addEventListener("click", () => show(at));
    const heading = make("h3");
    heading.tabIndex = -1;
    lesson.prepend(heading);
    return button;
  });
  nav.replaceChildren(...tabs);

  const show = (at, focus = true) => {
    current = Math.min(lessons.length - 1, Math.max(0, at));
    const done = seen.read();
    lessons.forEach((lesson, i) => {
      lesson.hidden = i !== current;
      tabs[i].setAttribute("aria-current", i === current ? "step" : "false");
      tabs[i].classList.toggle("ds-lesson-seen", done.has(lesson.dataset.lesson));
    });
    seen.add(lessons[current].dataset.lesson);
    root.querySelector('[data-turn="-1"]').disabled = current === 0;
    root.querySelector('[data-turn="1"]').disabled = current === lessons.length - 1;
    if (focus) lessons[current].querySelector("h3").focus({ preventScroll: false });
  };

  root.addEventListener("click", (event) => {
    const turn = event.target.closest("[data-turn]");
    if (turn) show(current + Number(turn.dataset.turn));
    const go = event.target.closest("[data-go]");
    if (go) goTo(new URLSearchParams(go.dataset.go));
  });

  const glossary = () => {
    const terms = [...Object.values(TERMS), ...GENERAL_TERMS].map(([name, meaning]) => [t(name), t(meaning)]);
    terms.sort(([one], [two]) => one.localeCompare(two));
    root.querySelector(".ds-glossary dl").replaceChildren(...terms.flatMap(([name, meaning]) => [make("dt", "", name), make("dd", "", meaning)]));
  };

  let data = null;
  const write = () => {
    lessons.forEach((lesson, at) => {
      const title = t(lesson.dataset.title);
      tabs[at].replaceChildren(make("span", "ds-lesson-no", String(at + 1)), make("span", "", title));
      setText(lesson.querySelector("h3"), `${at + 1}. ${title}`);
    });
    glossary();
    if (!data) return;
    setText(root.querySelector(".ds-learn-from"), t("Recorded: {made}", { made: data.made }));
    drawWidgets(root, data);
  };
  onLanguage(write);
  write();
  show(0, false);

  recorded().then(
    (read) => {
      data = read;
      write();
    },
    () => setText(root.querySelector(".ds-learn-from"), t("The recorded figures could not be read; reload the page.")),
  );
}
