/* A plot of the words as points that move through the layers, with the decision boundary of the readout. */

import { buildLines } from "./answer.js";
import { colour, signColour } from "../shared/colour.js";
import { findAxes, projectPoints } from "./projection.js";
import { Viewport, drawGrid } from "../shared/viewport.js";

const POINTER_RADIUS_PX = 18;
const MAX_NAMES = 40;
const MAX_Y_SCALE = 5; // points that are nearly on a horizontal line are stretched vertically by up to this factor
const MAX_LINES = 80;
const SIDE_LABEL_WIDTH_PX = 96;
const SIZE_TIERS = 5; // names are sorted by the contribution, rounded to so many steps
const MIN_NAMED_SHARE = 0.02; // words below this share of the largest contribution have no name
const [MIN_RADIUS_PX, MAX_RADIUS_PX] = [2.2, 7]; // of the dots without, and with the largest, contribution

export class WordPlot {
  constructor() {
    Object.assign(this, { view: new Viewport(), answer: null, t: 0 });
    this.highlight(null, null);
  }

  /** Highlights a cluster, or one word of it, with lines to its leader and to the words it has read or attends to. */
  highlight(clusterId, index) {
    const lines = this.answer ? buildLines(this.answer, clusterId, index) : [];
    Object.assign(this, { clusterId, index, lines, lineTargets: new Set(lines.map(({ to }) => to)) });
  }

  /** Shows an answer. Without a trajectory, which is not requested for long texts, words move in a straight line. */
  show(answer) {
    const hasPositions =
      answer?.words.length && answer.words[0].position && answer.abstainReason !== "no_known_words";
    this.answer = hasPositions ? answer : null;
    if (!hasPositions) return;
    const layers = answer.trajectory ?? [
      answer.words.map(({ position }) => position),
      answer.words.map(({ finalPosition }) => finalPosition),
    ];
    const { axes, exact } = findAxes(layers, answer.readoutVector);
    this.exact = exact;
    this.frames = layers.map((layer) => projectPoints(layer, axes));
    this.fit();
    const [reachX, reachY] = this.view.reach;
    this.yScale = Math.max(1, Math.min(MAX_Y_SCALE, Math.floor((0.7 * reachX) / reachY)));
    this.frames = this.frames.map((frame) => frame.map((x, k) => (k % 2 ? this.yScale * x : x)));
    this.fit();
    this.maxContribution = Math.max(1e-9, ...answer.words.map(({ contribution }) => Math.abs(contribution)));
  }

  fit() {
    this.view.fit(
      this.frames.flatMap((frame) => [...frame]),
      { minReach: 1e-6 },
    );
  }

  get layers() {
    return this.answer ? this.frames.length - 1 : 0;
  }

  /** Returns the position of word i at time t, interpolated linearly between layers. */
  positionAt(i, t) {
    const k = Math.min(Math.floor(t), Math.max(0, this.layers - 1));
    const [a, b] = [this.frames[k], this.frames[Math.min(k + 1, this.layers)]];
    return [0, 1].map((c) => a[2 * i + c] + (t - k) * (b[2 * i + c] - a[2 * i + c]));
  }

  toPixel([x, y]) {
    return [this.view.x(x), this.view.y(y)];
  }

  draw(painter) {
    this.view.resize(painter.width, painter.height);
    if (!this.answer) return drawGrid(painter, this.view);
    drawGrid(painter, this.view);
    if (this.answer.readoutVector) this.drawBoundary(painter);
    this.drawTrails(painter);
    this.drawPoints(painter);
    this.drawLines(painter);
    return this.drawNames(painter);
  }

  /** Words right of the boundary contribute to the shown label, words left of it to the opposite. */
  drawBoundary(painter) {
    const [x, { width, height }, { oppositeLabel, shownLabel }] = [this.boundaryX, painter, this.answer];
    const boundary = [x, 0, x, height];
    painter.segments(boundary, { stroke: colour("ink"), width: 1.5, dash: [6, 5], alpha: 0.7 });
    const style = { size: 13, italic: true };
    painter.text(12, height - 14, `\u2190 ${oppositeLabel}`, { ...style, fill: colour("neg") });
    const right = { ...style, fill: colour("pos"), align: "right" };
    painter.text(width - 12, height - 14, `${shownLabel} \u2192`, right);
  }

  /** Returns the boxes of the side labels, which names of words must not cover. */
  sideLabelBoxes({ width, height }) {
    return [0, width - SIDE_LABEL_WIDTH_PX].map((left) => [
      left,
      height - 24,
      left + SIDE_LABEL_WIDTH_PX,
      height,
    ]);
  }

  get boundaryX() {
    return Math.min(Math.max(this.view.x(0), 0), this.view.width);
  }

