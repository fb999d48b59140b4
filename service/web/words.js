/* The words of a review as points that walk through the layers, and the decoder's line that decides.
   Knows one explained text. */

import { colour, side } from "./colour.js";
import { clip, crossing } from "./halfplane.js";
import { along, shadow } from "./shadow.js";
import { Viewport, drawGrid } from "./viewport.js";

const NEAR = 16; // pixels

export class Words {
  constructor() {
    this.view = new Viewport();
    this.item = null;
    this.t = 0;
    this.cluster = null;
  }

  show(item, readout) {
    this.item = item?.trajectory?.length && item.words.length ? item : null;
    if (!this.item) return;
    const { axes, line, flat } = shadow(item.trajectory, readout);
    Object.assign(this, { line, flat });
    this.frames = item.trajectory.map((layer) => along(layer, axes));
    const all = this.frames.flatMap((frame) => [...frame]);
    this.view.fit(all, { least: 1e-6 });
  }

  get layers() {
    return this.item ? this.frames.length - 1 : 0;
  }

  /** Where word i is at the moment t: it moves on a straight line from layer to layer. */
  at(i, t) {
    const k = Math.min(Math.floor(t), Math.max(0, this.layers - 1));
    const [a, b] = [this.frames[k], this.frames[Math.min(k + 1, this.layers)]];
    return [0, 1].map((c) => a[2 * i + c] + (t - k) * (b[2 * i + c] - a[2 * i + c]));
  }

  draw(painter) {
    this.view.resize(painter.width, painter.height);
    drawGrid(painter, this.view, { grid: colour("grid"), axis: colour("line") });
    if (!this.item) return;
    this.drawDecoder(painter);
    this.drawTrails(painter);
    this.drawPoints(painter);
    this.drawNames(painter);
  }

  /** The half-planes of the two verdicts, and the line between them. */
  drawDecoder(painter) {
    if (!this.line) return;
    const { view } = this;
    const [left, top] = view.world(0, 0);
    const [right, bottom] = view.world(view.width, view.height);
    const corners = [
      [left, top],
      [right, top],
      [right, bottom],
      [left, bottom],
    ];
    const toScreen = ([x, y]) => [view.x(x), view.y(y)];
    for (const [sign, name] of [
      [1, "pos"],
      [-1, "neg"],
    ]) {
      const half = clip(
        corners,
        this.line.map((x) => sign * x),
      ).map(toScreen);
      if (half.length) painter.polygon(half, { fill: colour(name), alpha: 0.07 });
    }
    const border = crossing(corners, this.line).map(toScreen);
    if (border.length === 2)
      painter.polyline(border, { stroke: colour("ink"), width: 1.5, dash: [6, 5], alpha: 0.7 });
    this.drawSides(painter);
  }

  drawSides(painter) {
    const [a, b] = this.line;
    const sideways = Math.abs(a) >= Math.abs(b);
    const rightIsFor = a >= 0;
    const upIsFor = b >= 0;
    const style = { size: 12, italic: true };
    if (sideways) {
      const y = painter.height - 14;
      painter.text(12, y, rightIsFor ? "negative" : "positive", {
        ...style,
        fill: colour(rightIsFor ? "neg" : "pos"),
      });
      const right = { ...style, fill: colour(rightIsFor ? "pos" : "neg"), align: "right" };
      painter.text(painter.width - 12, y, rightIsFor ? "positive" : "negative", right);
    } else {
      painter.text(12, 16, upIsFor ? "positive" : "negative", {
        ...style,
        fill: colour(upIsFor ? "pos" : "neg"),
      });
      const low = { ...style, fill: colour(upIsFor ? "neg" : "pos") };
      painter.text(12, painter.height - 14, upIsFor ? "negative" : "positive", low);
    }
  }

  drawTrails(painter) {
    const { view, item } = this;
    for (const positive of [true, false]) {
      for (let k = 0; k < this.t; k += 1) {
        const lines = [];
        item.words.forEach((word, i) => {
          if (word.contribution >= 0 !== positive || !this.isShown(word)) return;
          const [a, b] = [this.at(i, k), this.at(i, Math.min(k + 1, this.t))];
          lines.push(view.x(a[0]), view.y(a[1]), view.x(b[0]), view.y(b[1]));
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

  drawPoints(painter) {
    const { view, item, t } = this;
    item.words.forEach((word, i) => {
      const [x, y] = this.at(i, t);
      const alpha = this.isShown(word) ? 1 : 0.15;
      const style = { fill: side(word.contribution), stroke: colour("card"), width: 1, alpha };
      if (this.leadsBy(word, t)) painter.star(view.x(x), view.y(y), 8, style);
      else painter.dots([view.x(x), view.y(y)], 3.6, style);
    });
  }

  /** Names of the words that weigh most, leaders first, where there is room. */
  drawNames(painter) {
    const { view, item, t } = this;
    const weight = (word) => Math.abs(word.contribution) + (word.leader ? 1e3 : 0);
    const order = item.words.map((word, i) => ({ word, i })).sort((a, b) => weight(b.word) - weight(a.word));
    const shown = order.filter(({ word }) => this.isShown(word));
    const stars = shown.filter(({ word }) => this.leadsBy(word, t)).map(({ i }) => this.at(i, t));
    const taken = stars.map(([x, y]) => [view.x(x) - 7, view.y(y) - 7, view.x(x) + 7, view.y(y) + 7]);
    for (const { word, i } of shown.slice(0, 40)) {
      const [x, y] = this.at(i, t);
      const box = place(view.x(x), view.y(y), painter.measure(word.text, 12, 500), painter, taken);
      if (!box) continue;
      taken.push(box);
      const style = {
        fill: colour(word.leader ? "ink" : "soft"),
        size: 12,
        weight: word.leader ? 600 : 400,
        halo: colour("card"),
      };
      painter.text(box[0], (box[1] + box[3]) / 2, word.text, style);
    }
  }

  /** The cluster of the word nearest to a place on the picture, or null. */
  clusterAt(px, py) {
    let [best, found] = [NEAR ** 2, null];
    this.item?.words.forEach((word, i) => {
      const [x, y] = this.at(i, this.t);
      const away = (this.view.x(x) - px) ** 2 + (this.view.y(y) - py) ** 2;
      if (away < best) [best, found] = [away, word.cluster];
    });
    return found;
  }

  isShown(word) {
    return this.cluster === null || word.cluster === this.cluster;
  }

  leadsBy(word, t) {
    return (
      word.leader &&
      this.item.leaders.some((leader) => leader.word === word.text && leader.since_layer <= t + 1e-9)
    );
  }
}

/** Room for a name beside a point: right of it or left, within the picture, over nothing else. */
function place(x, y, width, painter, taken) {
  for (const left of [x + 9, x - 9 - width]) {
    const box = [left, y - 8, left + width, y + 8];
    const inside = box[0] >= 2 && box[2] <= painter.width - 2;
    const free = taken.every(
      (other) => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3],
    );
    if (inside && free) return box;
  }
  return null;
}
