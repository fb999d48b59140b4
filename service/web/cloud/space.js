/* A cloud in space: two turns of the eye, where points then lie on the picture, and the edges of a polytope.
   Knows three coordinates; of more, the first three are shown. */

const STEEPEST = Math.PI / 2;
const EDGES_UP_TO = 60; // corners; every three of them are tried
const [YAW, PITCH] = [-0.5, 0.35]; // radians

const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
const less = (a, b) => a.map((x, k) => x - b[k]);
const cross = (a, b) =>
  [0, 1, 2].map((k) => a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3]);

export class Camera {
  constructor(yaw = YAW, pitch = PITCH) {
    Object.assign(this, { yaw, pitch });
  }

  turn(yaw, pitch) {
    this.yaw = (this.yaw + yaw) % (2 * Math.PI);
    this.pitch = Math.max(-STEEPEST, Math.min(STEEPEST, this.pitch + pitch));
  }

  /** The directions to the right, upwards and to the eye. */
  get axes() {
    const [c, s, C, S] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
    return [
      [c, s, 0],
      [-s * S, c * S, C],
      [s * C, -c * C, S],
    ];
  }
}

/** Coordinates along `axes` of points given as x, y, z after x, y, z. */
export function projected(solid, axes) {
  const out = new Float64Array((solid.length / 3) * axes.length);
  for (let i = 0; 3 * i < solid.length; i += 1)
    axes.forEach((axis, k) => {
      out[axes.length * i + k] =
        axis[0] * solid[3 * i] + axis[1] * solid[3 * i + 1] + axis[2] * solid[3 * i + 2];
    });
  return out;
}

/** The edges of the convex hull of `corners`, as pairs of their numbers: sides of triangles that have all other corners
    on one side. */
export function edgesOf(corners) {
  const n = corners.length > EDGES_UP_TO ? 0 : corners.length;
  const reach = Math.max(...corners.flat().map(Math.abs), 1e-300);
  const edges = new Map();
  for (let a = 0; a < n; a += 1)
    for (let b = a + 1; b < n; b += 1)
      for (let c = b + 1; c < n; c += 1) {
        const normal = cross(less(corners[b], corners[a]), less(corners[c], corners[a]));
        const slack = 1e-9 * reach * Math.hypot(...normal);
        const heights = corners.map((corner) => dot(normal, less(corner, corners[a])));
        if (heights.some((x) => x > slack) && heights.some((x) => x < -slack)) continue;
        for (const edge of [
          [a, b],
          [b, c],
          [a, c],
        ])
          edges.set(String(edge), edge);
      }
  return [...edges.values()];
}