  /** Draws the path of each word up to the current time; older parts are paler. */
  drawTrails(painter) {
    for (const positive of [true, false]) {
      for (let k = 0; k < this.t; k += 1) {
        const segments = this.answer.words.flatMap((word, i) => {
          if (word.contribution >= 0 !== positive || !this.isVisible(word, i)) return [];
          return [k, Math.min(k + 1, this.t)].flatMap((t) => this.toPixel(this.positionAt(i, t)));
        });
        const age = 1 - (this.t - k) / (this.t + 1);
        painter.segments(segments, {
          stroke: colour(positive ? "pos" : "neg"),
          width: 1.25,
          alpha: 0.18 + 0.4 * age,
        });
      }
    }
  }

  /** Draws a solid line to the leader, and dashed lines to the words that are read or attended to, paler by rank. */
  drawLines(painter) {
    for (const { from, to, rank } of this.lines.slice(0, MAX_LINES)) {
      const alpha = 0.9 - 0.1 * Math.min(rank, 6);
      const dashed = { stroke: colour("accent"), width: 1.5, dash: [4, 4], alpha };
      const style = rank === null ? { stroke: colour("ink"), width: 2 } : dashed;
      painter.segments(
        [from, to].flatMap((i) => this.toPixel(this.positionAt(i, this.t))),
        style,
      );
    }
  }

  /** Draws leaders last, because their followers end at the same position. */
  drawPoints(painter) {
    const { answer, t } = this;
    const isLeader = ({ leader, leaderSince }) => leader && leaderSince <= t + 1e-9;
    const sorted = answer.words
      .map((word, i) => ({ word, i }))
      .sort((a, b) => isLeader(a.word) - isLeader(b.word));
    for (const { word, i } of sorted) {
      const [x, y] = this.toPixel(this.positionAt(i, t));
      const alpha = this.isVisible(word, i) ? 0.9 : 0.12;
      const style = { fill: signColour(word.contribution), stroke: colour("card"), width: 1, alpha };
      const r = MIN_RADIUS_PX + (MAX_RADIUS_PX - MIN_RADIUS_PX) * Math.sqrt(this.contributionShare(word));
      if (isLeader(word)) painter.star(x, y, r + 4, style);
      else painter.dots([x, y], r, style);
    }
  }

  /** Draws names where there is room, in the order of contribution: leaders first, then longer names. */
  drawNames(painter) {
    const { answer, t } = this;
    const rank = (word) =>
      Math.round(SIZE_TIERS * this.contributionShare(word)) + (word.leader ? SIZE_TIERS : 0);
    const isNamed = ({ word, i }) =>
      this.isVisible(word, i) &&
      (word.leader || this.lineTargets.has(i) || this.contributionShare(word) >= MIN_NAMED_SHARE);
    const named = answer.words
      .map((word, i) => ({ word, i }))
      .sort((a, b) => rank(b.word) - rank(a.word) || b.word.text.length - a.word.text.length)
      .filter(isNamed)
      .slice(0, MAX_NAMES)
      .map(({ word, i }) => ({ word, pixel: this.toPixel(this.positionAt(i, t)) }));
    const occupied = named
      .filter(({ word }) => word.leader)
      .map(({ pixel: [x, y] }) => [x - 7, y - 7, x + 7, y + 7]);
    if (answer.readoutVector) occupied.push(...this.sideLabelBoxes(painter));
    for (const { word, pixel } of named) {
      const font = { size: 12, weight: word.leader ? 600 : 400 };
      const box = findLabelBox(...pixel, painter.measure(word.text, font), painter, occupied);
      if (!box) continue;
      occupied.push(box);
      const style = { ...font, fill: colour(word.leader ? "ink" : "soft"), halo: colour("card") };
      painter.text(box[0], (box[1] + box[3]) / 2, word.text, style);
    }
  }

  /** Returns the index of the word nearest to a pixel, or null if none is near. */
  findWordAt(px, py) {
    let [minDistance, nearest] = [POINTER_RADIUS_PX ** 2, null];
    this.answer?.words.forEach((_, i) => {
      const [x, y] = this.toPixel(this.positionAt(i, this.t));
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < minDistance) [minDistance, nearest] = [distance, i];
    });
    return nearest;
  }

  contributionShare({ contribution }) {
    return Math.abs(contribution) / this.maxContribution;
  }

  isVisible(word, i) {
    return this.clusterId === null || word.cluster === this.clusterId || this.lineTargets.has(i);
  }
}

/** Returns a free box for a name right or left of a point, or slightly above or below, or null if there is none. */
function findLabelBox(x, y, width, painter, occupied) {
  for (const dy of [0, -17, 17]) {
    for (const left of [x + 10, x - 10 - width]) {
      const box = [left, y + dy - 8, left + width, y + dy + 8];
      const isInside = box[0] >= 2 && box[2] <= painter.width - 2 && box[1] >= 0 && box[3] <= painter.height;
      const isApart = (other) =>
        box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3];
      if (isInside && occupied.every(isApart)) return box;
    }
  }
  return null;
}
