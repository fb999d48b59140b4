/* The text editor with highlighted words. An overlay below a transparent textarea colours each word by its contribution
   and marks leaders with a star. Arcs lead from a word to its leader and to the words it has read or attends to. */

import { buildLines, formatAttention, formatRead } from "./answer.js";
import { buildArcPath } from "./arcs.js";
import { el, formatList, plural, setVariables, signed, star, svg } from "../shared/element.js";

const MAX_ARCS = 80;
const MAX_READ_NAMES = 8; // in a tooltip
const MIN_FULL_TINT_CONTRIBUTION = 0.05; // the strongest tint stands for at least this contribution
const WORD_CHARACTER = /\p{L}|\p{N}|\p{Extended_Pictographic}/u;

/** Splits a text at the ends of the words' spans into segments {start, end, text, words, contribution, leader}: the
    indices of the words that cover it, its share of their contributions, and whether a leader starts there. The
    contribution of a word is divided evenly among its spans, and in each among the segments that are not blank or
    punctuation. The contributions of all segments add up to the logit minus the bias. */
export function buildSegments({ text, words, abstainReason }) {
  const cuts = new Set([0, text.length, ...words.flatMap(({ spans }) => spans.flat())]);
  const offsets = [...cuts].filter((offset) => offset <= text.length).sort((a, b) => a - b);
  const positions = new Map(offsets.map((offset, k) => [offset, k]));
  const segments = offsets
    .slice(1)
    .map((end, k) => createSegment(offsets[k], end, text.slice(offsets[k], end)));
  words.forEach(({ spans, contribution, leader }, index) => {
    for (const [start, end] of spans) {
      const covered = segments.slice(positions.get(start), positions.get(end));
      const withWords = covered.filter((segment) => WORD_CHARACTER.test(segment.text));
      const contributing = withWords.length ? withWords : covered;
      for (const segment of covered) segment.words.push(index);
      for (const segment of contributing)
        segment.contribution += contribution / spans.length / contributing.length;
      if (leader && covered.length) covered[0].leader = abstainReason !== "no_known_words";
    }
  });
  return segments;
}

const createSegment = (start, end, text) => ({ start, end, text, words: [], contribution: 0, leader: false });

/** Returns the segments after an edit: those outside the edited range are kept, with plain text between them. */
function updateSegments(segments, oldText, text) {
  const maxLength = Math.min(oldText.length, text.length);
  let prefix = 0;
  while (prefix < maxLength && oldText[prefix] === text[prefix]) prefix += 1;
  let suffix = 0;
  while (suffix < maxLength - prefix && oldText.at(-1 - suffix) === text.at(-1 - suffix)) suffix += 1;
  const shift = text.length - oldText.length;
  const before = segments.filter(({ end }) => end <= prefix);
  const after = segments
    .filter(({ start }) => start >= Math.max(prefix, oldText.length - suffix))
    .map((segment) => ({ ...segment, start: segment.start + shift, end: segment.end + shift }));
  const [start, end] = [before.at(-1)?.end ?? 0, after[0]?.start ?? text.length];
  return [...before, createSegment(start, end, text.slice(start, end)), ...after];
}

export class HighlightEditor {
  /** `onSelect(clusterId, index)` is called with the selected word and its cluster, or with null for both. */
  constructor({ root, overlay, arcs, textarea, tooltip }, onSelect) {
    Object.assign(this, { root, overlay, arcs, textarea, tooltip, onSelect });
    Object.assign(this, { answer: null, segments: [], nodes: [], selected: null, lines: [] });
    textarea.addEventListener(
      "pointermove",
      (event) => event.pointerType !== "touch" && this.selectAt(event.clientX, event.clientY),
    );
    textarea.addEventListener("pointerdown", (event) => this.handlePointerDown(event));
    // The first tap on a word shows its tooltip. A tap elsewhere, or a second tap on the word, starts editing.
    textarea.addEventListener("mousedown", (event) => this.isFirstTap && event.preventDefault());
    textarea.addEventListener("keyup", () => this.selectAtCaret());
    textarea.addEventListener("blur", () => this.selectSegment(null));
    root.addEventListener(
      "pointerleave",
      (event) => event.pointerType !== "touch" && this.selectSegment(null),
    );
    textarea.addEventListener("scroll", () => this.handleScroll());
    new ResizeObserver(() => this.drawArcs()).observe(root);
  }

