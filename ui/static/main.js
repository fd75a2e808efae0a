// Starts the page's scripts: panels announce themselves through an inbox that may be older than this module.
import { mountCalibration, watchAnswers } from "./calibration.js";
import { mountAddress, takeControls } from "./address.js";
import { mountCharts } from "./charts.js";
import { mountChat } from "./chat.js";
import { mountExplore } from "./explore.js";
import { mountCost } from "./cost.js";
import { mountHeader } from "./header.js";
import { mountHeadline } from "./headline.js";
import { mountLab, mountToy } from "./lab.js";
import { mountLearn } from "./learn.js";
import { mountLoadTab } from "./loadtab.js";
import { keepLost } from "./lost.js";
import { followNews } from "./news.js";
import { mountNotice, mountSchedule } from "./notice.js";
import { mountRace } from "./race.js";
import { mountRecorded } from "./recorded.js";
import { mountRibbon } from "./ribbon.js";
import { mountRounds } from "./rounds.js";
import { Store } from "./store.js";
import { mountStepper } from "./stepper.js";
import { mountTable } from "./table.js";
import { watchTips } from "./tip.js";
import { onLanguage, translate } from "./words.js";

const mounts = {
  chat: mountChat,
  header: mountHeader,
  headline: mountHeadline,
  recorded: mountRecorded,
  ribbon: mountRibbon,
  rounds: mountRounds,
  stepper: mountStepper,
  table: mountTable,
  charts: mountCharts,
  notice: mountNotice,
  schedule: mountSchedule,
  calibration: mountCalibration,
  lab: mountLab,
  toy: mountToy,
  learn: mountLearn,
  race: mountRace,
  loadtab: mountLoadTab,
  explore: mountExplore,
  cost: mountCost,
  link: mountAddress,
  footer: () => {},
};

const store = new Store();
const page = (window.dsparkPage ??= { inbox: [] });

function take([kind, ...rest]) {
  if (kind === "feed") store.receive(rest[0]);
  if (kind === "port") store.ports.set(rest[0], rest[1]);
  if (kind === "controls") takeControls(...rest);
  if (kind !== "mount") return;
  translate(rest[1]);
  mounts[rest[0]](rest[1], store, rest[2]);
}

const waiting = page.inbox;
page.inbox = { push: take };
page.store = store;
watchAnswers(store); // from the first answer on, whether or not the tab that shows them was opened
waiting.forEach(take);
keepLost(store);
followNews(store);
watchTips();
onLanguage(() => store.startOver());

// Esc stops the running answer, from anywhere on the page.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !store.live.running || event.target.closest?.("#ds-drafter, #ds-policy, #ds-load-signal")) return;
  const stop = document.querySelector("#ds-stop");
  (stop?.matches("button") ? stop : stop?.querySelector("button"))?.click();
});
