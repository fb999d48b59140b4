/* A line a x + b y + c = 0 across a convex polygon: the part on its positive side, and where it crosses. */

const value = ([x, y], [a, b, c]) => a * x + b * y + c;

function meet(p, q, line) {
  const [fp, fq] = [value(p, line), value(q, line)];
  const s = fp / (fp - fq);
  return [p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1])];
}

/** The part of a polygon where a x + b y + c >= 0. */
export function clip(polygon, line) {
  return polygon.flatMap((q, k) => {
    const p = polygon.at(k - 1);
    const [fp, fq] = [value(p, line), value(q, line)];
    const crosses = fp >= 0 !== fq >= 0;
    return [...(crosses ? [meet(p, q, line)] : []), ...(fq >= 0 ? [q] : [])];
  });
}

/** Where the line enters and leaves a polygon. */
export function crossing(polygon, line) {
  return polygon.flatMap((q, k) => {
    const p = polygon.at(k - 1);
    return value(p, line) >= 0 !== value(q, line) >= 0 ? [meet(p, q, line)] : [];
  });
}
