/* Preset clouds. A link stores the name and the seed of a preset instead of its points. */

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

/** Presets by name. `points(seed)` returns the points; `seeded` ones depend on the seed. The first two are figure 2 of
    the paper. */
export const PRESETS = {
  triangle: { title: "Three leaders", alpha: 0.5, points: () => TRIANGLE },
  emerging: { title: "A leader emerges", alpha: 0.5, points: () => EMERGING },
  random: { title: "Random", alpha: 0.5, points: (seed) => sampleGaussian(80, seed), seeded: true },
  grid: { title: "Grid", alpha: 0.5, points: () => createGrid(9) },
  circle: { title: "Circle", alpha: 0.5, points: () => createCircle(24) },
  ties: { title: "Square with ties", alpha: 0.5, points: () => TIES },
  space: { title: "In 3D", alpha: 0.5, points: (seed) => sampleGaussian(60, seed, 3), seeded: true },
  many: { title: "10,000 points", alpha: 0.5, points: (seed) => sampleGaussian(10_000, seed), seeded: true },
};

const round = (x) => Math.round(x * 1000) / 1000;

/** Returns a seeded generator of numbers in [0, 1) (mulberry32). */
function createRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function sampleGaussian(n, seed, d = 2) {
  const random = createRandom(seed);
  const samplePair = () => {
    const radius = 0.5 * Math.sqrt(-2 * Math.log(1 - random()));
    const angle = 2 * Math.PI * random();
    return [round(radius * Math.cos(angle)), round(radius * Math.sin(angle))];
  };
  return Array.from({ length: n }, () =>
    Array.from({ length: Math.ceil(d / 2) }, samplePair)
      .flat()
      .slice(0, d),
  );
}

/** Leaves out the origin, whose inner product with every point is 0. */
function createGrid(side) {
  const at = (k) => round(-1 + (2 * k) / (side - 1));
  return Array.from({ length: side * side }, (_, k) => [at(k % side), at(Math.floor(k / side))]).filter(
    ([x, y]) => x || y,
  );
}

function createCircle(n) {
  return Array.from({ length: n }, (_, k) => [
    Math.cos((2 * Math.PI * k) / n),
    Math.sin((2 * Math.PI * k) / n),
  ]);
}
