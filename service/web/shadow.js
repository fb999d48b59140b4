/* Many dimensions on a plane. A cloud of the plane is left as it is. Of one with more dimensions its shadow is made:
   across, the direction the decoder reads; upwards, the direction in which the points differ most besides. */

const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
const scaled = (a, s) => a.map((x) => x * s);
const less = (a, b) => a.map((x, k) => x - b[k]);

/** The two directions to draw along, and the decoder's line a x + b y + c = 0 in them. */
export function shadow(layers, readout) {
  const d = layers[0][0].length;
  const v = readout?.vector;
  if (d === 2)
    return {
      axes: [
        [1, 0],
        [0, 1],
      ],
      line: v && [v[0], v[1], readout.bias],
      flat: true,
    };
  if (d === 1) return { axes: [[1], [0]], line: v && [v[0], 0, readout.bias], flat: true };
  const norm = v ? Math.sqrt(dot(v, v)) : 1;
  const across = v ? scaled(v, 1 / norm) : principal(layers.flat(), []);
  const up = principal(layers.flat(), [across]);
  return { axes: [across, up], line: v && [norm, 0, readout.bias], flat: false };
}

/** The unit direction of largest spread, orthogonal to those `taken`, by power iteration. */
function principal(points, taken) {
  const d = points[0].length;
  const mean = Array.from({ length: d }, (_, k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
  const centred = points.map((p) => without(less(p, mean), taken));
  let u = without(
    Array.from({ length: d }, (_, k) => Math.cos(1 + k)),
    taken,
  );
  for (let turn = 0; turn < 40; turn += 1) {
    const next = new Array(d).fill(0);
    for (const p of centred) {
      const along = dot(p, u);
      for (let k = 0; k < d; k += 1) next[k] += along * p[k];
    }
    const norm = Math.sqrt(dot(next, next));
    if (norm < 1e-12) break;
    u = scaled(next, 1 / norm);
  }
  return u;
}

const without = (p, taken) => taken.reduce((q, u) => less(q, scaled(u, dot(q, u))), p);

/** The coordinates of points along two axes: x, y after x, y. */
export const along = (points, axes) =>
  Float64Array.from(points.flatMap((z) => axes.map((axis) => dot(z, axis))));
