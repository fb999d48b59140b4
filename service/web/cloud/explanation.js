/* Explains the next step of a point: its largest inner products, and the points that it follows. */

import { formatList } from "../shared/element.js";
import { dot } from "../shared/vectors.js";

const MAX_RUNNERS_UP = 3;
const MAX_LISTED_TIES = 6;
const TIE_TOLERANCE = 1e-12; // relative to the largest inner product
const POSITION_TOLERANCE = 1e-6;

const distance = (a, b) => Math.hypot(...a.map((x, k) => x - b[k]));

/** Returns {i, query, max, followed, others} of point i among n points: the query A z_i, the largest inner product,
    the points that have it, and the best others as {j, product}.

    `pointAt(j)` returns z_j; `A` may be null, which means the identity. `target` is the mean of the followed points as
    the service decided it exactly, or null. It resolves products that are equal here only because of rounding. */
export function explainPoint(i, n, pointAt, A, target = null) {
  const query = A ? A.map((row) => dot(row, pointAt(i))) : pointAt(i);
  const products = Float64Array.from({ length: n }, (_, j) => dot(query, pointAt(j)));
  const max = products.reduce((a, b) => Math.max(a, b), -Infinity);
  const threshold = max - TIE_TOLERANCE * Math.max(1, Math.abs(max));
  const tied = [...products.keys()].filter((j) => products[j] >= threshold);
  const radius = target && POSITION_TOLERANCE * (1 + Math.hypot(...target));
  const atTarget = target ? tied.filter((j) => distance(pointAt(j), target) <= radius) : [];
  const followed = atTarget.length ? atTarget : tied;
  const others = [];
  for (let j = 0; j < n; j += 1) {
    if (products[j] >= threshold && followed.includes(j)) continue;
    if (others.length === MAX_RUNNERS_UP && products[j] <= products[others.at(-1)]) continue;
    others.push(j);
    others.sort((a, b) => products[b] - products[a]);
    others.length = Math.min(others.length, MAX_RUNNERS_UP);
  }
  return { i, query, max, followed, others: others.map((j) => ({ j, product: products[j] })) };
}

const formatNumber = (x) => String(Number(x.toPrecision(3))).replace("-", "\u2212");

/** Returns an explanation as text: "Largest inner products of point 5: 0.25 with point 1, 0.1 with point 0. It follows
    point 1 and moves 33 % of the way to it." */
export function formatExplanation({ i, max, followed, others }, alpha) {
  const name = (j) => (j === i ? "itself" : `point ${j}`);
  const rest = others.map(({ j, product }) => `, ${formatNumber(product)} with ${name(j)}`).join("");
  const start = `Largest inner products of point ${i}: ${formatNumber(max)} with`;
  const share = `${Math.round((100 * alpha) / (1 + alpha))} % of the way`;
  if (followed.length === 1) {
    const [j] = followed;
    const step = j === i ? "itself, so it stays" : `${name(j)} and moves ${share} to it`;
    return `${start} ${name(j)}${rest}. It follows ${step}.`;
  }
  const names = formatList(followed.slice(0, MAX_LISTED_TIES).map(name));
  const more = followed.length - MAX_LISTED_TIES;
  const ties = `each of ${names}${more > 0 ? ` and ${more} more` : ""}`;
  return `${start} ${ties}${rest}. It moves ${share} to the mean of the tied points.`;
}
