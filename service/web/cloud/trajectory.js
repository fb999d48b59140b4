/* The trajectory of a cloud: the layers that the service computed and, after the certified one, further layers in
   closed form: z + (1 - (1 + alpha)^-m) (limit - z). Knows the answer of /dynamics. */

import { projected } from "./space.js";

const ENOUGH = 0.02; // of the distance to the limit, at the end of the tail
const LONGEST_TAIL = 14; // layers

export class Trajectory {
  /** `camera` looks at points of three coordinates or more, and may turn later. */
  constructor(points, answer, camera) {
    this.n = points.length;
    this.stride = points[0]?.length > 2 ? 3 : 2;
    this.points = points;
    this.answer = answer;
    this.certified = answer?.certified_layer ?? null;
    this.solid = (answer?.trajectory?.points ?? [points]).map((rows) => packed(rows, this.stride));
    if (this.certified !== null && answer.limits)
      this.appendTail(packed(answer.limits, this.stride), answer.alpha);
    this.soft = (answer?.softmax?.points ?? []).map((rows) => packed(rows, this.stride));
    this.look(camera);
    this.since = new Map((answer?.leaders ?? []).map((leader) => [leader.index, leader.since_layer]));
  }

  /** Where everything lies on the picture, as x, y after x, y; in space also how near to the eye. */
  look(camera) {
    if (this.stride === 2) return void Object.assign(this, { frames: this.solid, softFrames: this.soft });
    const [right, up, near] = camera.axes;
    this.softFrames = this.soft.map((frame) => projected(frame, [right, up]));
    this.frames = this.solid.map((frame) => projected(frame, [right, up]));
    this.depths = this.solid.map((frame) => projected(frame, [near]));
  }

  appendTail(limits, alpha) {
    const last = this.solid.at(-1);
    if (last.every((x, k) => Math.abs(x - limits[k]) < 1e-9)) return;
    const length = Math.min(LONGEST_TAIL, Math.max(1, Math.ceil(Math.log(ENOUGH) / -Math.log1p(alpha))));
    for (let m = 1; m <= length; m += 1) {
      const left = (1 + alpha) ** -m;
      this.solid.push(last.map((x, k) => limits[k] + left * (x - limits[k])));
    }
  }

  get layers() {
    return this.solid.length - 1;
  }

  /** All positions on the picture at the moment t, as x, y after x, y. */
  at(t) {
    return this.between(this.frames, t);
  }

  /** How near to the eye each point is at the moment t; null in the plane. */
  depthsAt(t) {
    return this.stride === 3 ? this.between(this.depths, t) : null;
  }

  /** The same under softmax attention, at its last layer from then on; null where it was not requested. */
  softmaxAt(t) {
    return this.soft.length ? this.between(this.softFrames, Math.min(t, this.soft.length - 1)) : null;
  }

  between(frames, t) {
    const last = frames.length - 1;
    const k = Math.min(Math.floor(t), Math.max(0, last - 1));
    const [a, b, s] = [frames[k], frames[Math.min(k + 1, last)], t - k];
    return s === 0 ? a : a.map((x, i) => x + s * (b[i] - x));
  }

  /** Where point j is in the last whole layer before t, in all its coordinates, as `(j) => row`. */
  rowsAt(t) {
    const k = Math.floor(t + 1e-9);
    if (this.points[0]?.length === 2) return (j) => [this.frames[k][2 * j], this.frames[k][2 * j + 1]];
    const layers = this.answer?.trajectory?.points ?? [this.points];
    return (j) => layers[Math.min(k, layers.length - 1)][j];
  }

  /** The mean of those whom point i follows at the moment t, as the service decided it; null where it is not known. */
  meanOf(i, t) {
    const k = Math.floor(t + 1e-9);
    if (this.certified !== null && k >= this.certified) return this.answer.limits?.[i] ?? null;
    if (!this.answer?.trajectory || k >= this.answer.trajectory.points.length - 1) return null;
    const [z, next] = [this.rowsAt(k)(i), this.rowsAt(k + 1)(i)];
    const { alpha } = this.answer;
    return z.map((x, c) => x + ((1 + alpha) / alpha) * (next[c] - x));
  }

  /** The leaders there are at the moment t. */
  leadersAt(t) {
    return [...this.since].filter(([, since]) => since <= t + 1e-9).map(([index]) => index);
  }

  /** Leaders that were none at first, in the order they appear. */
  get emerging() {
    return [...this.since]
      .filter(([, since]) => since > 0)
      .sort((a, b) => a[1] - b[1])
      .map(([index, layer]) => ({ index, layer }));
  }
}

/** The first `stride` numbers of each row, one row after the other. */
export function packed(rows, stride) {
  const out = new Float64Array(stride * rows.length);
  rows.forEach((row, i) => {
    for (let k = 0; k < stride; k += 1) out[stride * i + k] = row[k] ?? 0;
  });
  return out;
}
