// The page's words: English in the code, other languages by it. {name} in a text is replaced by the value of that name.

const dictionary = () => window.dsparkPage?.dictionary ?? {};

export function t(english, values = {}) {
  const text = dictionary()[english] ?? english;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}