  /** Highlights `text`. If `answer` is null, the highlights outside the edited range stay until there is an answer. */
  show(text, answer) {
    this.selectSegment(null);
    const segments = answer ? buildSegments(answer) : updateSegments(this.segments, this.text ?? "", text);
    Object.assign(this, { text, answer, segments, lines: [] });
    const sizes = segments.map(({ contribution }) => Math.abs(contribution));
    const fullTint = Math.max(MIN_FULL_TINT_CONTRIBUTION, ...sizes);
    this.nodes = segments.map((segment) => createSegmentNode(segment, segment.contribution / fullTint));
    // The last line of a textarea may be empty; the zero-width space gives the overlay such a line too.
    this.overlay.replaceChildren(...this.nodes, "\u200b");
    this.overlay.scrollTop = this.textarea.scrollTop;
  }

  /** Fits the height to the text, up to the maximum height, from which on the text scrolls. */
  resize() {
    this.textarea.style.height = "auto";
    this.textarea.style.height = `${this.textarea.scrollHeight + 2}px`;
  }

  handleScroll() {
    this.overlay.scrollTop = this.textarea.scrollTop;
    this.drawArcs();
    if (this.selected !== null) this.placeTooltip();
  }

  handlePointerDown(event) {
    const before = this.selected;
    this.selectAt(event.clientX, event.clientY);
    const isNewWord = this.selected !== null && this.selected !== before;
    this.isFirstTap = event.pointerType === "touch" && isNewWord && document.activeElement !== this.textarea;
  }

  /** Returns the index of the segment at a point of the viewport, by binary search for its line. */
  findSegmentAt(x, y) {
    let [low, high] = [0, this.nodes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.nodes[middle].getBoundingClientRect().bottom < y - 2) low = middle + 1;
      else high = middle;
    }
    for (let k = low; k < this.nodes.length && this.nodes[k].getBoundingClientRect().top <= y + 2; k += 1)
      if ([...this.nodes[k].getClientRects()].some((rect) => contains(rect, x, y))) return k;
    return null;
  }

  selectAt(x, y) {
    this.selectWordSegment(this.findSegmentAt(x, y));
  }

  selectAtCaret() {
    const caret = this.textarea.selectionStart;
    const k = this.segments.findIndex(({ start, end }) => start <= caret && caret < end);
    this.selectWordSegment(k >= 0 ? k : null);
  }

  /** Selects segment k if it belongs to a word, and otherwise nothing. */
  selectWordSegment(k) {
    this.selectSegment(k !== null && this.answer && this.segments[k].words.length ? k : null);
  }

  selectSegment(k) {
    if (k === this.selected) return;
    this.selected = k;
    const index = k === null ? null : findLargest(this.segments[k].words, this.answer.words);
    const clusterId = index === null ? null : this.answer.words[index].cluster;
    this.highlight(clusterId, index);
    this.tooltip.hidden = index === null;
    if (index !== null) {
      this.tooltip.replaceChildren(createTooltip(this.answer, index));
      this.placeTooltip();
    }
    this.onSelect(clusterId, index);
  }

  /** Selects the first span of a word; null clears the selection. */
  selectWord(index) {
    if (!this.answer) return;
    const start = index === null ? null : this.answer.words[index].spans[0][0];
    this.selectSegment(start === null ? null : this.segments.findIndex((segment) => segment.start === start));
  }

  /** Highlights a cluster, or one word of it, with the words that it has read or attends to. Other words fade. */
  highlight(clusterId, index = null) {
    this.lines = this.answer ? buildLines(this.answer, clusterId, index) : [];
    const read = new Set(this.lines.filter(({ rank }) => rank !== null).map(({ to }) => to));
    this.overlay.classList.toggle("highlighting", clusterId !== null);
    this.nodes.forEach((node, k) => {
      const { words } = this.segments[k];
      const isMember = words.some((word) => this.answer?.words[word].cluster === clusterId);
      node.classList.toggle("highlighted", clusterId !== null && isMember);
      node.classList.toggle(
        "read",
        words.some((word) => read.has(word)),
      );
    });
    this.drawArcs();
  }

  /** Strikes through the words that are removed in the counterfactual. */
  markRemoved(indices) {
    this.nodes.forEach((node, k) =>
      node.classList.toggle(
        "removed",
        this.segments[k].words.some((index) => indices.has(index)),
      ),
    );
  }

  drawArcs() {
    const box = this.root.getBoundingClientRect();
    const paths = this.lines.slice(0, MAX_ARCS).map((line) => this.createArc(line, box));
    this.arcs.replaceChildren(...paths.filter(Boolean));
  }

  createArc({ from, to, rank }, box) {
    const [start, end] = [from, to].map((index) => this.locateWord(index, box));
    if (!start || !end) return null;
    const sign = this.answer.words[from].contribution >= 0 ? "pos" : "neg";
    const path = svg("path", {
      d: buildArcPath(start, end, box),
      class: rank === null ? sign : "attention",
      pathLength: 1,
    });
    setVariables(path, { "--rank": Math.min(rank ?? 0, 5) });
    return path;
  }

  /** Returns the middle of the upper edge of a word's first span, relative to the editor. */
  locateWord(index, box) {
    const [start, end] = this.answer.words[index].spans[0];
    const first = this.segments.findIndex((segment) => segment.start === start);
    if (first < 0) return null;
    const last = this.segments.findIndex((segment) => segment.end === end);
    const [a, b] = [first, last < 0 ? first : last].map((k) => this.nodes[k].getClientRects()[0]);
    if (!a) return null;
    const right = b && Math.abs(b.top - a.top) < 4 ? b.right : a.right;
    return { x: (a.left + right) / 2 - box.left, y: a.top + 1 - box.top };
  }

  placeTooltip() {
    const rect = this.nodes[this.selected].getClientRects()[0];
    const box = this.root.getBoundingClientRect();
    if (!rect) return;
    const left = Math.max(0, Math.min(rect.left - box.left - 12, box.width - this.tooltip.offsetWidth));
    this.tooltip.style.left = `${left}px`;
    this.tooltip.style.top = `${rect.bottom - box.top + 6}px`;
  }
}

