/* Many dimensions on a plane. Across runs the direction the read-out reads, so that what speaks for the label lies right.
   A cloud of the plane is only turned; of one with more dimensions the second axis is where the points differ most besides. */

const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
const scaled = (a, s) => a.map((x) => x * s);
const less = (a, b) => a.map((x, k) => x - b[k]);
const without = (p, taken) => taken.reduce((q, u) => less(q, scaled(u, dot(q, u))), p);

/** The two directions to draw along; `flat` when nothing is lost. `vector` may be null. */
export function shadow(layers, vector) {
  const d = layers[0][0].length;
  const across = vector ? scaled(vector, 1 / (Math.hypot(...vector) || 1)) : [1, ...new Array(d - 1).fill(0)];
  if (d === 1) return { axes: [across, [0]], flat: true };
  if (d === 2) return { axes: [across, [-across[1], across[0]]], flat: true };
  return { axes: [across, principal(layers.flat(), across)], flat: false };
}

/** The unit direction of largest spread, orthogonal to `taken`, by power iteration. */
function principal(points, taken) {
  const d = points[0].length;
  const mean = Array.from({ length: d }, (_, k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
  const centred = points.map((p) => without(less(p, mean), [taken]));
  let u = without(
    Array.from({ length: d }, (_, k) => Math.cos(1 + k)),
    [taken],
  );
  for (let turn = 0; turn < 40; turn += 1) {
    const next = new Array(d).fill(0);
    for (const p of centred) {
      const along = dot(p, u);
      for (let k = 0; k < d; k += 1) next[k] += along * p[k];
    }
    const norm = Math.hypot(...next);
    if (norm < 1e-12) break;
    u = scaled(next, 1 / norm);
  }
  return u;
}

/** The coordinates of points along two axes: x, y after x, y. */
export const along = (points, axes) =>
  Float64Array.from(points.flatMap((z) => axes.map((axis) => dot(z, axis))));
