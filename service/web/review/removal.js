/* Counterfactuals: a few words whose removal changes the label (`flip`), a few words that alone give it (`sufficient`),
   and words that the user removes. Hidden if the answer does not list what the leaders have read. */

import { formatPercent, parseAnswer } from "./answer.js";
import { LatestRequest, formatError } from "../shared/api.js";
import { byId, el, plural } from "../shared/element.js";
import { describeVerdict } from "./verdict.js";

const SEARCH_DELAY_MS = 300; // after the last change of the text
const MAX_REMOVABLE_WORDS = 400;

export class WordRemoval {
  /** `classify(request, signal)` resolves to an item of the answer; `onRemove(indices)` is called with a Set. */
  constructor(classify, onRemove) {
    Object.assign(this, { classify, onRemove, answer: null, request: null, removed: new Set(), buttons: [] });
    this.searches = new LatestRequest(SEARCH_DELAY_MS);
    this.removals = new LatestRequest();
    byId("removal-reset").addEventListener("click", () => this.remove([]));
    byId("removal-unread").addEventListener("click", () => this.remove(this.findUnreadWords()));
    byId("removal-words").addEventListener("keydown", (event) => this.handleKey(event));
  }

  /** Shows an answer, or null. `request` is the object that was sent: if it is the same, removed words stay removed. */
  show(answer, request, readout) {
    const isSameRequest = request === this.request;
    Object.assign(this, { answer, request, readout });
    const isAvailable = answer?.words.some(({ read }) => read) && answer.abstainReason !== "no_known_words";
    for (const id of ["removal", "guarantee"]) byId(id).hidden = !isAvailable;
    if (isSameRequest && isAvailable) return void this.remove([...this.removed]);
    this.searches.stop();
    this.removals.stop();
    this.removed = new Set();
    for (const id of ["flip", "sufficient"]) byId(id).replaceChildren();
    if (!isAvailable) return undefined;
    this.showWords();
    this.showVerdict(null);
    return this.search();
  }

  /** Returns the words that are no leaders and that no leader has read. */
  findUnreadWords() {
    const { words } = this.answer;
    const read = new Set(
      words.flatMap(({ leader, read: others }, index) => (leader ? [index, ...(others ?? [])] : [])),
    );
    return [...words.keys()].filter((index) => !read.has(index));
  }

  /** Requests and shows the sufficient words and the flip. */
  async search() {
    try {
      const request = { ...this.request, explain: "none", flip: true, sufficient: true };
      const item = await this.searches.run((signal) => this.classify(request, signal));
      if (!item) return;
      byId("sufficient").replaceChildren(...this.createSufficientNodes(item.sufficient, item.label));
      byId("flip").replaceChildren(...this.createFlipNodes(item.flip));
    } catch {
      /* these lines are optional; errors of the service are shown with the verdict */
    }
  }

  createSufficientNodes(sufficient, label) {
    if (sufficient === undefined) return [];
    if (sufficient === null) return ["No set of up to 16 words was found that alone gives this label."];
    const kept = this.findWords(sufficient.words);
    const others = [...this.answer.words.keys()].filter((index) => !kept.includes(index));
    const isOne = sufficient.words.length === 1;
    const verb = isOne ? "gives" : "give";
    return [
      ...this.listWords(kept),
      ` alone ${verb} the same label, ${label}, ${formatPercent(sufficient.score)} sure. `,
      ...(others.length ? [this.createLink(others, `Keep only ${isOne ? "this word" : "these words"}`)] : []),
    ];
  }

  createFlipNodes(flip) {
    if (flip === undefined) return [];
    if (flip === null) return ["No set of up to 5 words was found whose removal changes the label."];
    const words = this.findWords(flip.without);
    const sentence = ["Without ", ...this.listWords(words), " the label would be ", el("b", {}, flip.label), ". "];
    return [...sentence, this.createLink(words, words.length === 1 ? "Remove it" : "Remove them")];
  }

  createLink(indices, text) {
    return el("button", { type: "button", class: "link", onclick: () => this.remove(indices) }, text);
  }

  /** Returns nodes for words as they are written, in bold, separated by commas. */
  listWords(indices) {
    return indices.flatMap((index, k) => [k ? ", " : "", el("b", {}, this.answer.words[index].text)]);
  }

