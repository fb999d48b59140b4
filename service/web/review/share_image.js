/* The image for sharing: a text, its verdict, the contributions, and the words in the plane.
   1080 by 1350 pixels, so that the smallest text is readable at the width of a phone. */

import { buildContributionRows, computeAxisRange, formatRead } from "./answer.js";
import { colour, signColour } from "../shared/colour.js";
import { SERIF } from "../shared/painter.js";
import { signed } from "../shared/element.js";
import { MIN_FULL_TINT_CONTRIBUTION, buildSegments } from "./editor.js";
import { describeVerdict } from "./verdict.js";

export const IMAGE_SIZE = { width: 1080, height: 1350 };
const MARGIN = 64;
const INNER_WIDTH = IMAGE_SIZE.width - 2 * MARGIN;
const RIGHT = IMAGE_SIZE.width - MARGIN;
const TEXT = { size: 42, lineHeight: 62, maxLines: 5, maxSegments: 400 };
const ROW_HEIGHT = 50;
const MAX_CLUSTERS = 4;
const PLOT_SCALE = 2.7; // the plot is laid out as on the page and enlarged, so that names are readable

/** Draws the image. `plot` is the WordPlot of the page. */
export function drawShareImage(painter, answer, plot) {
  painter.rect(0, 0, IMAGE_SIZE.width, IMAGE_SIZE.height, colour("card"));
  drawTitle(painter);
  let y = drawText(painter, answer, 162);
  y = drawVerdict(painter, describeVerdict(answer), y + 44);
  y = drawContributions(painter, answer, y + 26);
  drawPlot(painter, plot, y + 22);
}

function drawTitle(painter) {
  painter.star(MARGIN + 16, 74, 19, { fill: colour("neg") });
  painter.text(MARGIN + 48, 76, "hardmax", { fill: colour("ink"), size: 40, weight: 600, family: SERIF });
  const style = { fill: colour("soft"), size: 32, italic: true, align: "right", family: SERIF };
  painter.text(RIGHT, 76, "a verdict, and its exact reason", style);
}

/** Draws the first lines of the text with highlighted words. Returns the y coordinate of its end. */
function drawText(painter, answer, top) {
  const segments = buildSegments(answer);
  const sizes = segments.map(({ contribution }) => Math.abs(contribution));
  const fullTint = Math.max(MIN_FULL_TINT_CONTRIBUTION, ...sizes);
  const font = { size: TEXT.size, family: SERIF };
  const parts = breakLines(painter, segments, font);
  const shown = parts.filter(({ line }) => line < TEXT.maxLines);
  const isCut = shown.length < parts.length;
  while (isCut && shown.at(-1).right > INNER_WIDTH - TEXT.size) shown.pop();
  const last = shown.at(-1);
  if (isCut) shown.push({ text: " \u2026", contribution: 0, line: last.line, left: last.right });
  for (const { text, contribution, line, left, right } of shown) {
    const [x, y, width] = [MARGIN + left, top + line * TEXT.lineHeight, right - left];
    const alpha = 0.05 + 0.55 * (Math.abs(contribution) / fullTint) ** 0.7;
    if (contribution) painter.rect(x - 4, y - 28, width + 8, 54, signColour(contribution), alpha);
    painter.text(x, y, text, { ...font, fill: colour("ink"), width });
  }
  return top + (last.line + 1) * TEXT.lineHeight - TEXT.size / 2;
}

/** Breaks segments into lines. Returns parts {text, contribution, line, left, right} without white space. */
function breakLines(painter, segments, font) {
  const split = ({ text, contribution }) => text.split(/(\s+)/).map((part) => ({ text: part, contribution }));
  const space = painter.measure(" ", font);
  let [x, line] = [0, 0];
  const parts = [];
  for (const { text, contribution } of segments.slice(0, TEXT.maxSegments).flatMap(split)) {
    if (!text.trim()) {
      x += text && x ? space : 0;
      continue;
    }
    const width = painter.measure(text, font);
    if (x && x + width > INNER_WIDTH) [x, line] = [0, line + 1];
    parts.push({ text, contribution, line, left: x, right: x + width });
    x += width;
  }
  return parts;
}

