/* The matrix A of the plane, up to its scale (which changes nothing): a stretch and a turn.
   The ellipse z'Az = 1 is long in the direction `turn`, sqrt(stretch) by 1/sqrt(stretch). */

/** The symmetric positive definite matrix of determinant 1 with that ellipse; turn in degrees. */
export function matrixOf({ stretch, turn }) {
  if (stretch === 1) return null;
  const [c, s] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
  const [long, short] = [1 / stretch, stretch];
  const off = c * s * (long - short);
  return [
    [long * c * c + short * s * s, off],
    [off, long * s * s + short * c * c],
  ];
}

/** Stretch and turn of any symmetric positive definite 2 by 2 matrix. */
export function shapeOf([[a, b], [, d]]) {
  const middle = (a + d) / 2;
  const spread = Math.hypot((a - d) / 2, b);
  const stretch = Math.sqrt((middle + spread) / Math.max(middle - spread, Number.MIN_VALUE));
  if (spread < 1e-12 * middle) return { stretch: 1, turn: 0 };
  const turn = (Math.atan2(-2 * b, d - a) * 90) / Math.PI; // direction of the smaller eigenvalue
  return { stretch, turn: (turn + 360) % 180 };
}
