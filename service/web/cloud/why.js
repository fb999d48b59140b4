/* Why a point goes where it goes: the products it compares, whom it therefore follows, and the half-plane in which
   everybody lies. Knows positions, A and the step size; no picture. */

const MAX_RIVALS = 3;
const EQUAL = 1e-12; // products so near look equal, relative to the largest
const TOLERANCE = 1e-6;

const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
const apart = (a, b) => Math.hypot(...a.map((x, k) => x - b[k]));

/** The reason of point i among n points, `at(j)` being where point j is; A may be null, which is the identity.
    `mean` is the point it moves towards, exactly as the service decided, or null: of products that look equal here,
    where numbers are rounded, those count whose points are there. */
export function reasonOf(i, n, at, A, mean = null) {
  const gaze = A ? A.map((row) => dot(row, at(i))) : at(i);
  const products = Float64Array.from({ length: n }, (_, j) => dot(gaze, at(j)));
  const best = products.reduce((a, b) => Math.max(a, b), -Infinity);
  const slack = EQUAL * Math.max(1, Math.abs(best));
  const alike = [...products.keys()].filter((j) => products[j] >= best - slack);
  const there = mean ? alike.filter((j) => apart(at(j), mean) <= TOLERANCE * (1 + Math.hypot(...mean))) : [];
  const followed = there.length ? there : alike;
  const others = []; // the best few of the rest
  for (let j = 0; j < n; j += 1) {
    if (products[j] >= best - slack && followed.includes(j)) continue;
    if (others.length === MAX_RIVALS && products[j] <= products[others.at(-1)]) continue;
    others.push(j);
    others.sort((a, b) => products[b] - products[a]);
    others.length = Math.min(others.length, MAX_RIVALS);
  }
  return { i, gaze, best, followed, others: others.map((j) => ({ j, product: products[j] })) };
}

const numeral = (x) => String(Number(x.toPrecision(3))).replace("-", "\u2212");
const list = (items) =>
  items.length > 1 ? `${items.slice(0, -1).join(", ")} and ${items.at(-1)}` : items.join();

/** "Point 5 agrees 0.25 with 1, 0.10 with 0: it follows 1, a third of the way." */
export function sentenceOf({ i, best, followed, others }, alpha) {
  const rest = others.map(({ j, product }) => `${numeral(product)} with ${j === i ? "itself" : j}`);
  const way = `${Math.round((100 * alpha) / (1 + alpha))} % of the way`;
  if (followed.length === 1) {
    const whom = followed[0] === i ? "itself" : followed[0];
    const then =
      followed[0] === i ? "with no point more than with itself, so it stays" : `it follows ${whom}, ${way}`;
    return `Point ${i} agrees ${[`${numeral(best)} with ${whom}`, ...rest].join(", ")}: ${then}.`;
  }
  const names = list(followed.slice(0, 6).map((j) => (j === i ? "itself" : String(j))));
  const more = followed.length > 6 ? ` and ${followed.length - 6} more` : "";
  return `Point ${i} agrees ${numeral(best)} with each of ${names}${more}${rest.length ? `, ${rest.join(", ")}` : ""}: it goes to the middle of the equals, ${way}.`;
}
