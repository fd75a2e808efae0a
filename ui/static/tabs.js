// The page's tabs are Gradio's; this opens one by its key (ui/tabs.py).

// Where the row is too narrow for all, Gradio leaves some tabs to a menu whose buttons know no key, only their names. An
// unseen row, by which it measures, has the names of all in the page's order.
function inMenu(key) {
  const keys = (window.gradio_config?.components ?? []).filter(({ type }) => type === "tabitem").map(({ props }) => props.id);
  const names = [...document.querySelectorAll("#ds-tabs .tab-container.visually-hidden button")].map((button) => button.textContent.trim());
  const name = names[keys.indexOf(key)];
  return [...document.querySelectorAll("#ds-tabs .overflow-dropdown button")].find((button) => button.textContent.trim() === name);
}

export function openTab(key, { focus = true } = {}) {
  const tab = document.querySelector(`#ds-tabs [role=tab][data-tab-id="${CSS.escape(key)}"]`) ?? inMenu(key);
  tab?.click();
  if (focus) tab?.focus();
}