function createSegmentNode({ text, words, leader }, strength) {
  if (!words.length) return el("span", {}, text);
  const tint = strength ? Math.round(5 + 63 * Math.abs(strength) ** 0.7) : 0;
  const name = `word ${strength >= 0 ? "pos" : "neg"}${leader ? " leader" : ""}`;
  const node = el("span", { class: name, vars: { "--tint": `${tint}%` } }, text);
  if (leader) node.prepend(star());
  return node;
}

const contains = (rect, x, y) =>
  x >= rect.left && x <= rect.right && y >= rect.top - 2 && y <= rect.bottom + 2;

/** Returns the index of the word with the largest contribution. */
function findLargest(indices, words) {
  const size = (index) => Math.abs(words[index].contribution);
  return indices.length ? indices.reduce((a, b) => (size(b) > size(a) ? b : a)) : null;
}

/** Returns the tooltip of a word, with its own contribution. */
function createTooltip({ words, clusters, shownLabel, oppositeLabel }, index) {
  const { text, leader, cluster: id, contribution, readAs } = words[index];
  const cluster = clusters.find((other) => other.id === id);
  const readAsText =
    readAs === "<unknown>" ? "the model does not know this word" : readAs && `read as ${readAs}`;
  const lines = [readAsText, ...(cluster ? describeWord(words, cluster, index) : [])].filter(Boolean);
  const details = lines.map((line) => el("span", {}, line));
  const side = contribution >= 0 ? shownLabel : oppositeLabel;
  return el("p", {}, el("strong", {}, text), " ", el("b", {}, `${signed(contribution)} for ${side}`), details);
}

/** Describes which leader a word follows, and what it has read or attends to. */
function describeWord(words, { kind, leaders, members, contribution }, index) {
  const describeSince = ({ leaderSince }) => (leaderSince ? `since layer ${leaderSince}` : "from the start");
  if (leaders.includes(index)) {
    const read = formatRead(index, words, MAX_READ_NAMES);
    const followers = plural(members.length - 1, "word");
    return [
      `a leader ${describeSince(words[index])}, followed by ${followers}: together ${signed(contribution)}`,
      read === null ? null : read ? `has read ${read}` : "has read no other word",
    ];
  }
  const names = [...new Set(leaders.map((leader) => words[leader].text))];
  const attention = formatAttention(index, words);
  const attentionText = attention === null ? null : `its heads attend to ${attention || "no word"}`;
  if (kind === "tie") return [`stays between ${formatList(names)}`, attentionText];
  return [`follows \u2605 ${names[0]}, a leader ${describeSince(words[leaders[0]])}`, attentionText];
}
