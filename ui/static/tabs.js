// The page's tabs are Gradio's; this opens one by its name.

export function openTab(name) {
  const tab = [...document.querySelectorAll("#ds-tabs [role=tab]")].find((button) => button.textContent.trim() === name);
  tab?.click();
  tab?.focus();
}

// Goes to the tab that ``params`` name by its key (``tab=rounds``).
export function goTo(params) {
  const key = params.get("tab") ?? "chat";
  openTab(key[0].toUpperCase() + key.slice(1));
}
