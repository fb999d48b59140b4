/* The state of the cloud view as the values of its link: #cloud?preset=random&seed=2&alpha=0.5. */

import { PRESETS } from "./presets.js";

const DEFAULT_PRESET = "triangle";
const DEFAULT_ALPHA = 0.5;
const MAX_LINKED_POINTS = 300;
const NO_POINTS = ";"; // an empty cloud, because empty values are left out of a link

/** Returns whether the link of this cloud contains its points or its preset. */
export const isLinkable = ({ points, preset }) => Boolean(preset) || points.length <= MAX_LINKED_POINTS;

/** Returns the values of the link of a cloud. */
export function formatLinkValues({ points, preset, seed, alpha, ellipse, softmax, camera, inSpace }) {
  const { stretch, turn } = ellipse;
  const listed = points.length <= MAX_LINKED_POINTS && {
    points: points.map((row) => row.join(",")).join(";") || NO_POINTS,
  };
  return {
    ...(preset ? { preset, seed: PRESETS[preset].seeded ? seed : null } : listed),
    alpha,
    ...(stretch !== 1 && { stretch: stretch.toFixed(3), turn: Math.round(turn) }),
    softmax: softmax.temperature,
    look: inSpace ? [camera.yaw, camera.pitch].map((x) => x.toFixed(2)).join(",") : null,
  };
}

/** Parses the values of a link, given as URLSearchParams, with defaults for missing and invalid ones. */
export function parseLinkValues(values) {
  const name = values.get("preset");
  const fallback = values.has("points") ? null : DEFAULT_PRESET;
  const preset = Object.hasOwn(PRESETS, name) ? name : fallback;
  const rows = (values.get("points") ?? "").split(";").filter(Boolean);
  const seed = Number(values.get("seed")) || 1;
  const [yaw, pitch] = (values.get("look") ?? "").split(",").map(Number);
  return {
    preset,
    seed,
    points: preset ? PRESETS[preset].points(seed) : rows.map((row) => row.split(",").map(Number)),
    alpha: Number(values.get("alpha")) || (preset ? PRESETS[preset].alpha : DEFAULT_ALPHA),
    shape: { stretch: Number(values.get("stretch")) || 1, turn: Number(values.get("turn")) || 0 },
    temperature: Number(values.get("softmax")),
    camera: Number.isFinite(yaw + pitch) ? { yaw, pitch } : null,
  };
}
