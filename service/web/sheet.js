/* The sheet one writes on, with the reason shown in place: words tinted by what they add, leaders starred,
   a line from each word to the one it follows. The tint lies under an ordinary textarea, whose text stays as it is.
   Knows one explained text; nothing of where it came from. */

import { el, signed, star, svg } from "./element.js";

/** Of the words and phrases that cover a place, as many are told. */
const TOLD = 3;

/** The pieces of a text between the ends of its tokens' spans, each with the tokens that cover it. */
export function pieces(text, words) {
  const cuts = new Set([0, text.length]);
  words.forEach(({ spans }) => spans.flat().forEach((at) => cuts.add(Math.min(at, text.length))));
  const ends = [...cuts].sort((a, b) => a - b);
  const index = new Map(ends.map((at, k) => [at, k]));
  const found = ends
    .slice(1)
    .map((end, k) => ({ start: ends[k], end, text: text.slice(ends[k], end), tokens: [] }));
  words.forEach(({ spans }, token) =>
    spans.forEach(([start, end]) => {
      for (let k = index.get(start) ?? 0; k < found.length && found[k].end <= end; k += 1)
        found[k].tokens.push(token);
    }),
  );
  return found;
}

/** What a piece adds: a token's contribution is shared evenly by its occurrences, and in each by its words.
    Summed over a text this is again the logit less the bias. */
export function shareOf(piece, words, found) {
  if (!/\p{L}|\p{N}/u.test(piece.text)) return 0;
  return piece.tokens.reduce((sum, token) => {
    const { contribution, spans } = words[token];
    const [start, end] = spans.find(([s, e]) => s <= piece.start && piece.end <= e);
    const parts = found.filter((p) => p.start >= start && p.end <= end && /\p{L}|\p{N}/u.test(p.text)).length;
    return sum + contribution / spans.length / parts;
  }, 0);
}

export class Sheet {
  /** `onPoint(cluster or null)` hears which cluster is being looked at. */
  constructor({ sheet, ink, arcs, area, tip }, onPoint) {
    Object.assign(this, { sheet, ink, arcs, area, tip, onPoint, found: [], item: null, pointed: null });
    area.addEventListener("pointermove", (event) => this.pointAt(event.clientX, event.clientY));
    area.addEventListener("pointerdown", (event) => this.pointAt(event.clientX, event.clientY));
    sheet.addEventListener("pointerleave", () => this.point(null));
    area.addEventListener("scroll", () => (ink.scrollTop = area.scrollTop));
    new ResizeObserver(() => this.drawArcs()).observe(sheet);
  }

  /** The reason of `text`; null while there is none, which leaves plain text. */
  show(text, item) {
    this.point(null);
    this.item = item;
    this.found = item ? pieces(text, item.words) : [{ text, tokens: [] }];
    const shares = this.found.map((piece) => (item ? shareOf(piece, item.words, this.found) : 0));
    const most = Math.max(0.05, ...shares.map(Math.abs));
    const starred = new Set(item ? item.leaders.flatMap(({ spans }) => spans.map(([start]) => start)) : []);
    this.nodes = this.found.map((piece, k) => pieceNode(piece, shares[k] / most, starred.has(piece.start)));
    // The last line of a textarea may be empty; an element's is not drawn unless something stands in it.
    this.ink.replaceChildren(...this.nodes, "\u200b");
  }

