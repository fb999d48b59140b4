/* The ways of lines from words to their leader: they run between the lines of the text and along its edge,
   never across a word. Knows rectangles; nothing of words. */

const ROUND = 6;
const GUTTER = 11; // pixels from the edge of the sheet
const RISE = 6; // how far above a word its line runs

/** The path from one word to another, each given as {x, top, left edge..}: `from` and `to` are {x, y} of upper edges. */
export function wayOf(from, to, { width }) {
  const [high, low] = [from.y - RISE, to.y - RISE];
  if (Math.abs(from.y - to.y) < 4)
    return rounded([
      [from.x, from.y],
      [from.x, high],
      [to.x, high],
      [to.x, to.y],
    ]);
  const edge = from.x + to.x < width ? GUTTER : width - GUTTER;
  return rounded([
    [from.x, from.y],
    [from.x, high],
    [edge, high],
    [edge, low],
    [to.x, low],
    [to.x, to.y],
  ]);
}

/** Straight segments with rounded corners. */
function rounded(points) {
  const parts = [`M${points[0].map(tidy)}`];
  for (let k = 1; k + 1 < points.length; k += 1) {
    const [before, corner, after] = [points[k - 1], points[k], points[k + 1]];
    const r = Math.min(ROUND, distance(before, corner) / 2, distance(corner, after) / 2);
    parts.push(`L${towards(corner, before, r)}Q${corner.map(tidy)} ${towards(corner, after, r)}`);
  }
  return `${parts.join("")}L${points.at(-1).map(tidy)}`;
}

const tidy = (x) => Math.round(x * 10) / 10;
const distance = (p, q) => Math.hypot(p[0] - q[0], p[1] - q[1]);
const towards = (p, q, r) => {
  const s = r / (distance(p, q) || 1);
  return p.map((x, k) => tidy(x + s * (q[k] - x)));
};
