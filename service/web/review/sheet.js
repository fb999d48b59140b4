/* The sheet one writes on, with the reason shown in place: words tinted by what they add, leaders starred, lines from
   a word to those it follows, and from a leader to the words it has read. The tint lies under an ordinary textarea,
   whose text stays as it is. Knows one answer; nothing of where it came from. */

import { followedBy, linesOf, readBy } from "./answer.js";
import { wayOf } from "./arcs.js";
import { el, plural, setVariables, signed, star, svg } from "../shared/element.js";

const LINES_UP_TO = 80; // lines to or from one leader
const SIGNS = /\p{L}|\p{N}|\p{Extended_Pictographic}/u;

/** The segments of a text between the ends of its words' spans: {start, end, text, tokens, share, leads}, with the words that
    cover a segment, what it adds, and whether a leader begins there. A word's contribution is divided evenly among its
    spans, and in each among the segments that are no blanks: summed over a text, shares are the logit less the bias. */
export function segmentsOf({ text, words, abstainReason }) {
  const cuts = new Set([0, text.length, ...words.flatMap(({ spans }) => spans.flat())]);
  const ends = [...cuts].filter((at) => at <= text.length).sort((a, b) => a - b);
  const index = new Map(ends.map((at, k) => [at, k]));
  const found = ends.slice(1).map((end, k) => {
    return { start: ends[k], end, text: text.slice(ends[k], end), tokens: [], share: 0, leads: false };
  });
  words.forEach(({ spans, contribution, leader }, token) => {
    for (const [start, end] of spans) {
      const covered = found.slice(index.get(start), index.get(end));
      const said = covered.filter((segment) => SIGNS.test(segment.text));
      const heard = said.length ? said : covered;
      for (const segment of covered) segment.tokens.push(token);
      for (const segment of heard) segment.share += contribution / spans.length / heard.length;
      if (leader && covered.length) covered[0].leads = abstainReason !== "no_known_words"; // else there is nothing to follow
    }
  });
  return found;
}

/** The segments before and after an edit, unchanged, with plain text between. */
function segmentsAfterEdit(found, old, text) {
  const most = Math.min(old.length, text.length);
  let head = 0;
  while (head < most && old[head] === text[head]) head += 1;
  let tail = 0;
  while (tail < most - head && old.at(-1 - tail) === text.at(-1 - tail)) tail += 1;
  const shift = text.length - old.length;
  const before = found.filter(({ end }) => end <= head);
  const behind = found
    .filter(({ start }) => start >= Math.max(head, old.length - tail))
    .map((segment) => ({ ...segment, start: segment.start + shift, end: segment.end + shift }));
  const [start, end] = [before.at(-1)?.end ?? 0, behind[0]?.start ?? text.length];
  return [
    ...before,
    { start, end, text: text.slice(start, end), tokens: [], share: 0, leads: false },
    ...behind,
  ];
}