  /** Keeps the sheet as high as its text. */
  grow() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight}px`;
  }

  pointAt(x, y) {
    const k = this.nodes?.findIndex((node) => [...node.getClientRects()].some((r) => within(r, x, y))) ?? -1;
    this.point(k >= 0 && this.found[k].tokens.length ? k : null);
  }

  /** Looks at piece k of the text. */
  point(k) {
    if (k === this.pointed) return;
    this.pointed = k;
    const piece = k === null ? null : this.found[k];
    const token = piece && strongest(piece.tokens, this.item.words);
    this.lookAt(token === null ? null : this.item.words[token].cluster, token);
    this.showTip(piece, k);
    this.onPoint(token === null ? null : this.item.words[token].cluster);
  }

  /** Shows a cluster in the text: its words stay, the rest fades; lines go to the leader. */
  lookAt(cluster, token = null) {
    this.shown = cluster === null ? null : { cluster, token };
    this.ink.classList.toggle("choosing", cluster !== null);
    this.nodes?.forEach((node, k) => {
      const member = this.found[k].tokens.some((t) => this.item?.words[t].cluster === cluster);
      node.classList.toggle("chosen", cluster !== null && member);
    });
    this.drawArcs();
  }

  drawArcs() {
    this.arcs.replaceChildren();
    if (!this.shown || !this.item) return;
    const { words, clusters } = this.item;
    const group = clusters.find(({ id }) => id === this.shown.cluster);
    if (!group) return;
    const leaders = words.map((_, t) => t).filter((t) => group.leaders.includes(words[t].text));
    const only = this.shown.token;
    const alone = only !== null && !leaders.includes(only);
    const followers = alone ? [only] : words.map((_, t) => t).filter((t) => words[t].cluster === group.id);
    const box = this.sheet.getBoundingClientRect();
    for (const follower of followers.slice(0, 60)) {
      for (const leader of leaders)
        if (leader !== follower) this.drawArc(follower, leader, box, words[follower].contribution);
    }
  }

  drawArc(follower, leader, box, contribution) {
    const [from, to] = [this.placeOf(follower), this.placeOf(leader)];
    if (!from || !to) return;
    const [x1, y1, x2, y2] = [from.x - box.left, from.y - box.top, to.x - box.left, to.y - box.top];
    const lift = Math.min(46, 10 + Math.hypot(x2 - x1, y2 - y1) * 0.18);
    const d = `M${x1} ${y1}C${x1} ${y1 - lift} ${x2} ${y2 - lift} ${x2} ${y2}`;
    this.arcs.append(svg("path", { d, class: contribution >= 0 ? "pos" : "neg", pathLength: 1 }));
  }

  /** Where a token's first occurrence stands on the screen: the middle of its upper edge. */
  placeOf(token) {
    const [start, end] = this.item.words[token].spans[0];
    const k = this.found.findIndex((piece) => piece.start === start);
    if (k < 0) return null;
    const last = this.found.findIndex((piece) => piece.end === end);
    const [a, b] = [this.nodes[k].getClientRects()[0], this.nodes[last < 0 ? k : last].getClientRects()[0]];
    if (!a) return null;
    const right = b && Math.abs(b.top - a.top) < 4 ? b.right : a.right;
    return { x: (a.left + right) / 2, y: a.top + 3 };
  }

  showTip(piece, k) {
    this.tip.hidden = !piece;
    if (!piece) return;
    const size = (token) => Math.abs(this.item.words[token].contribution);
    const heaviest = [...piece.tokens].sort((a, b) => size(b) - size(a)).slice(0, TOLD);
    this.tip.replaceChildren(...heaviest.map((token) => tipLine(this.item, token)));
    const [rect, box] = [this.nodes[k].getClientRects()[0], this.sheet.getBoundingClientRect()];
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

function pieceNode(piece, strength, starred) {
  if (!piece.tokens.length) return el("span", {}, piece.text);
  const tint = Math.round(5 + 63 * Math.abs(strength) ** 0.7);
  const name = `word ${strength >= 0 ? "pos" : "neg"}${starred ? " leader" : ""}`;
  const node = el("span", { class: name, vars: { "--tint": `${strength ? tint : 0}%` } }, piece.text);
  if (starred) node.prepend(star());
  return node;
}

/** Whom a token follows, since when, and what it adds: one sentence. */
export function sentenceOf(item, token) {
  const word = item.words[token];
  const group = item.clusters.find(({ id }) => id === word.cluster);
  const since = (name) => item.leaders.find((leader) => leader.word === name)?.since_layer ?? 0;
  if (group.kind === "tie") return `stays between ${list(group.leaders)}`;
  const [leader] = group.leaders;
  if (leader === word.text)
    return `a leader since layer ${since(leader)}, with ${group.words.length - 1} following`;
  return `follows \u2605 ${leader}, a leader since layer ${since(leader)}`;
}

const list = (names) => `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

function tipLine(item, token) {
  const word = item.words[token];
  const sign = el("b", { class: word.contribution >= 0 ? "pos" : "neg" }, signed(word.contribution, 3));
  return el("p", {}, el("strong", {}, word.text), " ", sign, el("span", {}, sentenceOf(item, token)));
}
