/* Plane and solid geometry. A line a x + b y + c = 0 is [a, b, c]; a polygon is an array of vertices in order. */

import { dot, subtract } from "../shared/vectors.js";

const MAX_HULL_POINTS = 60; // findHullEdges takes time n^4

const evaluate = ([x, y], [a, b, c]) => a * x + b * y + c;

function intersectSegment(p, q, line) {
  const [fp, fq] = [evaluate(p, line), evaluate(q, line)];
  const s = fp / (fp - fq);
  return [p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1])];
}

/** Returns the part of a convex polygon where a x + b y + c >= 0. */
export function clipToHalfPlane(polygon, line) {
  return polygon.flatMap((q, k) => {
    const p = polygon.at(k - 1);
    const [fp, fq] = [evaluate(p, line), evaluate(q, line)];
    const crosses = fp >= 0 !== fq >= 0;
    return [...(crosses ? [intersectSegment(p, q, line)] : []), ...(fq >= 0 ? [q] : [])];
  });
}

/** Returns the points where a line crosses the boundary of a convex polygon. */
export function crossBoundary(polygon, line) {
  return polygon.flatMap((q, k) => {
    const p = polygon.at(k - 1);
    return evaluate(p, line) >= 0 !== evaluate(q, line) >= 0 ? [intersectSegment(p, q, line)] : [];
  });
}

/** Returns the convex hull of points of the plane, in order (Andrew's monotone chain). */
export function convexHull(points) {
  const sorted = [...points].sort((p, q) => p[0] - q[0] || p[1] - q[1]);
  const orientation = (o, p, q) => (p[0] - o[0]) * (q[1] - o[1]) - (p[1] - o[1]) * (q[0] - o[0]);
  const halfHull = (ordered) =>
    ordered.reduce((chain, p) => {
      while (chain.length > 1 && orientation(chain.at(-2), chain.at(-1), p) <= 0) chain.pop();
      return [...chain, p];
    }, []);
  if (sorted.length < 3) return sorted;
  return [...halfHull(sorted).slice(0, -1), ...halfHull(sorted.reverse()).slice(0, -1)];
}

const cross = (a, b) =>
  [0, 1, 2].map((k) => a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3]);

/** Returns the edges of the convex hull of points in space, as pairs of indices: the sides of all triangles that have
    every other point on one side. Diagonals of faces are included. */
export function findHullEdges(points) {
  const n = points.length > MAX_HULL_POINTS ? 0 : points.length;
  const scale = Math.max(...points.flat().map(Math.abs), 1e-300);
  const edges = new Map();
  for (let a = 0; a < n; a += 1)
    for (let b = a + 1; b < n; b += 1)
      for (let c = b + 1; c < n; c += 1) {
        const normal = cross(subtract(points[b], points[a]), subtract(points[c], points[a]));
        const tolerance = 1e-9 * scale * Math.hypot(...normal);
        const heights = points.map((point) => dot(normal, subtract(point, points[a])));
        if (heights.some((x) => x > tolerance) && heights.some((x) => x < -tolerance)) continue;
        for (const edge of [
          [a, b],
          [b, c],
          [a, c],
        ])
          edges.set(String(edge), edge);
      }
  return [...edges.values()];
}