  /** Returns the indices of the words that a search has found. */
  findWords(entries) {
    const starts = new Set(entries.map(({ spans }) => spans[0][0]));
    const { words } = this.answer;
    return [...words.keys()].filter((index) => starts.has(words[index].codePointSpans[0][0]));
  }

  /** Shows the text with a toggle button per word. They are one tab stop; arrow keys move between them. */
  showWords() {
    const { text, words } = this.answer;
    const shown = words.slice(0, MAX_REMOVABLE_WORDS);
    let offset = 0;
    this.buttons = [];
    const nodes = shown.flatMap(({ spans: [[start, end]] }, index) => {
      if (start < offset) return []; // the previous word covers it
      const between = text.slice(offset, start);
      offset = end;
      const properties = { type: "button", class: "removable", "data-index": index };
      const tabindex = this.buttons.length ? -1 : 0;
      const button = el(
        "button",
        { ...properties, tabindex, onclick: () => this.toggle(index) },
        text.slice(start, end),
      );
      this.buttons.push(button);
      return [between, button];
    });
    const rest = shown.length < words.length ? " \u2026" : text.slice(offset);
    byId("removal-words").replaceChildren(...nodes, rest);
  }

  handleKey(event) {
    const current = this.buttons.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = this.buttons[current + step];
    if (current < 0 || !next) return;
    event.preventDefault();
    this.buttons[current].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  toggle(index) {
    const removed = new Set(this.removed);
    if (!removed.delete(index)) removed.add(index);
    this.remove([...removed]);
  }

  /** Requests and shows the verdict without these words. */
  async remove(indices) {
    this.removed = new Set(indices);
    this.showVerdict(null);
    this.removals.stop();
    if (!indices.length) return;
    const { text, words, shownLabel } = this.answer;
    const spans = [...indices].sort((a, b) => a - b).map((index) => words[index].codePointSpans[0]);
    const request = { ...this.request, explain: "full", without: spans };
    try {
      const item = await this.removals.run((signal) => this.classify(request, signal));
      if (item) this.showVerdict(parseAnswer(text, item, this.readout, shownLabel));
    } catch (error) {
      byId("removal-verdict").textContent = formatError(error);
    }
  }

  /** Shows the answer without the removed words, or null if there is none yet. */
  showVerdict(counterfactual) {
    const { answer, removed } = this;
    for (const button of this.buttons)
      button.setAttribute("aria-pressed", String(removed.has(Number(button.dataset.index))));
    byId("removal-reset").disabled = removed.size === 0;
    byId("removal-verdict").replaceChildren(
      ...(counterfactual ? compareVerdicts(answer, counterfactual, removed.size) : []),
    );
    byId("removal-positions").textContent = counterfactual ? comparePositions(answer, counterfactual, removed) : "";
    this.onRemove(removed);
  }
}

function compareVerdicts(answer, counterfactual, removedCount) {
  const [before, after] = [answer, counterfactual].map(describeVerdict);
  const format = ({ label, score }) => [label, score].filter(Boolean).join(", ");
  return [
    `Without ${plural(removedCount, "word")}: ${before.label === after.label ? "still " : ""}`,
    el("b", { class: after.side }, format(after)),
    ` (before: ${format(before)}).`,
  ];
}

/** Lists leaders whose initial position is the same, bit for bit, and those that had read a removed word and moved. */
function comparePositions({ words }, counterfactual, removed) {
  const positions = new Map(
    counterfactual.words.map(({ codePointSpans: [[start]], position }) => [start, String(position)]),
  );
  const [unchanged, changed] = [new Set(), new Set()];
  words.forEach(({ read, codePointSpans: [[start]], position, text }, index) => {
    if (!read || !position || removed.has(index) || !positions.has(start)) return;
    const isSame = positions.get(start) === String(position);
    const hasReadRemoved = read.some((other) => removed.has(other));
    if (hasReadRemoved && !isSame) changed.add(text);
    if (!hasReadRemoved && isSame) unchanged.add(text);
  });
  const list = (names) => [...names].map((name) => `\u2605 ${name}`).join(", ");
  const unchangedText =
    unchanged.size === 1
      ? "has read no removed word: its initial position is"
      : "have read no removed word: their initial positions are";
  return [
    unchanged.size ? `${list(unchanged)} ${unchangedText} the same, to the last bit.` : "",
    changed.size ? `${list(changed)} had read a removed word, and moved.` : "",
  ].join(" ");
}
