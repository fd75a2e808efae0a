import { setText } from "./text.js";

export function mountNotice(root, store) {
  const box = root.querySelector(".ds-notice");
  store.listen(({ notice }) => {
    const silent = !notice || notice.level === "none";
    box.hidden = silent;
    if (silent) return setText(box, "");
    box.dataset.level = notice.level;
    setText(box, notice.text);
  });
}

export function mountSchedule(root, store) {
  const box = root.querySelector(".ds-schedule");
  store.listen(({ schedule, controls }) => {
    if (controls) Object.assign(document.querySelector("#ds-controls").dataset, { policy: controls.policy, signal: controls.load_signal });
    if (!schedule) return;
    box.dataset.level = schedule.level;
    setText(box, schedule.text);
  });
}
