/* The words of a review as points that walk through the layers, and the line between the two sides.
   Knows one answer. */

import { linesOf } from "./answer.js";
import { colour, side } from "../shared/colour.js";
import { along, shadow } from "./shadow.js";
import { Viewport, drawGrid } from "../shared/viewport.js";

const POINTER_RADIUS = 18; // pixels
const NAMES = 40;
const MOST_LIFT = 5; // a plane in which words stand nearly in a line is drawn so many times higher than it is
const LINES_UP_TO = 80;
const CORNER = 96;
const TIERS = 5; // of words by what they add; within one, those that end with one leader differ by little
const TELLING = 0.02; // words that add less than this share of the heaviest have a dot and no name
const [SMALL, LARGE] = [2.2, 7]; // radii of what says nothing and of what says most

export class Words {
  constructor() {
    Object.assign(this, { view: new Viewport(), answer: null, t: 0 });
    this.lookAt(null, null);
  }

  /** Shows one cluster, or one word of it with lines to those it follows and has read; the rest fades. */
  lookAt(cluster, token) {
    const lines = this.answer ? linesOf(this.answer, cluster, token) : [];
    Object.assign(this, { cluster, token, lines, reached: new Set(lines.map(({ to }) => to)) });
  }

  /** Without a trajectory, which is not requested for a long text, words go straight from start to end. */
  show(answer) {
    const placed = answer?.words.length && answer.words[0].start && answer.abstainReason !== "no_known_words";
    this.answer = placed ? answer : null;
    if (!placed) return;
    const layers = answer.trajectory ?? [
      answer.words.map(({ start }) => start),
      answer.words.map(({ end }) => end),
    ];
    const { axes, flat } = shadow(layers, answer.vector);
    this.flat = flat;
    this.frames = layers.map((layer) => along(layer, axes));
    this.fit();
    const [across, upwards] = this.view.reach;
    this.lift = Math.max(1, Math.min(MOST_LIFT, Math.floor((0.7 * across) / upwards)));
    this.frames = this.frames.map((frame) => frame.map((x, k) => (k % 2 ? this.lift * x : x)));
    this.fit();
    this.most = Math.max(1e-9, ...answer.words.map(({ contribution }) => Math.abs(contribution)));
  }

  fit() {
    this.view.fit(
      this.frames.flatMap((frame) => [...frame]),
      { least: 1e-6 },
    );
  }

  get layers() {
    return this.answer ? this.frames.length - 1 : 0;
  }

  /** Where word i is at the moment t: it moves on a straight line from layer to layer. */
  at(i, t) {
    const k = Math.min(Math.floor(t), Math.max(0, this.layers - 1));
    const [a, b] = [this.frames[k], this.frames[Math.min(k + 1, this.layers)]];
    return [0, 1].map((c) => a[2 * i + c] + (t - k) * (b[2 * i + c] - a[2 * i + c]));
  }

  draw(painter) {
    this.view.resize(painter.width, painter.height);
    if (!this.answer) return drawGrid(painter, this.view);
    if (this.answer.vector) this.drawHalves(painter);
    drawGrid(painter, this.view);
    if (this.answer.vector) this.drawSides(painter);
    this.drawTrails(painter);
    this.drawPoints(painter);
    this.drawLines(painter);
    return this.drawNames(painter);
  }

  /** What lies right of the origin speaks for the label, what lies left of it against. */
  drawHalves(painter) {
    const [x, { width, height }] = [this.border, painter];
    painter.rect(x, 0, width - x, height, colour("pos"), 0.07);
    painter.rect(0, 0, x, height, colour("neg"), 0.07);
  }

  drawSides(painter) {
    const [x, { width, height }, { against, shown }] = [this.border, painter, this.answer];
    const border = [x, 0, x, height];
    painter.segments(border, { stroke: colour("ink"), width: 1.5, dash: [6, 5], alpha: 0.7 });
    const style = { size: 13, italic: true };
    painter.text(12, height - 14, `\u2190 ${against}`, { ...style, fill: colour("neg") });
    const right = { ...style, fill: colour("pos"), align: "right" };
    painter.text(width - 12, height - 14, `${shown} \u2192`, right);
  }

  /** The corners that name the sides. */
  sides({ width, height }) {
    return [0, width - CORNER].map((left) => [left, height - 24, left + CORNER, height]);
  }

  get border() {
    return Math.min(Math.max(this.view.x(0), 0), this.view.width);
  }

