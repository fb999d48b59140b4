/* A canvas that is sharp at any pixel ratio and redraws when its size changes, and export to PNG and SVG files. */

import { colour } from "./colour.js";
import { el } from "./element.js";
import { CanvasPainter, SvgPainter } from "./painter.js";

const EXPORT_SCALE = 2; // pixels of a PNG per CSS pixel

/** Calls `draw(painter)` after `redraw()` or a resize, at most once per animation frame. */
export class Figure {
  constructor(canvas, draw) {
    Object.assign(this, { canvas, draw, pending: false });
    new ResizeObserver(() => this.redraw()).observe(canvas);
  }

  get width() {
    return this.canvas.clientWidth;
  }

  get height() {
    return this.canvas.clientHeight;
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const { canvas, width, height } = this;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.draw(new CanvasPainter(context, width, height));
  }
}

/** Appends two buttons to `group` that save what `draw(painter)` draws. `size()` returns {width, height}. */
export function addExportButtons(group, name, size, draw) {
  const button = (format, save) =>
    el("button", { type: "button", class: "quiet small", title: `Save as ${format}`, onclick: save }, format);
  group.append(
    button("PNG", async () => download(`${name}.png`, await toPng(size(), draw))),
    button("SVG", () => download(`${name}.svg`, toSvg(size(), draw))),
  );
}

function toSvg({ width, height }, draw) {
  const painter = new SvgPainter(width, height);
  painter.rect(0, 0, width, height, colour("card"));
  draw(painter);
  return new Blob([painter.toString()], { type: "image/svg+xml" });
}

export function toPng({ width, height }, draw) {
  const canvas = el("canvas", { width: width * EXPORT_SCALE, height: height * EXPORT_SCALE });
  const context = canvas.getContext("2d");
  context.scale(EXPORT_SCALE, EXPORT_SCALE);
  const painter = new CanvasPainter(context, width, height);
  painter.rect(0, 0, width, height, colour("card"));
  draw(painter);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

/** Starts the download of a file. */
export function download(filename, blob) {
  const href = URL.createObjectURL(blob);
  const anchor = el("a", { href, download: filename });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
