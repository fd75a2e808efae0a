import { make, setText } from "./text.js";
import { currentLanguage, onLanguage, setLanguage, t } from "./words.js";

const KEY = "dspark-theme";

function applySavedTheme() {
  let saved = null;
  try {
    saved = localStorage.getItem(KEY);
  } catch {
    return; // storage is off: the system's theme it is
  }
  if (saved) document.body.classList.toggle("dark", saved === "dark");
}

function toggleTheme() {
  const dark = document.body.classList.toggle("dark");
  try {
    localStorage.setItem(KEY, dark ? "dark" : "light");
  } catch {
    // storage is off: the choice lasts for this page only
  }
}

function mountLanguages(root) {
  const buttons = [...root.querySelectorAll("[data-language]")];
  const show = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.language === currentLanguage())));
  for (const button of buttons) button.addEventListener("click", () => setLanguage(button.dataset.language));
  onLanguage(show);
  show();
}

function drawCurve(node, { step_curve: source, profiling }) {
  setText(node, profiling ? t("profile follows") : source.startsWith("not profiled") ? t("not profiled") : t("profiled"));
  node.dataset.tip = profiling
    ? t("What a step costs on this machine is measured once, while nothing runs; then the policies prefix and delayed can be chosen. {stage}", { stage: profiling })
    : t("What a step costs on this machine, which the policies prefix and delayed need: {source}", { source });
}

export function mountHeader(root, store) {
  applySavedTheme();
  root.querySelector(".ds-theme").addEventListener("click", toggleTheme);
  mountLanguages(root);
  const state = root.querySelector(".ds-state");
  const progress = root.querySelector(".ds-progress");
  const machine = root.querySelector(".ds-machine");
  let drawn = null;
  onLanguage(() => {
    machine.replaceChildren();
    drawn = null;
  });
  store.listen(({ status, away }) => {
    const now = away ? "away" : status;
    if (!now || now === drawn) return;
    drawn = now;
    if (away) {
      state.dataset.phase = "away";
      setText(state.querySelector(".ds-state-text"), t("the server does not answer; trying again"));
      return;
    }
    state.dataset.phase = status.phase;
    const words = {
      loading: t("loading {name}: {stage}", status),
      ready: status.active > 0 ? t("ready, {active} running", status) : t("ready"),
      failed: t("the model could not be opened"),
    };
    setText(state.querySelector(".ds-state-text"), words[status.phase]);
    progress.hidden = status.phase !== "loading";
    progress.value = status.fraction;
    if (!status.info) return;
    if (!machine.childElementCount) {
      const [model, device, dtype, gamma] = status.info;
      machine.append(...[model, device, dtype, `γ = ${gamma}`].map((text) => make("span", "", text)), make("span", "ds-curve"));
      machine.lastChild.tabIndex = 0;
    }
    drawCurve(machine.lastChild, status);
  });
}
