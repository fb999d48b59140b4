/* Clouds to start from. Each is a function of nothing but a seed, so that a link can name it. */

const TRIANGLE = [
  [1, 1],
  [0.5, -0.5],
  [-1, -1],
  [0.3, -0.2],
  [0.1, -0.2],
  [0.8776, 0.9785],
  [0.0989, 0.4935],
  [-0.203, -0.9591],
  [-0.3824, -0.9242],
];
const EMERGING = [
  [1, 1 / 3],
  [-1 / 12, 1 / 12],
  [-1, -1],
  [0, 0.25],
  [-0.3, -0.7],
  [-0.6, -0.9],
  [0.8, 0.1],
  [0.6, 0.15],
];
const TIES = [
  [1, 1],
  [-1, 1],
  [-1, -1],
  [1, -1],
  [0.6, 0],
  [-0.35, 0],
  [0, 0.5],
  [0, -0.7],
  [0.2, 0.1],
  [-0.3, 0.55],
];

/** Presets by name: alpha and a cloud. The first two are figure 2 of the paper. */
export const PRESETS = {
  triangle: { title: "Three leaders", alpha: 0.5, points: () => TRIANGLE },
  emerging: { title: "A leader emerges", alpha: 0.5, points: () => EMERGING },
  random: { title: "Random", alpha: 0.5, points: (seed) => gaussian(80, seed), again: true },
  grid: { title: "Grid", alpha: 0.5, points: () => grid(9) },
  circle: { title: "Circle", alpha: 0.5, points: () => circle(24) },
  ties: { title: "Square with ties", alpha: 0.5, points: () => TIES },
  space: { title: "In space", alpha: 0.5, points: (seed) => gaussian(60, seed, 3), again: true },
  many: { title: "10,000 points", alpha: 0.5, points: (seed) => gaussian(10_000, seed), again: true },
};

const round = (x) => Math.round(x * 1000) / 1000;

/** A small generator of numbers in [0, 1): the same for the same seed, everywhere (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function gaussian(n, seed, d = 2) {
  const next = random(seed);
  const pair = () => {
    const radius = 0.5 * Math.sqrt(-2 * Math.log(1 - next()));
    const angle = 2 * Math.PI * next();
    return [round(radius * Math.cos(angle)), round(radius * Math.sin(angle))];
  };
  return Array.from({ length: n }, () =>
    Array.from({ length: Math.ceil(d / 2) }, pair)
      .flat()
      .slice(0, d),
  );
}

/** Off the origin by a little: a token at zero agrees with everybody alike. */
function grid(side) {
  const at = (k) => round(-1 + (2 * k) / (side - 1));
  return Array.from({ length: side * side }, (_, k) => [at(k % side), at(Math.floor(k / side))]).filter(
    ([x, y]) => x || y,
  );
}

function circle(n) {
  return Array.from({ length: n }, (_, k) => [
    Math.cos((2 * Math.PI * k) / n),
    Math.sin((2 * Math.PI * k) / n),
  ]);
}