function drawVerdict(painter, { label, side, score }, y) {
  const large = { size: 104, family: SERIF };
  const text = label.charAt(0).toUpperCase() + label.slice(1);
  painter.text(MARGIN, y + 46, text, {
    ...large,
    fill: colour(side === "none" ? "soft" : side),
    width: painter.measure(text, large),
  });
  const small = { size: 38, family: SERIF, fill: colour("ink"), align: "right" };
  painter.text(RIGHT, y + 62, score, small);
  return y + 110;
}

/** Draws the bias, the largest clusters and the logit as a waterfall chart. Returns the y coordinate of its end. */
function drawContributions(painter, answer, top) {
  const terms = buildContributionRows(answer, MAX_CLUSTERS);
  const logit = terms.at(-1).to;
  const rows = [...terms, { kind: "total", from: 0, to: logit, rounded: logit }];
  const range = computeAxisRange(terms);
  const [left, right] = [MARGIN + 400, RIGHT - 130];
  const toX = (value) => left + ((right - left) * (value - range.low)) / range.size;
  const totalY = top + terms.length * ROW_HEIGHT;
  painter.segments([toX(0), top, toX(0), top + rows.length * ROW_HEIGHT], { stroke: colour("line"), width: 2 });
  painter.segments([MARGIN, totalY, RIGHT, totalY], { stroke: colour("ink"), width: 2 });
  rows.forEach((row, k) => {
    const y = top + (k + 0.5) * ROW_HEIGHT;
    const isTotal = row.kind === "total";
    const font = { size: 32, weight: isTotal ? 650 : 400, fill: colour(row.cluster || isTotal ? "ink" : "soft") };
    painter.text(MARGIN, y, truncate(painter, formatRowName(row, answer), 380, font), font);
    const [from, to] = [toX(row.from), toX(row.to)];
    const fill = signColour(row.rounded);
    painter.rect(Math.min(from, to), y - 14, Math.max(2, Math.abs(to - from)), 28, fill);
    painter.text(RIGHT, y, signed(row.rounded), { size: 32, weight: 600, fill, align: "right" });
  });
  return top + rows.length * ROW_HEIGHT;
}

/** Formats the name of a row, for a cluster its leader with what it has read: "bad (not, at, all)". */
function formatRowName({ kind, cluster, count }, { shownLabel, perLabel, words }) {
  const total = perLabel ? `logit of ${shownLabel}` : "logit";
  if (!cluster) return { bias: "bias", rest: `${count} more`, total }[kind];
  const names = cluster.leaders.map((index) => words[index].text);
  const read = kind === "leader" && names.length ? formatRead(cluster.leaders[0], words, 3) : null;
  return [...new Set(names)].join(" and ") + (read ? ` (${read})` : "");
}

/** Shortens a text with an ellipsis until it fits. */
function truncate(painter, text, width, font) {
  let result = text;
  while (result.length > 1 && painter.measure(result, font) > width)
    result = `${result.replace(/\u2026$/, "").slice(0, -1)}\u2026`;
  return result;
}

/** Draws the words at their final positions, and restores the state of the plot, which the page draws too. */
function drawPlot(painter, plot, top) {
  const height = IMAGE_SIZE.height - top - 40;
  if (!plot.answer || height < 160) return;
  const { t, clusterId, index, view } = plot;
  const [viewWidth, viewHeight] = [view.width, view.height];
  plot.t = plot.layers;
  plot.highlight(null, null);
  painter.inset({ x: MARGIN, y: top, width: INNER_WIDTH, height, scale: PLOT_SCALE }, () => plot.draw(painter));
  plot.t = t;
  plot.highlight(clusterId, index);
  view.resize(viewWidth, viewHeight);
}
