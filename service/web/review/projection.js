/* Projects positions with many dimensions onto two axes. The first axis is the direction of the readout, so that words
   for the label are on the right. In two dimensions the second axis is perpendicular to it; in more, it is the
   direction of the largest remaining variance. */

import { dot, subtract } from "../shared/vectors.js";

const POWER_ITERATIONS = 40;

const scale = (a, s) => a.map((x) => x * s);
const removeComponent = (p, unit) => subtract(p, scale(unit, dot(p, unit)));

/** Returns the two axes, and whether the projection is exact. `readoutVector` may be null. */
export function findAxes(layers, readoutVector) {
  const d = layers[0][0].length;
  const first = readoutVector
    ? scale(readoutVector, 1 / (Math.hypot(...readoutVector) || 1))
    : [1, ...new Array(d - 1).fill(0)];
  if (d === 1) return { axes: [first, [0]], exact: true };
  if (d === 2) return { axes: [first, [-first[1], first[0]]], exact: true };
  return { axes: [first, findPrincipalAxis(layers.flat(), first)], exact: false };
}

/** Returns the unit vector of largest variance orthogonal to `excluded`, by power iteration. */
function findPrincipalAxis(points, excluded) {
  const d = points[0].length;
  const mean = Array.from({ length: d }, (_, k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
  const centred = points.map((p) => removeComponent(subtract(p, mean), excluded));
  let unit = removeComponent(
    Array.from({ length: d }, (_, k) => Math.cos(1 + k)),
    excluded,
  );
  for (let iteration = 0; iteration < POWER_ITERATIONS; iteration += 1) {
    const next = new Array(d).fill(0);
    for (const p of centred) {
      const component = dot(p, unit);
      for (let k = 0; k < d; k += 1) next[k] += component * p[k];
    }
    const norm = Math.hypot(...next);
    if (norm < 1e-12) break;
    unit = scale(next, 1 / norm);
  }
  return unit;
}

/** Returns the coordinates along the axes, interleaved: x0, y0, x1, y1, … */
export const projectPoints = (points, axes) =>
  Float64Array.from(points.flatMap((point) => axes.map((axis) => dot(point, axis))));
