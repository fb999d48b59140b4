/* Colours of page.css as strings for canvas and SVG. */

const cache = new Map();
let probe = null;

/** Returns the current value of a custom property of page.css: colour("ink") reads --ink. */
export function colour(name) {
  if (cache.has(name)) return cache.get(name);
  probe ??= document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true }));
  probe.style.color = `var(--${name})`;
  const value = getComputedStyle(probe).color;
  cache.set(name, value);
  return value;
}

/** Clears the cached values. Call it when the theme changes. */
export function clearColourCache() {
  cache.clear();
}

/** Number of cluster colours, --hue-0 to --hue-7. */
export const N_HUES = 8;

/** Returns the colour of the cluster with this rank by size. Smaller clusters share one grey. */
export function clusterColour(rank) {
  return colour(rank < N_HUES ? `hue-${rank}` : "soft");
}

/** Returns the colour for the sign of a number. */
export const signColour = (x) => colour(x >= 0 ? "pos" : "neg");
