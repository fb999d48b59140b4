/* Two painters with one interface: CanvasPainter draws on a canvas, SvgPainter writes an SVG file.
   Coordinates are CSS pixels. */

const SANS = 'Inter, system-ui, "Helvetica Neue", Arial, sans-serif';

const cssFont = ({ size = 12, weight = 400, italic = false }) =>
  `${italic ? "italic " : ""}${weight} ${size}px ${SANS}`;

let measuringContext = null;

/** Returns the width of a text in a font {size, weight, italic}; the same for both painters. */
function measure(text, font) {
  measuringContext ??= document.createElement("canvas").getContext("2d");
  measuringContext.font = cssFont(font);
  return measuringContext.measureText(text).width;
}

const STAR = Array.from({ length: 10 }, (_, k) => {
  const radius = k % 2 ? 0.45 : 1;
  const angle = (Math.PI * k) / 5 - Math.PI / 2;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
});

const starPolygon = (x, y, r) => STAR.map(([u, v]) => [x + r * u, y + r * v]);

/** Dots up to this radius (pixels) are drawn as squares: they look the same, and drawing takes half the time. */
const MAX_SQUARE_RADIUS = 1.5;

export class CanvasPainter {
  constructor(context, width, height) {
    Object.assign(this, { context, width, height, measure });
  }

  rect(x, y, width, height, fill, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  polygon(points, { fill, stroke, width = 1, alpha = 1, dash = [] }) {
    this.tracePath(points, true);
    this.fillAndStroke({ fill, stroke, width, alpha, dash });
  }

  polyline(points, { stroke, width = 1, alpha = 1, dash = [] }) {
    this.tracePath(points, false);
    this.fillAndStroke({ stroke, width, alpha, dash });
  }

  /** `lines` is a flat array: x1, y1, x2, y2 of each segment. */
  segments(lines, { stroke, width = 1, alpha = 1, dash = [] }) {
    const { context } = this;
    context.beginPath();
    for (let k = 0; k < lines.length; k += 4) {
      context.moveTo(lines[k], lines[k + 1]);
      context.lineTo(lines[k + 2], lines[k + 3]);
    }
    this.fillAndStroke({ stroke, width, alpha, dash });
  }

  /** `centres` is a flat array: x, y of each dot. */
  dots(centres, r, { fill, stroke, width = 1, alpha = 1 }) {
    const { context } = this;
    if (fill && r <= MAX_SQUARE_RADIUS) return this.squares(centres, r, fill, alpha);
    context.beginPath();
    for (let k = 0; k < centres.length; k += 2) {
      context.moveTo(centres[k] + r, centres[k + 1]);
      context.arc(centres[k], centres[k + 1], r, 0, 2 * Math.PI);
    }
    return this.fillAndStroke({ fill, stroke, width, alpha });
  }

  squares(centres, r, fill, alpha) {
    const { context } = this;
    Object.assign(context, { fillStyle: fill, globalAlpha: alpha });
    for (let k = 0; k < centres.length; k += 2) {
      context.fillRect(centres[k] - r, centres[k + 1] - r, 2 * r, 2 * r);
    }
    context.globalAlpha = 1;
  }

  star(x, y, r, style) {
    this.polygon(starPolygon(x, y, r), style);
  }

  text(x, y, text, { fill, align = "left", halo = null, ...font }) {
    const { context } = this;
    context.font = cssFont(font);
    context.textAlign = align;
    context.textBaseline = "middle";
    if (halo) {
      Object.assign(context, { strokeStyle: halo, lineWidth: 3.5, lineJoin: "round" });
      context.strokeText(text, x, y);
    }
    context.fillStyle = fill;
    context.fillText(text, x, y);
  }

  tracePath(points, closed) {
    this.context.beginPath();
    points.forEach(([x, y], k) => (k ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
    if (closed) this.context.closePath();
  }

  fillAndStroke({ fill, stroke, width, alpha, dash = [] }) {
    const { context } = this;
    context.globalAlpha = alpha;
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      Object.assign(context, { strokeStyle: stroke, lineWidth: width, lineJoin: "round", lineCap: "round" });
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    }
    context.globalAlpha = 1;
  }
}

const round = (x) => Math.round(x * 100) / 100;
const formatPoints = (points) => points.map((point) => point.map(round)).join(" ");
const escape = (text) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

export class SvgPainter {
  constructor(width, height) {
    Object.assign(this, { width, height, measure, elements: [] });
  }

  rect(x, y, width, height, fill, alpha = 1) {
    const frame = `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
    this.elements.push(`<rect ${frame} ${this.formatStyle({ fill, alpha })}/>`);
  }

  polygon(points, style) {
    this.elements.push(`<polygon points="${formatPoints(points)}" ${this.formatStyle(style)}/>`);
  }

  polyline(points, style) {
    this.elements.push(`<polyline points="${formatPoints(points)}" ${this.formatStyle(style)}/>`);
  }

  segments(lines, style) {
    let path = "";
    for (let k = 0; k < lines.length; k += 4) {
      path += `M${round(lines[k])} ${round(lines[k + 1])}L${round(lines[k + 2])} ${round(lines[k + 3])}`;
    }
    if (path) this.elements.push(`<path d="${path}" ${this.formatStyle(style)}/>`);
  }

  dots(centres, r, style) {
    const circles = [];
    for (let k = 0; k < centres.length; k += 2) {
      circles.push(`<circle cx="${round(centres[k])}" cy="${round(centres[k + 1])}" r="${r}"/>`);
    }
    this.elements.push(`<g ${this.formatStyle(style)}>${circles.join("")}</g>`);
  }

  star(x, y, r, style) {
    this.polygon(starPolygon(x, y, r), style);
  }

  text(x, y, text, { fill, align = "left", halo = null, size = 12, weight = 400, italic = false }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const font = `font-size="${size}" font-weight="${weight}"${italic ? ' font-style="italic"' : ""}`;
    const outline = halo
      ? ` stroke="${halo}" stroke-width="3.5" stroke-linejoin="round" paint-order="stroke"`
      : "";
    const frame = `x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" dominant-baseline="central"`;
    this.elements.push(`<text ${frame} ${font} fill="${fill}"${outline}>${escape(text)}</text>`);
  }

  formatStyle({ fill, stroke, width = 1, alpha = 1, dash = [] }) {
    const strokeAttributes = stroke
      ? ` stroke="${stroke}" stroke-width="${width}" stroke-linejoin="round" stroke-linecap="round"`
      : "";
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    return `fill="${fill ?? "none"}"${strokeAttributes}${dashes}${alpha < 1 ? ` opacity="${round(alpha)}"` : ""}`;
  }

  /** Returns the SVG file. */
  toString() {
    const head = `xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}"`;
    const box = `viewBox="0 0 ${this.width} ${this.height}" font-family="${escape(SANS)}"`;
    return `<svg ${head} ${box}>${this.elements.join("\n")}</svg>\n`;
  }
}
