/* What decides the verdict: few words that alone give it, few words without which it is another, and words that one
   strikes out by hand. Knows the answer that is shown and asks for those without some of its words; a service that does not say what
   its leaders have read is not searched. */

import { percent, readAnswer } from "./answer.js";
import { LatestRequest, formatError } from "../shared/api.js";
import { byId, el, plural } from "../shared/element.js";
import { verdictOf } from "./verdict.js";

const PAUSE_MS = 300; // after the last key, before a request
const STRUCK_UP_TO = 400; // words of a text; they are buttons

export class Without {
  /** `ask(request, signal)` resolves to the answer to one text; `onStrike(tokens)` hears what is left out. */
  constructor(ask, onStrike) {
    Object.assign(this, { ask, onStrike, searches: new LatestRequest(PAUSE_MS), verdicts: new LatestRequest() });
    Object.assign(this, { answer: null, request: null, struck: new Set(), buttons: [] });
    byId("without-back").addEventListener("click", () => this.strike([]));
    byId("without-unread").addEventListener("click", () => this.strike(this.unread));
    byId("without-words").addEventListener("keydown", (event) => this.key(event));
  }

  /** `answer` is null while there is none; `request` is what it answers, the same for each of its labels. */
  show(answer, request, readout) {
    const same = request === this.request;
    Object.assign(this, { answer, request, readout });
    const explained = answer?.words.some(({ read }) => read) && answer.abstainReason !== "no_known_words";
    byId("without").hidden = !explained;
    if (same && explained) return void this.strike([...this.struck]);
    this.searches.stop();
    this.verdicts.stop();
    this.struck = new Set();
    if (!explained) return undefined;
    this.showWords();
    this.showVerdict(null);
    return this.askSearches();
  }

  /** Words that no leader has read, leaders aside. */
  get unread() {
    const { words } = this.answer;
    const read = new Set(
      words.flatMap((word, token) => (word.leader ? [token, ...(word.read ?? [])] : [])),
    );
    return words.map((_, token) => token).filter((token) => !read.has(token));
  }

  async askSearches() {
    const lines = [byId("sufficient"), byId("flip")];
    for (const line of lines) line.replaceChildren();
    try {
      const item = await this.searches.run((signal) =>
        this.ask({ ...this.request, explain: "none", flip: true, sufficient: true }, signal),
      );
      if (!item) return;
      lines[0].replaceChildren(...this.sufficientNodes(item.sufficient, item.label));
      lines[1].replaceChildren(...this.flipNodes(item.flip));
    } catch {
      /* the label itself is shown, or its failure is described elsewhere */
    }
  }

  sufficientNodes(found, label) {
    if (found === undefined) return [];
    if (found === null) return ["No sixteen words were found that alone give this label."];
    const sufficient = this.tokensOf(found.words);
    const names = found.words.flatMap(({ word }, k) => [k ? ", " : "", el("b", {}, word)]);
    const rest = [...this.answer.words.keys()].filter((token) => !sufficient.includes(token));
    const verdict = `: ${label}, ${percent(found.score)}. `;
    const use = { type: "button", class: "link", onclick: () => this.strike(rest) };
    const alone = found.words.length === 1 ? " alone gives the same label" : " alone give the same label";
    const keep = `Keep only ${found.words.length === 1 ? "this" : "these"}`;
    return [...names, alone, verdict, ...(rest.length ? [el("button", use, keep)] : [])];
  }

  /** The numbers of words that the answer to a search lists. */
  tokensOf(found) {
    const starts = new Set(found.map(({ spans }) => spans[0][0]));
    return [...this.answer.words.keys()].filter((k) => starts.has(this.answer.words[k].sentSpans[0][0]));
  }

  flipNodes(flip) {
    if (flip === undefined) return [];
    if (flip === null) return ["No five words were found whose leaving out would change the label."];
    const tokens = this.tokensOf(flip.without);
    const names = flip.without.flatMap(({ word }, k) => [k ? ", " : "", el("s", {}, word)]);
    const verdict = el("b", {}, `${flip.label}, ${percent(flip.score)}`);
    const use = { type: "button", class: "link", onclick: () => this.strike(tokens) };
    return ["Without ", ...names, " it would be ", verdict, ". ", el("button", use, "Strike them out")];
  }

