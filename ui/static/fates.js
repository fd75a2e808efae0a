// Marks and colours of fates come from the legend and the CSS variables, both written from ui/fates.py.

export function markOf(fate) {
  return document.querySelector(`.ds-key[data-key="${fate}"]`)?.dataset.mark ?? "";
}

export function variable(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

export const fateColour = (fate) => variable(`--fate-${fate}`);
