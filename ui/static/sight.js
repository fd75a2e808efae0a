// What is looked at: drawing what nobody sees takes time from the model, where it runs on the same machine.
export const OPEN = "100000px"; // however far down the page it stands: hidden only where another tab is open

// Returns whether an element is in sight, or near enough by the margin; changed() is called when that changes. Asking
// costs nothing, while offsetParent has the page laid out.
export function watchSight(node, changed, margin = "0px") {
  let seen = false;
  new IntersectionObserver((entries) => {
    seen = entries.at(-1).isIntersecting;
    changed();
  }, { rootMargin: margin }).observe(node);
  return () => seen;
}
