/* Vectors as arrays of numbers. */

export const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
export const subtract = (a, b) => a.map((x, k) => x - b[k]);
