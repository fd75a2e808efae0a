// One floating panel for everything that explains itself on hover and on focus.
import { make } from "./text.js";

let box;
let owner = null;

function ensure() {
  if (box) return box;
  box = make("div", "ds-tip");
  box.id = "ds-tip";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  document.body.append(box);
  return box;
}

export function showTip(anchor, fill) {
  const tip = ensure();
  if (owner !== anchor) owner?.removeAttribute("aria-describedby");
  owner = anchor;
  tip.replaceChildren();
  fill(tip);
  tip.hidden = false;
  anchor.setAttribute("aria-describedby", "ds-tip");
  place();
}

function place() {
  const at = owner.getBoundingClientRect();
  const size = box.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = Math.min(Math.max(8, at.left), Math.max(8, room - size.width - 8));
  const below = at.bottom + 6;
  const above = at.top - size.height - 6;
  box.style.left = `${left}px`;
  box.style.top = `${below + size.height > window.innerHeight - 8 && above > 8 ? above : below}px`;
}

// What is focused keeps its panel while the page moves under it; what is merely pointed at loses it.
function follow() {
  if (!owner) return;
  if (owner.contains(document.activeElement)) place();
  else hideTip();
}

export function hideTip(anchor) {
  if (anchor && anchor !== owner) return;
  owner?.removeAttribute("aria-describedby");
  owner = null;
  if (box) box.hidden = true;
}

// Elements with data-tip explain themselves.
export function watchTips() {
  const explain = (event) => {
    const anchor = event.target.closest?.("[data-tip]");
    if (anchor) showTip(anchor, (tip) => tip.append(make("p", "", anchor.dataset.tip)));
  };
  const leave = (event) => {
    const anchor = event.target.closest?.("[data-tip]");
    if (anchor && !anchor.contains(event.relatedTarget)) hideTip(anchor);
  };
  document.addEventListener("pointerover", explain);
  document.addEventListener("focusin", explain);
  document.addEventListener("pointerout", leave);
  document.addEventListener("focusout", leave);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  document.addEventListener("scroll", follow, { capture: true, passive: true });
}
