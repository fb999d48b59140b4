/* The service as the page sees it: JSON in, JSON out, failures as sentences.
   Knows the wire and the API key; nothing of what the answers mean. */

import { readStorage } from "./element.js";

/** The card that a name means, as the service takes it: the one of that name, or else its newest version. */
export function findCard(cards, name) {
  const version = (card) => (card.name.startsWith(`${name}@`) ? Number(card.name.slice(name.length + 1)) : 0);
  const newest = cards.reduce((best, card) => (version(card) > version(best) ? card : best), { name: "" });
  return cards.find((card) => card.name === name) ?? (newest.name ? newest : undefined);
}

/** Where the key is stored: in the tab, until it is closed. */
export const KEY_STORAGE = "hardmax-key";

/** Whether a request can carry the key; `INVALID_KEY_MESSAGE` says to a person why not. */
export const isValidKey = (text) => /^[\x20-\x7e]+$/.test(text);
export const INVALID_KEY_MESSAGE = "A key has plain letters, digits and signs alone. In this one there is another character.";

/** A failure of the service, or of the way to it, in words for people. */
export class ApiError extends Error {
  constructor(status, message, { param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, param, retryAfter });
  }
}

export class Api {
  /** `askForKey(reason)` resolves to a key, or to null when the person would rather not. */
  constructor(askForKey) {
    this.askForKey = askForKey;
    this.asking = null;
  }

  get(path, signal) {
    return this.call(path, { method: "GET", signal });
  }

  post(path, body, signal) {
    const headers = { "content-type": "application/json" };
    return this.call(path, { method: "POST", body: JSON.stringify(body), headers, signal });
  }

  async call(path, request) {
    const used = readStorage(KEY_STORAGE, "sessionStorage");
    const response = await send(path, request, used);
    if (response.ok) return response.json();
    const error = await readError(response);
    if (response.status === 401 && (await this.obtainKey(used, error.message)))
      return this.call(path, request);
    throw error;
  }

  /** True when there is a key worth another try. Calls that fail together share one question. */
  async obtainKey(used, reason) {
    if (readStorage(KEY_STORAGE, "sessionStorage") !== used) return true;
    this.asking ??= this.askUntilKey(reason).finally(() => (this.asking = null));
    const key = await this.asking;
    if (key) sessionStorage.setItem(KEY_STORAGE, key);
    return Boolean(key);
  }

  async askUntilKey(reason) {
    const key = (await this.askForKey(reason))?.trim();
    return !key || isValidKey(key) ? key : this.askUntilKey(INVALID_KEY_MESSAGE);
  }
}

async function send(path, request, key) {
  const headers = { ...request.headers, ...(key && { authorization: `Bearer ${key}` }) };
  try {
    return await fetch(path, { ...request, headers });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new ApiError(0, "The server does not answer. Is it still running?");
  }
}

async function readError(response) {
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    /* not our server's shape: a proxy spoke; its status must do */
  }
  const message = error.message || `The server answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, message, { param: error.param, retryAfter });
}

/** What to tell a person about a failure. */
export function formatError(error) {
  if (!(error instanceof ApiError)) return `The page stumbled: ${error.message}`;
  const sentence = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  const when = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  return sentence.replace(/([^.!?])$/, "$1.") + when;
}

/** Of many tasks started one after another only the last matters: starting one aborts the one before. */
export class LatestRequest {
  constructor(wait_ms = 0) {
    this.wait_ms = wait_ms;
    this.controller = null;
  }

  /** Whatever runs is no longer awaited. */
  stop() {
    this.controller?.abort();
  }

  /** Resolves to the task's result, or to undefined when a later task took its place. */
  async run(task) {
    this.stop();
    const controller = (this.controller = new AbortController());
    if (this.wait_ms) await new Promise((resume) => setTimeout(resume, this.wait_ms));
    if (controller.signal.aborted) return undefined;
    try {
      const result = await task(controller.signal);
      return controller.signal.aborted ? undefined : result;
    } catch (error) {
      if (controller.signal.aborted || error.name === "AbortError") return undefined;
      throw error;
    }
  }
}
