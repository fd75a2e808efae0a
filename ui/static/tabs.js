// The page's tabs are Gradio's; this opens one by its key (ui/tabs.py).

export function openTab(key) {
  const tab = document.querySelector(`#ds-tabs [role=tab][data-tab-id="${CSS.escape(key)}"]`);
  tab?.click();
  tab?.focus();
}
