/* Maps world coordinates to pixels and back; draws the grid. */

import { colour } from "./colour.js";

export class Viewport {
  constructor() {
    this.centre = [0, 0];
    this.reach = [1.5, 1.5]; // half the width and height to show, in world units
    this.resize(100, 100);
  }

  resize(width, height) {
    Object.assign(this, { width, height });
    const pad = Math.min(28, width * 0.06);
    this.scale = Math.min((width / 2 - pad) / this.reach[0], (height / 2 - pad) / this.reach[1]);
  }

  /** Fits the view to points, given as a flat array of x, y, and by default to the origin. */
  fit(coordinates, { origin = true, minReach = 1e-9 } = {}) {
    let [left, right, low, high] = origin ? [0, 0, 0, 0] : [Infinity, -Infinity, Infinity, -Infinity];
    for (let k = 0; k < coordinates.length; k += 2) {
      left = Math.min(left, coordinates[k]);
      right = Math.max(right, coordinates[k]);
      low = Math.min(low, coordinates[k + 1]);
      high = Math.max(high, coordinates[k + 1]);
    }
    if (!Number.isFinite(left + right + low + high)) [left, right, low, high] = [-1, 1, -1, 1];
    this.centre = [(left + right) / 2, (low + high) / 2];
    const smallest = Math.max(minReach, 0.02 * Math.max(right - left, high - low));
    this.reach = [Math.max((right - left) / 2, smallest) * 1.12, Math.max((high - low) / 2, smallest) * 1.12];
    this.resize(this.width, this.height);
  }

  /** Returns the pixel column of a world coordinate. */
  x(x) {
    return this.width / 2 + (x - this.centre[0]) * this.scale;
  }

  /** Returns the pixel row of a world coordinate. */
  y(y) {
    return this.height / 2 - (y - this.centre[1]) * this.scale;
  }

  /** Returns the world coordinates of a pixel. */
  toWorld(px, py) {
    return [
      this.centre[0] + (px - this.width / 2) / this.scale,
      this.centre[1] - (py - this.height / 2) / this.scale,
    ];
  }

  /** Zooms by a factor; the point at the pixel stays where it is. */
  zoom(factor, px, py) {
    const [x, y] = this.toWorld(px, py);
    this.reach = this.reach.map((r) => Math.min(1e6, Math.max(1e-6, r / factor)));
    this.resize(this.width, this.height);
    const [x2, y2] = this.toWorld(px, py);
    this.centre = [this.centre[0] + x - x2, this.centre[1] + y - y2];
  }

  /** The distance between grid lines in world units: 1, 2 or 5 times a power of ten, 70 pixels or more. */
  get step() {
    const raw = 70 / this.scale;
    const power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((k) => k * power >= raw);
  }

  /** The number of decimals that distinguish adjacent pixels. */
  get decimals() {
    return Math.max(0, Math.min(9, Math.ceil(Math.log10(this.scale))));
  }
}

/** Draws grid lines and axes. */
export function drawGrid(painter, view) {
  const { xTicks, yTicks } = computeTicks(view);
  const lines = [
    ...xTicks.flatMap((x) => [view.x(x), 0, view.x(x), view.height]),
    ...yTicks.flatMap((y) => [0, view.y(y), view.width, view.y(y)]),
  ];
  painter.segments(lines, { stroke: colour("grid"), width: 1 });
  const axes = [view.x(0), 0, view.x(0), view.height, 0, view.y(0), view.width, view.y(0)];
  painter.segments(axes, { stroke: colour("line"), width: 1 });
}

/** Draws the numbers of the grid lines along the axes, or along the nearest edge if an axis is not visible. */
export function drawTickLabels(painter, view) {
  const { xTicks, yTicks } = computeTicks(view);
  const { step, width, height } = view;
  const style = { size: 11, fill: colour("soft"), halo: colour("card") };
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const formatTick = (x) => x.toFixed(decimals).replace("-", "\u2212");
  const fits = (at, end) => at > 16 && at < end - 16;
  const [x0, y0] = [clamp(view.x(0), 2, width - 34), clamp(view.y(0), 2, height - 16)];
  for (const x of xTicks.filter((x) => Math.abs(x) > step / 2 && fits(view.x(x), width)))
    painter.text(view.x(x), y0 + 10, formatTick(x), { ...style, align: "center" });
  for (const y of yTicks.filter((y) => Math.abs(y) > step / 2 && fits(view.y(y), height)))
    painter.text(x0 + 5, view.y(y), formatTick(y), style);
}

function computeTicks(view) {
  const [left, top] = view.toWorld(0, 0);
  const [right, bottom] = view.toWorld(view.width, view.height);
  const ticksBetween = (low, high) => {
    const first = Math.ceil(low / view.step);
    const count = Math.max(0, Math.floor(high / view.step) - first + 1);
    return Array.from({ length: count }, (_, k) => (first + k) * view.step);
  };
  return { xTicks: ticksBetween(left, right), yTicks: ticksBetween(bottom, top) };
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
