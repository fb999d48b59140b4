/* DOM helpers: create and find elements, announce, copy, format numbers, read storage. */

export const byId = (id) => document.getElementById(id);

/** Creates an element: `el("p", {class: "fine", onclick}, "text", child)`. `{vars: {"--t": 1}}` sets custom
    properties (the content security policy forbids style attributes). Null and false children are skipped. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "vars") setVariables(node, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") node.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function setVariables(node, variables) {
  for (const [name, value] of Object.entries(variables)) node.style.setProperty(name, value);
}

/** Creates an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const star = () => el("i", { class: "star", "aria-hidden": "true" });

/** Announces a message to screen readers, through the live region. */
export function announce(text) {
  byId("live").textContent = text;
}

/** Copies text and resolves to whether that worked. Over plain HTTP, browsers support only `execCommand`. */
export async function copyText(text) {
  if (navigator.clipboard)
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  const focused = document.activeElement;
  const area = el("textarea", { class: "visually-hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  return copied;
}

/** Shows an error message, or hides the element if there is none. */
export function showError(node, text) {
  node.hidden = !text;
  node.textContent = text ?? "";
}

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Formats 1.234 as "+1.23", with a typographic minus sign. */
export function signed(x, digits = 2) {
  const text = Math.abs(x).toFixed(digits);
  return (Number(text) === 0 ? "" : x < 0 ? "\u2212" : "+") + text;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** Formats a list as "a, b and c". */
export const formatList = (items) =>
  items.length > 1 ? `${items.slice(0, -1).join(", ")} and ${items.at(-1)}` : items.join();

/** Reads localStorage or sessionStorage. Returns null if the browser blocks storage. */
export function readStorage(name, storage = "localStorage") {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}
