/* The page's colours as strings that a canvas or a file understands; the palette itself stands in page.css. */

const cache = new Map();
let probe = null;

/** The present value of a colour of page.css: colour("ink"), colour("pos"). */
export function colour(name) {
  if (cache.has(name)) return cache.get(name);
  probe ??= document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true }));
  probe.style.color = `var(--${name})`;
  const value = getComputedStyle(probe).color;
  cache.set(name, value);
  return value;
}

/** Forget what was read: the theme has changed. */
export function clearColourCache() {
  cache.clear();
}

export const HUES = 8;

/** The colour of the cluster of that rank by size; beyond the eighth all share one grey, distinguished by shape and label. */
export function hue(rank) {
  return colour(rank < HUES ? `hue-${rank}` : "soft");
}

/** The side a number is on. */
export const side = (x) => colour(x >= 0 ? "pos" : "neg");
