/* Requests as curl commands, and a button that copies code. */

import { KEY_STORAGE } from "./api.js";
import { announce, copyText, el, readStorage } from "./element.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Whether this tab uses a key; commands name a variable in its place. */
export const hasKey = () => readStorage(KEY_STORAGE, "sessionStorage") !== null;

/** A request as a curl command; `body` is JSON text, or null. */
export function formatCurl(method, path, body, origin = location.origin) {
  const plain = method === "get" || (method === "post" && body !== null);
  const lines = [`curl ${plain ? "" : `-X ${method.toUpperCase()} `}${origin}${path}`];
  if (hasKey()) lines.push('-H "Authorization: Bearer $HARDMAX_KEY"');
  if (body !== null) lines.push("-H 'content-type: application/json'", `-d ${shell(body)}`);
  return lines.join(" \\\n  ");
}

/** A button that copies what `text()` gives. */
export function copyButton(name, text) {
  const title = name === "curl" ? "Copy curl" : "Copy";
  const copy = async ({ target }) => {
    const done = await copyText(text());
    target.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (target.textContent = title), 2000);
    announce(done ? `${name} copied` : "The browser lets this page copy nothing");
  };
  return el(
    "button",
    { type: "button", class: "quiet small", "aria-label": `Copy the ${name} lines`, onclick: copy },
    title,
  );
}
