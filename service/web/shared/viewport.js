/* The window on the plane: where a point of the world lies on the picture, and back. */

import { colour } from "./colour.js";

export class Viewport {
  constructor() {
    this.centre = [0, 0];
    this.reach = [1.5, 1.5]; // half the extent that must be visible
    this.resize(100, 100);
  }

  resize(width, height) {
    Object.assign(this, { width, height });
    const pad = Math.min(28, width * 0.06);
    this.scale = Math.min((width / 2 - pad) / this.reach[0], (height / 2 - pad) / this.reach[1]);
  }

  /** Shows all of the points, given as x, y after x, y, with the origin when it is near. */
  fit(coordinates, { origin = true, least = 1e-9 } = {}) {
    let [left, right, low, high] = origin ? [0, 0, 0, 0] : [Infinity, -Infinity, Infinity, -Infinity];
    for (let k = 0; k < coordinates.length; k += 2) {
      left = Math.min(left, coordinates[k]);
      right = Math.max(right, coordinates[k]);
      low = Math.min(low, coordinates[k + 1]);
      high = Math.max(high, coordinates[k + 1]);
    }
    if (!Number.isFinite(left + right + low + high)) [left, right, low, high] = [-1, 1, -1, 1];
    this.centre = [(left + right) / 2, (low + high) / 2];
    const smallest = Math.max(least, 0.02 * Math.max(right - left, high - low));
    this.reach = [Math.max((right - left) / 2, smallest) * 1.12, Math.max((high - low) / 2, smallest) * 1.12];
    this.resize(this.width, this.height);
  }

  x(x) {
    return this.width / 2 + (x - this.centre[0]) * this.scale;
  }

  y(y) {
    return this.height / 2 - (y - this.centre[1]) * this.scale;
  }

  world(px, py) {
    return [
      this.centre[0] + (px - this.width / 2) / this.scale,
      this.centre[1] - (py - this.height / 2) / this.scale,
    ];
  }

  zoom(factor, px, py) {
    const [x, y] = this.world(px, py);
    this.reach = this.reach.map((r) => Math.min(1e6, Math.max(1e-6, r / factor)));
    this.resize(this.width, this.height);
    const [x2, y2] = this.world(px, py);
    this.centre = [this.centre[0] + x - x2, this.centre[1] + y - y2];
  }

  /** The distance between grid lines: 1, 2 or 5 times a power of ten, some 70 pixels. */
  get step() {
    const raw = 70 / this.scale;
    const power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((k) => k * power >= raw);
  }

  /** How many decimals distinguish neighbouring pixels. */
  get decimals() {
    return Math.max(0, Math.min(9, Math.ceil(Math.log10(this.scale))));
  }
}

/** Grid and axes, quiet enough to forget. */
export function drawGrid(painter, view) {
  const { across, upwards } = ticksOf(view);
  const lines = [
    ...across.flatMap((x) => [view.x(x), 0, view.x(x), view.height]),
    ...upwards.flatMap((y) => [0, view.y(y), view.width, view.y(y)]),
  ];
  painter.segments(lines, { stroke: colour("grid"), width: 1 });
  const axes = [view.x(0), 0, view.x(0), view.height, 0, view.y(0), view.width, view.y(0)];
  painter.segments(axes, { stroke: colour("line"), width: 1 });
}

/** The numbers of the grid lines, along the axes or along the edge that is nearest to them. */
export function drawNumbers(painter, view) {
  const { across, upwards } = ticksOf(view);
  const { step, width, height } = view;
  const style = { size: 11, fill: colour("soft"), halo: colour("card") };
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const numeral = (x) => x.toFixed(decimals).replace("-", "\u2212");
  const shown = (at, end) => at > 16 && at < end - 16;
  const [x0, y0] = [clamp(view.x(0), 2, width - 34), clamp(view.y(0), 2, height - 16)];
  for (const x of across.filter((x) => Math.abs(x) > step / 2 && shown(view.x(x), width)))
    painter.text(view.x(x), y0 + 10, numeral(x), { ...style, align: "center" });
  for (const y of upwards.filter((y) => Math.abs(y) > step / 2 && shown(view.y(y), height)))
    painter.text(x0 + 5, view.y(y), numeral(y), style);
}

function ticksOf(view) {
  const [left, top] = view.world(0, 0);
  const [right, bottom] = view.world(view.width, view.height);
  const between = (low, high) => {
    const first = Math.ceil(low / view.step);
    const count = Math.max(0, Math.floor(high / view.step) - first + 1);
    return Array.from({ length: count }, (_, k) => (first + k) * view.step);
  };
  return { across: between(left, right), upwards: between(bottom, top) };
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
