/* Requests as curl commands, and a button that copies code. */

import { KEY_STORAGE, SERVICE_URL } from "./api.js";
import { announce, copyText, el, readStorage } from "./element.js";

const quoteForShell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Whether this tab has an API key. Commands name an environment variable instead of the key. */
export const hasKey = () => readStorage(KEY_STORAGE, "sessionStorage") !== null;

/** Formats a request as a curl command. `body` is JSON text, or null. */
export function formatCurl(method, path, body, origin = SERVICE_URL) {
  const isDefaultMethod = method === "get" || (method === "post" && body !== null);
  const lines = [`curl ${isDefaultMethod ? "" : `-X ${method.toUpperCase()} `}${origin}${path}`];
  if (hasKey()) lines.push('-H "Authorization: Bearer $HARDMAX_KEY"');
  if (body !== null) lines.push("-H 'content-type: application/json'", `-d ${quoteForShell(body)}`);
  return lines.join(" \\\n  ");
}

/** Returns a button that copies the result of `getCode()`; `language` is "curl" or "Python". */
export function copyButton(language, getCode) {
  const title = language === "curl" ? "Copy curl" : "Copy";
  const copy = async ({ target }) => {
    const copied = await copyText(getCode());
    target.textContent = copied ? "Copied" : "Copy failed";
    setTimeout(() => (target.textContent = title), 2000);
    announce(copied ? `${language} copied` : "The browser does not allow copying");
  };
  const label = `Copy ${language} ${language === "curl" ? "command" : "code"}`;
  return el("button", { type: "button", class: "quiet small", "aria-label": label, onclick: copy }, title);
}
