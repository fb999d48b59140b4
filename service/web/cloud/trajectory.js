/* The trajectory of a cloud: the layers in the answer of /dynamics and, after the certified layer, more layers in
   closed form: z + (1 - (1 + alpha)^-m) (limit - z). Positions are flat arrays: the coordinates of one point after
   another. */

import { projectPoints } from "./camera.js";

const TAIL_END = 0.02; // remaining share of the distance to the limit
const MAX_TAIL_LAYERS = 14;

export class Trajectory {
  /** Points of three or more coordinates are drawn by their first three, as `camera` shows them. */
  constructor(points, answer, camera) {
    this.n = points.length;
    this.stride = points[0]?.length > 2 ? 3 : 2; // coordinates kept of each point
    this.points = points;
    this.answer = answer;
    this.certifiedLayer = answer?.certified_layer ?? null;
    this.coordinates = (answer?.trajectory?.points ?? [points]).map((rows) => flattenRows(rows, this.stride));
    if (this.certifiedLayer !== null && answer.limits)
      this.appendTail(flattenRows(answer.limits, this.stride), answer.alpha);
    this.softmaxCoordinates = (answer?.softmax?.points ?? []).map((rows) => flattenRows(rows, this.stride));
    this.project(camera);
    this.leaderSince = new Map((answer?.leaders ?? []).map((leader) => [leader.index, leader.since_layer]));
  }

  /** Computes what is drawn: `frames`, the x and y of each point in each layer, and in space `depths`. */
  project(camera) {
    if (this.stride === 2) {
      Object.assign(this, { frames: this.coordinates, softmaxFrames: this.softmaxCoordinates });
      return;
    }
    const [right, up, forward] = camera.axes;
    this.softmaxFrames = this.softmaxCoordinates.map((layer) => projectPoints(layer, [right, up]));
    this.frames = this.coordinates.map((layer) => projectPoints(layer, [right, up]));
    this.depths = this.coordinates.map((layer) => projectPoints(layer, [forward]));
  }

  appendTail(limits, alpha) {
    const last = this.coordinates.at(-1);
    if (last.every((x, k) => Math.abs(x - limits[k]) < 1e-9)) return;
    const length = Math.min(MAX_TAIL_LAYERS, Math.max(1, Math.ceil(Math.log(TAIL_END) / -Math.log1p(alpha))));
    for (let m = 1; m <= length; m += 1) {
      const remaining = (1 + alpha) ** -m;
      this.coordinates.push(last.map((x, k) => limits[k] + remaining * (x - limits[k])));
    }
  }

  /** The index of the last layer. */
  get layers() {
    return this.coordinates.length - 1;
  }

  /** Returns the drawn positions of all points at time t, a number of layers that may lie between two. */
  positionsAt(t) {
    return interpolateFrames(this.frames, t);
  }

  /** Returns how near to the viewer each point is at time t; null in the plane. */
  depthsAt(t) {
    return this.stride === 3 ? interpolateFrames(this.depths, t) : null;
  }

  /** Returns the drawn positions under softmax attention at time t, or at its last layer; null without softmax. */
  softmaxPositionsAt(t) {
    const { softmaxFrames } = this;
    return softmaxFrames.length ? interpolateFrames(softmaxFrames, Math.min(t, softmaxFrames.length - 1)) : null;
  }

  /** Returns a function from the index of a point to all its coordinates, at the last whole layer before t. */
  pointsAt(t) {
    const k = Math.floor(t + 1e-9);
    if (this.points[0]?.length === 2) return (j) => [this.frames[k][2 * j], this.frames[k][2 * j + 1]];
    const layers = this.answer?.trajectory?.points ?? [this.points];
    return (j) => layers[Math.min(k, layers.length - 1)][j];
  }

  /** Returns the mean of the points that point i follows at time t, from the answer; null if it does not say. */
  targetAt(i, t) {
    const k = Math.floor(t + 1e-9);
    if (this.certifiedLayer !== null && k >= this.certifiedLayer) return this.answer.limits?.[i] ?? null;
    if (!this.answer?.trajectory || k >= this.answer.trajectory.points.length - 1) return null;
    const [z, next] = [this.pointsAt(k)(i), this.pointsAt(k + 1)(i)];
    const { alpha } = this.answer;
    return z.map((x, c) => x + ((1 + alpha) / alpha) * (next[c] - x));
  }

  /** Returns the indices of the leaders at time t. */
  leadersAt(t) {
    return [...this.leaderSince].filter(([, layer]) => layer <= t + 1e-9).map(([index]) => index);
  }

  /** The leaders that appear after layer 0, in order of appearance. */
  get emergingLeaders() {
    return [...this.leaderSince]
      .filter(([, layer]) => layer > 0)
      .sort((a, b) => a[1] - b[1])
      .map(([index, layer]) => ({ index, layer }));
  }
}

function interpolateFrames(frames, t) {
  const last = frames.length - 1;
  const k = Math.min(Math.floor(t), Math.max(0, last - 1));
  const [a, b, s] = [frames[k], frames[Math.min(k + 1, last)], t - k];
  return s === 0 ? a : a.map((x, i) => x + s * (b[i] - x));
}

/** Returns the first `stride` numbers of each row in one flat array, with 0 for missing ones. */
export function flattenRows(rows, stride) {
  const result = new Float64Array(stride * rows.length);
  rows.forEach((row, i) => {
    for (let k = 0; k < stride; k += 1) result[stride * i + k] = row[k] ?? 0;
  });
  return result;
}

/** Returns the rank of each cluster id by size, 0 for the largest. */
export function rankClusters(answer) {
  const bySize = [...(answer?.clusters ?? [])].sort((a, b) => b.size - a.size || a.id - b.id);
  return new Map(bySize.map(({ id }, rank) => [id, rank]));
}
