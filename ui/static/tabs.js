// The page's tabs are Gradio's; this opens one by its name.

export function openTab(name) {
  const tab = [...document.querySelectorAll("#ds-tabs [role=tab]")].find((button) => button.textContent.trim() === name);
  tab?.click();
  tab?.focus();
}