  /** The text, each of its words a button that strikes it out; one stop of the Tab key, arrows go from word to word. */
  showWords() {
    const { text, words } = this.answer;
    const shown = words.slice(0, STRUCK_UP_TO);
    let at = 0;
    this.buttons = [];
    const nodes = shown.flatMap(({ spans: [[start, end]] }, token) => {
      if (start < at) return []; // covered by the word before
      const between = text.slice(at, start);
      at = end;
      const button = { type: "button", class: "cut", "data-token": token, onclick: () => this.toggle(token) };
      this.buttons.push(
        el("button", { ...button, tabindex: this.buttons.length ? -1 : 0 }, text.slice(start, end)),
      );
      return [between, this.buttons.at(-1)];
    });
    const rest = shown.length < words.length ? " \u2026" : text.slice(at);
    byId("without-words").replaceChildren(...nodes, rest);
  }

  key(event) {
    const at = this.buttons.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = this.buttons[at + step];
    if (at < 0 || !next) return;
    event.preventDefault();
    this.buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  toggle(token) {
    const struck = new Set(this.struck);
    if (!struck.delete(token)) struck.add(token);
    this.strike([...struck]);
  }

  /** The verdict without these words. */
  async strike(tokens) {
    this.struck = new Set(tokens);
    this.showVerdict(null);
    this.verdicts.stop();
    if (!tokens.length) return;
    const { text, words, shown } = this.answer;
    const spans = [...tokens].sort((a, b) => a - b).map((token) => words[token].sentSpans[0]);
    const request = { ...this.request, explain: "full", without: spans };
    try {
      const item = await this.verdicts.run((signal) => this.ask(request, signal));
      if (item) this.showVerdict(readAnswer(text, item, this.readout, shown));
    } catch (error) {
      byId("without-verdict").textContent = formatError(error);
    }
  }

  /** `other` is the answer without what is struck out; null while there is none. */
  showVerdict(other) {
    for (const button of this.buttons) {
      const struck = this.struck.has(Number(button.dataset.token));
      button.setAttribute("aria-pressed", String(struck));
    }
    byId("without-back").disabled = this.struck.size === 0;
    byId("without-verdict").replaceChildren(
      ...(other ? verdictNodes(this.answer, other, this.struck.size) : []),
    );
    byId("without-stayed").textContent = other ? stayedOf(this.answer, other, this.struck) : "";
    this.onStrike(this.struck);
  }
}

function verdictNodes(answer, other, count) {
  const [before, now] = [answer, other].map(verdictOf);
  const named = ({ label, score }) => [label, score].filter(Boolean).join(", ");
  const changed = before.label === now.label ? "still " : "";
  return [
    `Without ${plural(count, "word")}: ${changed}`,
    el("b", { class: now.side }, named(now)),
    ` (before: ${named(before)}).`,
  ];
}

/** What became of the leaders: those that have read none of the struck words are where they were, to the bit. */
function stayedOf({ words }, other, struck) {
  const starts = new Map(other.words.map(({ sentSpans: [[from]], start }) => [from, String(start)]));
  const [stayed, moved] = [new Set(), new Set()];
  words.forEach(({ read, sentSpans: [[from]], start, text }, token) => {
    if (!read || !start || struck.has(token) || !starts.has(from)) return;
    const same = starts.get(from) === String(start);
    const touched = read.some((word) => struck.has(word));
    if (touched && !same) moved.add(text);
    if (!touched && same) stayed.add(text);
  });
  const stars = (names) => [...names].map((name) => `\u2605 ${name}`).join(", ");
  const stays =
    stayed.size === 1
      ? "has read none of them, and stays where it is"
      : "have read none of them, and stay where they are";
  return [
    stayed.size ? `${stars(stayed)} ${stays}, to the bit.` : "",
    moved.size ? `${stars(moved)} had read some of them, and moved.` : "",
  ].join(" ");
}