  drawTrails(painter) {
    const { view, answer } = this;
    for (const positive of [true, false]) {
      for (let k = 0; k < this.t; k += 1) {
        const lines = answer.words.flatMap((word, i) => {
          if (word.contribution >= 0 !== positive || !this.isShown(word, i)) return [];
          const [a, b] = [this.at(i, k), this.at(i, Math.min(k + 1, this.t))];
          return [view.x(a[0]), view.y(a[1]), view.x(b[0]), view.y(b[1])];
        });
        const age = 1 - (this.t - k) / (this.t + 1);
        painter.segments(lines, {
          stroke: colour(positive ? "pos" : "neg"),
          width: 1.25,
          alpha: 0.18 + 0.4 * age,
        });
      }
    }
  }

  /** From what is looked at: a line to the leader it follows, dashes to the words that its heads followed or that it has
      read, the first ones strongest. */
  drawLines(painter) {
    const { view, t } = this;
    const onPicture = (i) => [view.x(this.at(i, t)[0]), view.y(this.at(i, t)[1])];
    for (const { from, to, rank } of this.lines.slice(0, LINES_UP_TO)) {
      const reading = { stroke: colour("accent"), width: 1.5, dash: [4, 4], alpha: 0.9 - 0.1 * Math.min(rank, 6) };
      const style = rank === null ? { stroke: colour("ink"), width: 2 } : reading;
      painter.segments([from, to].flatMap(onPicture), style);
    }
  }

  /** Leaders last: the words that end with them lie on the same place. */
  drawPoints(painter) {
    const { view, answer, t } = this;
    const leads = ({ leader, since }) => leader && since <= t + 1e-9;
    const order = answer.words.map((word, i) => ({ word, i })).sort((a, b) => leads(a.word) - leads(b.word));
    for (const { word, i } of order) {
      const [x, y] = this.at(i, t);
      const alpha = this.isShown(word, i) ? 0.9 : 0.12;
      const style = { fill: side(word.contribution), stroke: colour("card"), width: 1, alpha };
      const r = SMALL + (LARGE - SMALL) * Math.sqrt(Math.abs(word.contribution) / this.most);
      if (leads(word)) painter.star(view.x(x), view.y(y), r + 4, style);
      else painter.dots([view.x(x), view.y(y)], r, style);
    }
  }

  /** Names of the words that weigh most, leaders first and of about equal ones the longest, where there is room. */
  drawNames(painter) {
    const { view, answer, t } = this;
    const share = (word) => Math.abs(word.contribution) / this.most;
    const rank = (word) => Math.round(TIERS * share(word)) + (word.leader ? TIERS : 0);
    const order = answer.words
      .map((word, i) => ({ word, i }))
      .sort((a, b) => rank(b.word) - rank(a.word) || b.word.text.length - a.word.text.length);
    const named = ({ word, i }) =>
      this.isShown(word, i) && (word.leader || this.reached.has(i) || share(word) >= TELLING);
    const shown = order.filter(named).slice(0, NAMES);
    const positions = shown.map(({ i }) => this.at(i, t));
    const stars = positions.filter((_, k) => shown[k].word.leader);
    const taken = stars.map(([x, y]) => [view.x(x) - 7, view.y(y) - 7, view.x(x) + 7, view.y(y) + 7]);
    if (answer.vector) taken.push(...this.sides(painter));
    shown.forEach(({ word }, k) => {
      const [x, y] = [view.x(positions[k][0]), view.y(positions[k][1])];
      const font = { size: 12, weight: word.leader ? 600 : 400 };
      const box = roomFor(x, y, painter.measure(word.text, font), painter, taken);
      if (!box) return;
      taken.push(box);
      const style = { ...font, fill: colour(word.leader ? "ink" : "soft"), halo: colour("card") };
      painter.text(box[0], (box[1] + box[3]) / 2, word.text, style);
    });
  }

  /** The word nearest to a point of the picture, or null. */
  wordAt(px, py) {
    let [best, found] = [POINTER_RADIUS ** 2, null];
    this.answer?.words.forEach((_, i) => {
      const [x, y] = this.at(i, this.t);
      const away = (this.view.x(x) - px) ** 2 + (this.view.y(y) - py) ** 2;
      if (away < best) [best, found] = [away, i];
    });
    return found;
  }

  isShown(word, i) {
    return this.cluster === null || word.cluster === this.cluster || this.reached.has(i);
  }
}

/** Room for a name beside a point: right of it or left, a little higher or lower, within the picture, over nothing else. */
function roomFor(x, y, width, painter, taken) {
  for (const lift of [0, -17, 17]) {
    for (const left of [x + 10, x - 10 - width]) {
      const box = [left, y + lift - 8, left + width, y + lift + 8];
      const inside = box[0] >= 2 && box[2] <= painter.width - 2 && box[1] >= 0 && box[3] <= painter.height;
      const apart = (other) =>
        box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3];
      if (inside && taken.every(apart)) return box;
    }
  }
  return null;
}
