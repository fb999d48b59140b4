/* The card that people post: one picture of a text, its verdict, the sum that is the verdict, and its words in the plane.
   Drawn 1080 by 1350, so that its smallest words can still be read at the width of a phone. Knows one answer. */

import { readBy, rowsOf, spanOf } from "./answer.js";
import { colour, side } from "../shared/colour.js";
import { SERIF } from "../shared/painter.js";
import { signed } from "../shared/element.js";
import { segmentsOf } from "./sheet.js";
import { verdictOf } from "./verdict.js";

export const CARD = { width: 1080, height: 1350 };
const EDGE = 64;
const INNER = CARD.width - 2 * EDGE;
const TEXT = { size: 42, line: 62, lines: 5, segments: 400 };
const ROW = 50;
const ROWS = 4;

/** Draws the card; `words` is the plane of the page, which draws itself into its area. */
export function drawCard(painter, answer, words) {
  const verdict = verdictOf(answer);
  painter.rect(0, 0, CARD.width, CARD.height, colour("card"));
  drawTitle(painter);
  let y = drawText(painter, answer, 162);
  y = drawVerdict(painter, verdict, y + 44);
  y = drawSum(painter, answer, y + 26);
  drawPlane(painter, words, y + 22);
}

function drawTitle(painter) {
  painter.star(EDGE + 16, 74, 19, { fill: colour("neg") });
  painter.text(EDGE + 48, 76, "hardmax", { fill: colour("ink"), size: 40, weight: 600, family: SERIF });
  const style = { fill: colour("soft"), size: 32, italic: true, align: "right", family: SERIF };
  painter.text(CARD.width - EDGE, 76, "a verdict, and its exact reason", style);
}

/** The text as it stands on the page, tinted, cut behind a few lines. Returns where it ends. */
function drawText(painter, answer, top) {
  const found = segmentsOf(answer);
  const most = Math.max(0.05, ...found.map(({ share }) => Math.abs(share)));
  const font = { size: TEXT.size, family: SERIF };
  const parts = laidOut(painter, found, font);
  const shown = parts.filter(({ line }) => line < TEXT.lines);
  const cut = shown.length < parts.length;
  while (cut && shown.at(-1).right > INNER - TEXT.size) shown.pop();
  const last = shown.at(-1);
  if (cut) shown.push({ text: " \u2026", share: 0, line: last.line, left: last.right });
  for (const { text, share, line, left, right } of shown) {
    const [x, y, width] = [EDGE + left, top + line * TEXT.line, right - left];
    const alpha = 0.05 + 0.55 * (Math.abs(share) / most) ** 0.7;
    if (share) painter.rect(x - 4, y - 28, width + 8, 54, side(share), alpha);
    painter.text(x, y, text, { ...font, fill: colour("ink"), width });
  }
  return top + (last.line + 1) * TEXT.line - TEXT.size / 2;
}

/** Words and signs as {text, share, line, left, right}, broken into lines. */
function laidOut(painter, found, font) {
  const split = ({ text, share }) => text.split(/(\s+)/).map((part) => ({ text: part, share }));
  const gap = painter.measure(" ", font);
  let [x, line] = [0, 0];
  const parts = [];
  for (const { text, share } of found.slice(0, TEXT.segments).flatMap(split)) {
    if (!text.trim()) {
      x += text && x ? gap : 0;
      continue;
    }
    const width = painter.measure(text, font);
    if (x && x + width > INNER) [x, line] = [0, line + 1];
    parts.push({ text, share, line, left: x, right: x + width });
    x += width;
  }
  return parts;
}

function drawVerdict(painter, { label, side: name, score }, y) {
  const large = { size: 104, family: SERIF };
  const text = label.charAt(0).toUpperCase() + label.slice(1);
  painter.text(EDGE, y + 46, text, {
    ...large,
    fill: colour(name === "none" ? "soft" : name),
    width: painter.measure(text, large),
  });
  const small = { size: 38, family: SERIF, fill: colour("ink"), align: "right" };
  painter.text(CARD.width - EDGE, y + 62, score.split(":")[0], small);
  return y + 110;
}

/** The bias and the largest clusters as bars that begin where the one before ended. Returns where they end. */
function drawSum(painter, answer, top) {
  const rows = rowsOf(answer, ROWS);
  const total = { kind: "total", from: 0, to: rows.at(-1).to, adds: rows.at(-1).to };
  const span = spanOf(rows);
  const [left, right] = [EDGE + 400, CARD.width - EDGE - 130];
  const x = (value) => left + ((right - left) * (value - span.low)) / span.size;
  const shown = [...rows, total];
  painter.segments([x(0), top, x(0), top + shown.length * ROW], { stroke: colour("line"), width: 2 });
  painter.segments([EDGE, top + rows.length * ROW, CARD.width - EDGE, top + rows.length * ROW], {
    stroke: colour("ink"),
    width: 2,
  });
  shown.forEach((row, k) => {
    const y = top + (k + 0.5) * ROW;
    const weight = row.kind === "total" ? 650 : 400;
    const name = { size: 32, weight, fill: colour(row.cluster || row.kind === "total" ? "ink" : "soft") };
    painter.text(EDGE, y, fitted(painter, nameOf(row, answer), 380, name), name);
    painter.rect(
      Math.min(x(row.from), x(row.to)),
      y - 14,
      Math.max(2, Math.abs(x(row.to) - x(row.from))),
      28,
      side(row.adds),
    );
    painter.text(CARD.width - EDGE, y, signed(row.adds), {
      size: 32,
      weight: 600,
      fill: side(row.adds),
      align: "right",
    });
  });
  return top + shown.length * ROW;
}

/** A leader with what it has read: "bad (not, at, all)". */
function nameOf({ kind, cluster, count }, { shown, several, words }) {
  if (!cluster) return { bias: "bias", rest: `${count} more`, total: several ? shown : "sum" }[kind];
  const names = cluster.leaders.map((token) => words[token].text);
  const read = kind === "leader" && names.length ? readBy(cluster.leaders[0], words, 3) : null;
  return [...new Set(names)].join(" and ") + (read ? ` (${read})` : "");
}

/** As much of a text as fits. */
function fitted(painter, text, width, font) {
  let cut = text;
  while (cut.length > 1 && painter.measure(cut, font) > width)
    cut = `${cut.replace(/\u2026$/, "").slice(0, -1)}\u2026`;
  return cut;
}

const SCALE = 2.7; // the plane is drawn as on the page, and enlarged so that its names can be read

/** The words at their end. The plane is then left as it was, since the page draws it too. */
function drawPlane(painter, words, top) {
  const height = CARD.height - top - 40;
  if (!words.answer || height < 160) return;
  const { t, cluster, token, view } = words;
  const [w, h] = [view.width, view.height];
  words.t = words.layers;
  words.lookAt(null, null);
  painter.inset({ x: EDGE, y: top, width: INNER, height, scale: SCALE }, () => words.draw(painter));
  words.t = t;
  words.lookAt(cluster, token);
  view.resize(w, h);
}
