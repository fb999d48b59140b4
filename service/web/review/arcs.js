/* SVG paths of the arcs between words. They run between the lines of text and along the edge, never across a word. */

const CORNER_RADIUS_PX = 6;
const EDGE_DISTANCE_PX = 11; // from the edge of the editor
const RISE_PX = 6; // height of an arc above its word

/** Returns the path data from one word to another. `from`, `to`: {x, y}, the middle of the upper edge of a word. */
export function buildArcPath(from, to, { width }) {
  const [fromY, toY] = [from.y - RISE_PX, to.y - RISE_PX];
  if (Math.abs(from.y - to.y) < 4)
    return roundCorners([
      [from.x, from.y],
      [from.x, fromY],
      [to.x, fromY],
      [to.x, to.y],
    ]);
  const edge = from.x + to.x < width ? EDGE_DISTANCE_PX : width - EDGE_DISTANCE_PX;
  return roundCorners([
    [from.x, from.y],
    [from.x, fromY],
    [edge, fromY],
    [edge, toY],
    [to.x, toY],
    [to.x, to.y],
  ]);
}

/** Returns the path data of a polyline with rounded corners. */
function roundCorners(points) {
  const parts = [`M${points[0].map(round)}`];
  for (let k = 1; k + 1 < points.length; k += 1) {
    const [before, corner, after] = [points[k - 1], points[k], points[k + 1]];
    const r = Math.min(CORNER_RADIUS_PX, distance(before, corner) / 2, distance(corner, after) / 2);
    parts.push(`L${moveTowards(corner, before, r)}Q${corner.map(round)} ${moveTowards(corner, after, r)}`);
  }
  return `${parts.join("")}L${points.at(-1).map(round)}`;
}

const round = (x) => Math.round(x * 10) / 10;
const distance = (p, q) => Math.hypot(p[0] - q[0], p[1] - q[1]);
const moveTowards = (p, q, r) => {
  const s = r / (distance(p, q) || 1);
  return p.map((x, k) => round(x + s * (q[k] - x)));
};
