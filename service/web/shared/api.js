/* HTTP client for the service: sends JSON and the API key, and turns errors into messages for users. */

import { readStorage } from "./element.js";

/** Returns the card with this name, or else that of its newest version ("name@3"). */
export function findCard(cards, name) {
  const version = (card) => (card.name.startsWith(`${name}@`) ? Number(card.name.slice(name.length + 1)) : 0);
  const newest = cards.reduce((best, card) => (version(card) > version(best) ? card : best), { name: "" });
  return cards.find((card) => card.name === name) ?? (newest.name ? newest : undefined);
}

/** The sessionStorage item that holds the API key of this tab. */
export const KEY_STORAGE = "hardmax-key";

/** Whether an HTTP header can contain the key. */
export const isValidKey = (text) => /^[\x20-\x7e]+$/.test(text);
export const INVALID_KEY_MESSAGE = "API keys contain printable ASCII characters only.";

/** An error response, or status 0 without a response. The message is meant for users. */
export class ApiError extends Error {
  constructor(status, message, { param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, param, retryAfter });
  }
}

/** The address of the service without a slash at its end. Behind a gateway it has a path. */
export const SERVICE_URL = new URL("../..", import.meta.url).href.replace(/\/$/, "");

export class Api {
  /** `promptForKey(reason)` resolves to a key, or to null if the user cancels. */
  constructor(promptForKey) {
    this.promptForKey = promptForKey;
    this.pendingPrompt = null;
  }

  get(path, signal) {
    return this.call(path, { method: "GET", signal });
  }

  post(path, body, signal) {
    const headers = { "content-type": "application/json" };
    return this.call(path, { method: "POST", body: JSON.stringify(body), headers, signal });
  }

  async call(path, request) {
    const key = readStorage(KEY_STORAGE, "sessionStorage");
    const response = await send(path, request, key);
    if (response.ok) return response.json();
    const error = await readError(response);
    if (response.status === 401 && (await this.obtainKey(key, error.message))) return this.call(path, request);
    throw error;
  }

  /** Resolves to whether a key is available to retry with. Concurrent requests share one prompt. */
  async obtainKey(rejectedKey, reason) {
    if (readStorage(KEY_STORAGE, "sessionStorage") !== rejectedKey) return true;
    this.pendingPrompt ??= this.promptForValidKey(reason).finally(() => (this.pendingPrompt = null));
    const key = await this.pendingPrompt;
    if (key) sessionStorage.setItem(KEY_STORAGE, key);
    return Boolean(key);
  }

  async promptForValidKey(reason) {
    const key = (await this.promptForKey(reason))?.trim();
    return !key || isValidKey(key) ? key : this.promptForValidKey(INVALID_KEY_MESSAGE);
  }
}

async function send(path, request, key) {
  const headers = { ...request.headers, ...(key && { authorization: `Bearer ${key}` }) };
  try {
    return await fetch(SERVICE_URL + path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Is it still running?");
  }
}

async function readError(response) {
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    /* the body is not an error of this service, for example because a proxy sent it */
  }
  const message = error.message || `The server answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, message, { param: error.param, retryAfter });
}

/** Formats an error as a sentence for users. */
export function formatError(error) {
  if (!(error instanceof ApiError)) return `Unexpected error: ${error.message}`;
  const sentence = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  const retry = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  return sentence.replace(/([^.!?])$/, "$1.") + retry;
}

/** Runs one task at a time: starting a task aborts the previous one. */
export class LatestRequest {
  /** Each task starts after `delayMs`, to debounce input. */
  constructor(delayMs = 0) {
    this.delayMs = delayMs;
    this.controller = null;
  }

  /** Aborts the running task. */
  stop() {
    this.controller?.abort();
  }

  /** Resolves to the result of the task, or to undefined if it was aborted. */
  async run(task) {
    this.stop();
    const controller = (this.controller = new AbortController());
    if (this.delayMs) await new Promise((resolve) => setTimeout(resolve, this.delayMs));
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
