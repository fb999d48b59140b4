/* The matrix A in the plane as a shape {stretch, turn}. Its scale does not matter, so det A = 1. The ellipse z'Az = 1
   has the semi-axes sqrt(stretch) and 1 / sqrt(stretch); `turn` is the angle of the long one in degrees. */

/** Returns the symmetric positive definite matrix of a shape, or null for the identity. */
export function shapeToMatrix({ stretch, turn }) {
  if (stretch === 1) return null;
  const [c, s] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
  const [small, large] = [1 / stretch, stretch]; // eigenvalues
  const offDiagonal = c * s * (small - large);
  return [
    [small * c * c + large * s * s, offDiagonal],
    [offDiagonal, small * s * s + large * c * c],
  ];
}

/** Returns the shape of a symmetric positive definite 2 by 2 matrix. */
export function matrixToShape([[a, b], [, d]]) {
  const mean = (a + d) / 2; // the eigenvalues are mean +- radius
  const radius = Math.hypot((a - d) / 2, b);
  const stretch = Math.sqrt((mean + radius) / Math.max(mean - radius, Number.MIN_VALUE));
  if (radius < 1e-12 * mean) return { stretch: 1, turn: 0 };
  const turn = (Math.atan2(-2 * b, d - a) * 90) / Math.PI; // direction of the eigenvector of the smaller eigenvalue
  return { stretch, turn: (turn + 360) % 180 };
}
