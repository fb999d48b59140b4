/* Making and finding elements. */

export const byId = (id) => document.getElementById(id);

/** An element: `el("p", {class: "fine", onclick}, "text", child)`. Styles go in as custom properties: `{vars: {"--t": 1}}`. */
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

/** An element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const star = () => el("i", { class: "star", "aria-hidden": "true" });

/** Says something to people who cannot see it happen. */
export function announce(text) {
  byId("live").textContent = text;
}

/** Resolves to whether the text was copied. Over plain http from another machine browsers know the older way alone. */
export async function copyText(text) {
  if (navigator.clipboard)
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  const before = document.activeElement;
  const area = el("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus({ preventScroll: true });
  return done;
}

export function showError(node, text) {
  node.hidden = !text;
  node.textContent = text ?? "";
}

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** 1.234 as "+1.23", with a true minus sign. */
export function signed(x, digits = 2) {
  const text = Math.abs(x).toFixed(digits);
  return (Number(text) === 0 ? "" : x < 0 ? "\u2212" : "+") + text;
}

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** A value in localStorage or sessionStorage; null where the browser stores nothing for this page. */
export function readStorage(name, storage = "localStorage") {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}