export class Sheet {
  /** `onPoint(cluster, token)` hears which word of which cluster is being looked at; both may be null. */
  constructor({ sheet, ink, arcs, area, tip }, onPoint) {
    Object.assign(this, {
      sheet,
      ink,
      arcs,
      area,
      tip,
      onPoint,
      found: [],
      nodes: [],
      answer: null,
      pointed: null,
      lines: [],
    });
    area.addEventListener(
      "pointermove",
      (event) => event.pointerType !== "touch" && this.pointAt(event.clientX, event.clientY),
    );
    area.addEventListener("pointerdown", (event) => this.press(event));
    // A tap on a word explains it; only a tap elsewhere, or a second one on the same word, begins to write.
    area.addEventListener("mousedown", (event) => this.tapped && event.preventDefault());
    area.addEventListener("keyup", () => this.pointAtCaret());
    area.addEventListener("blur", () => this.point(null));
    sheet.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.point(null));
    area.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.drawArcs()).observe(sheet);
  }

  /** The reason of `text`; with null what is known of its beginning and end stays until the new reason is there. */
  show(text, answer) {
    this.point(null);
    const found = answer ? segmentsOf(answer) : segmentsAfterEdit(this.found, this.text ?? "", text);
    Object.assign(this, { text, answer, found, lines: [] });
    const most = Math.max(0.05, ...found.map(({ share }) => Math.abs(share)));
    this.nodes = found.map((segment) => this.segmentNode(segment, segment.share / most));
    // The last line of a textarea may be empty; an element's is not drawn unless something stands in it.
    this.ink.replaceChildren(...this.nodes, "\u200b");
    this.ink.scrollTop = this.area.scrollTop;
  }

  segmentNode(segment, strength) {
    if (!segment.tokens.length) return el("span", {}, segment.text);
    const tint = strength ? Math.round(5 + 63 * Math.abs(strength) ** 0.7) : 0;
    const name = `word ${strength >= 0 ? "pos" : "neg"}${segment.leads ? " leader" : ""}`;
    const node = el("span", { class: name, vars: { "--tint": `${tint}%` } }, segment.text);
    if (segment.leads) node.prepend(star());
    return node;
  }

  /** Keeps the sheet as high as its text, up to the height at which it scrolls. */
  grow() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
  }

  scrolled() {
    this.ink.scrollTop = this.area.scrollTop;
    this.drawArcs();
    if (this.pointed !== null) this.placeTip();
  }

  press(event) {
    const before = this.pointed;
    this.pointAt(event.clientX, event.clientY);
    const onWord = this.pointed !== null && this.pointed !== before;
    this.tapped = event.pointerType === "touch" && onWord && document.activeElement !== this.area;
  }

  /** The segment at a point of the screen. Segments are in the order of lines, so the line is found by bisection. */
  pieceAt(x, y) {
    let [low, high] = [0, this.nodes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.nodes[middle].getBoundingClientRect().bottom < y - 2) low = middle + 1;
      else high = middle;
    }
    for (let k = low; k < this.nodes.length && this.nodes[k].getBoundingClientRect().top <= y + 2; k += 1)
      if ([...this.nodes[k].getClientRects()].some((r) => within(r, x, y))) return k;
    return null;
  }

  pointAt(x, y) {
    const k = this.pieceAt(x, y);
    this.point(k !== null && this.answer && this.found[k].tokens.length ? k : null);
  }

  /** Whoever moves by keyboard sees the word at the caret explained. */
  pointAtCaret() {
    const at = this.area.selectionStart;
    const k = this.found.findIndex((segment) => segment.start <= at && at < segment.end);
    this.point(k >= 0 && this.answer && this.found[k].tokens.length ? k : null);
  }

  /** Points at segment k of the text. */
  point(k) {
    if (k === this.pointed) return;
    this.pointed = k;
    const token = k === null ? null : strongest(this.found[k].tokens, this.answer.words);
    const cluster = token === null ? null : this.answer.words[token].cluster;
    this.lookAt(cluster, token);
    this.tip.hidden = token === null;
    if (token !== null) {
      this.tip.replaceChildren(tipLine(this.answer, token));
      this.placeTip();
    }
    this.onPoint(cluster, token);
  }

  /** Looks at one word, named by the ledger. */
  pointToken(token) {
    if (!this.answer) return;
    const start = token === null ? null : this.answer.words[token].spans[0][0];
    this.point(start === null ? null : this.found.findIndex((segment) => segment.start === start));
  }

  /** Shows a cluster in the text, or with `token` one word of it: its words and those that they have read or followed
      stay, the rest fades. */
  lookAt(cluster, token = null) {
    this.lines = this.answer ? linesOf(this.answer, cluster, token) : [];
    const read = new Set(this.lines.filter(({ rank }) => rank !== null).map(({ to }) => to));
    this.ink.classList.toggle("choosing", cluster !== null);
    this.nodes.forEach((node, k) => {
      const { tokens } = this.found[k];
      const member = tokens.some((t) => this.answer?.words[t].cluster === cluster);
      node.classList.toggle("chosen", cluster !== null && member);
      node.classList.toggle(
        "read",
        tokens.some((t) => read.has(t)),
      );
    });
    this.drawArcs();
  }

  /** Strikes words out that are left out elsewhere; they stay in the text. */
  strike(tokens) {
    this.nodes.forEach((node, k) =>
      node.classList.toggle(
        "struck",
        this.found[k].tokens.some((token) => tokens.has(token)),
      ),
    );
  }

  drawArcs() {
    const box = this.sheet.getBoundingClientRect();
    const paths = this.lines.slice(0, LINES_UP_TO).map((line) => this.arcNode(line, box));
    this.arcs.replaceChildren(...paths.filter(Boolean));
  }

  arcNode({ from, to, rank }, box) {
    const [start, end] = [from, to].map((token) => this.placeOf(token, box));
    if (!start || !end) return null;
    const side = this.answer.words[from].contribution >= 0 ? "pos" : "neg";
    const path = svg("path", {
      d: wayOf(start, end, box),
      class: rank === null ? side : "reading",
      pathLength: 1,
    });
    setVariables(path, { "--rank": Math.min(rank ?? 0, 5) });
    return path;
  }

  /** Where a word's first span is on the sheet: the middle of its upper edge. */
  placeOf(token, box) {
    const [start, end] = this.answer.words[token].spans[0];
    const k = this.found.findIndex((segment) => segment.start === start);
    if (k < 0) return null;
    const last = this.found.findIndex((segment) => segment.end === end);
    const [a, b] = [this.nodes[k].getClientRects()[0], this.nodes[last < 0 ? k : last].getClientRects()[0]];
    if (!a) return null;
    const right = b && Math.abs(b.top - a.top) < 4 ? b.right : a.right;
    return { x: (a.left + right) / 2 - box.left, y: a.top + 1 - box.top };
  }

  placeTip() {
    const rect = this.nodes[this.pointed].getClientRects()[0];
    const box = this.sheet.getBoundingClientRect();
    if (!rect) return;
    const left = Math.max(0, Math.min(rect.left - box.left - 12, box.width - this.tip.offsetWidth));
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${rect.bottom - box.top + 6}px`;
  }
}

const within = (r, x, y) => x >= r.left && x <= r.right && y >= r.top - 2 && y <= r.bottom + 2;

function strongest(tokens, words) {
  const size = (t) => Math.abs(words[t].contribution);
  return tokens.length ? tokens.reduce((a, b) => (size(b) > size(a) ? b : a)) : null;
}

/** What a word was read as, whom it follows, and what a leader has read: short sentences. */
function sentencesOf({ words, clusters }, token) {
  const { readAs } = words[token];
  const unknownWord =
    readAs === "<unknown>" ? "the model does not know this word" : readAs && `read as ${readAs}`;
  return [unknownWord, ...followingOf({ words, clusters }, token)].filter(Boolean);
}

function followingOf({ words, clusters }, token) {
  const group = clusters.find(({ id }) => id === words[token].cluster);
  if (!group) return [];
  const names = [...new Set(group.leaders.map((leader) => words[leader].text))];
  const since = (leader) => (words[leader].since ? `from layer ${words[leader].since} on` : "from the start");
  if (!group.leaders.includes(token)) {
    const heads = followedBy(token, words);
    const reading = heads === null ? null : `its heads followed ${heads || "no word"}`;
    if (group.kind === "tie") return [`stays between ${list(names)}`, reading];
    return [`follows \u2605 ${names[0]}, a leader ${since(group.leaders[0])}`, reading];
  }
  const read = readBy(token, words, 8);
  const made = read === null ? null : read ? `made of itself and of ${read}` : "has read no other word";
  return [`a leader ${since(token)}, followed by ${plural(group.members.length - 1, "word")}`, made];
}

const list = (names) =>
  names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join();

/** A leader is shown with what its whole cluster adds: the label is read at its position. */
function tipLine(answer, token) {
  const word = answer.words[token];
  const group = answer.clusters.find(({ id }) => id === word.cluster);
  const adds = word.leader && group?.kind === "leader" ? group.contribution : word.contribution;
  const said = sentencesOf(answer, token).map((text) => el("span", {}, text));
  return el("p", {}, el("strong", {}, word.text), " ", el("b", {}, signed(adds)), said);
}
