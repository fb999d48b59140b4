/* One way to draw, two papers: a canvas for the eye and an SVG file for keeping.
   Everything is in CSS pixels of the picture. */

export const SANS = 'Inter, system-ui, "Helvetica Neue", Arial, sans-serif';
export const SERIF = 'Newsreader, "Iowan Old Style", Georgia, serif';

const fontOf = ({ size = 12, weight = 400, italic = false, family = SANS }) =>
  `${italic ? "italic " : ""}${weight} ${size}px ${family}`;

let ruler = null;

/** How wide words are in a font {size, weight, italic, family}; the same for both papers. */
function measure(words, font) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = fontOf(font);
  return ruler.measureText(words).width;
}

const STAR = Array.from({ length: 10 }, (_, k) => {
  const radius = k % 2 ? 0.45 : 1;
  const angle = (Math.PI * k) / 5 - Math.PI / 2;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
});

const starAt = (x, y, r) => STAR.map(([u, v]) => [x + r * u, y + r * v]);

/** Dots of at most this radius are drawn as squares: it is not visible, and twice as fast as one path of them all. */
const SPECK = 1.5;

export class CanvasPainter {
  constructor(context, width, height) {
    Object.assign(this, { context, width, height, measure });
  }

  /** Draws into a part of the picture, enlarged: within it the painter is as wide and high as that part shows. */
  inset({ x, y, width, height, scale }, draw) {
    const { context, width: w, height: h } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.translate(x, y);
    context.scale(scale, scale);
    Object.assign(this, { width: width / scale, height: height / scale });
    draw();
    Object.assign(this, { width: w, height: h });
    context.restore();
  }

  rect(x, y, width, height, fill, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  polygon(points, { fill, stroke, width = 1, alpha = 1, dash = [] }) {
    this.trace(points, true);
    this.finish({ fill, stroke, width, alpha, dash });
  }

  polyline(points, { stroke, width = 1, alpha = 1, dash = [] }) {
    this.trace(points, false);
    this.finish({ stroke, width, alpha, dash });
  }

  /** `lines` holds x1, y1, x2, y2 of one stroke after another. */
  segments(lines, { stroke, width = 1, alpha = 1, dash = [] }) {
    const { context } = this;
    context.beginPath();
    for (let k = 0; k < lines.length; k += 4) {
      context.moveTo(lines[k], lines[k + 1]);
      context.lineTo(lines[k + 2], lines[k + 3]);
    }
    this.finish({ stroke, width, alpha, dash });
  }

  /** `centres` holds x, y of one dot after another. */
  dots(centres, r, { fill, stroke, width = 1, alpha = 1 }) {
    const { context } = this;
    if (fill && r <= SPECK) return this.specks(centres, r, fill, alpha);
    context.beginPath();
    for (let k = 0; k < centres.length; k += 2) {
      context.moveTo(centres[k] + r, centres[k + 1]);
      context.arc(centres[k], centres[k + 1], r, 0, 2 * Math.PI);
    }
    return this.finish({ fill, stroke, width, alpha });
  }

  specks(centres, r, fill, alpha) {
    const { context } = this;
    Object.assign(context, { fillStyle: fill, globalAlpha: alpha });
    for (let k = 0; k < centres.length; k += 2) {
      context.fillRect(centres[k] - r, centres[k + 1] - r, 2 * r, 2 * r);
    }
    context.globalAlpha = 1;
  }

  star(x, y, r, style) {
    this.polygon(starAt(x, y, r), style);
  }

  text(x, y, words, { fill, align = "left", halo = null, ...font }) {
    const { context } = this;
    context.font = fontOf(font);
    context.textAlign = align;
    context.textBaseline = "middle";
    if (halo) {
      Object.assign(context, { strokeStyle: halo, lineWidth: 3.5, lineJoin: "round" });
      context.strokeText(words, x, y);
    }
    context.fillStyle = fill;
    context.fillText(words, x, y);
  }

  trace(points, closed) {
    this.context.beginPath();
    points.forEach(([x, y], k) => (k ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
    if (closed) this.context.closePath();
  }

  finish({ fill, stroke, width, alpha, dash = [] }) {
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
const escape = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

export class SvgPainter {
  constructor(width, height) {
    Object.assign(this, { width, height, measure, parts: [] });
  }

  inset({ x, y, width, height, scale }, draw) {
    const { width: w, height: h } = this;
    Object.assign(this, { width: width / scale, height: height / scale });
    const frame = `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
    this.parts.push(`<svg ${frame} viewBox="0 0 ${round(this.width)} ${round(this.height)}">`);
    draw();
    this.parts.push("</svg>");
    Object.assign(this, { width: w, height: h });
  }

  rect(x, y, width, height, fill, alpha = 1) {
    const frame = `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
    this.parts.push(`<rect ${frame} ${this.paint({ fill, alpha })}/>`);
  }

  polygon(points, style) {
    this.parts.push(`<polygon points="${points.map((p) => p.map(round)).join(" ")}" ${this.paint(style)}/>`);
  }

  polyline(points, style) {
    this.parts.push(`<polyline points="${points.map((p) => p.map(round)).join(" ")}" ${this.paint(style)}/>`);
  }

  segments(lines, style) {
    let path = "";
    for (let k = 0; k < lines.length; k += 4) {
      path += `M${round(lines[k])} ${round(lines[k + 1])}L${round(lines[k + 2])} ${round(lines[k + 3])}`;
    }
    if (path) this.parts.push(`<path d="${path}" ${this.paint(style)}/>`);
  }

  dots(centres, r, style) {
    const circles = [];
    for (let k = 0; k < centres.length; k += 2) {
      circles.push(`<circle cx="${round(centres[k])}" cy="${round(centres[k + 1])}" r="${r}"/>`);
    }
    this.parts.push(`<g ${this.paint(style)}>${circles.join("")}</g>`);
  }

  star(x, y, r, style) {
    this.polygon(starAt(x, y, r), style);
  }

  /** A text of a given `width` keeps it whatever fonts are installed. */
  text(
    x,
    y,
    words,
    { fill, align = "left", halo = null, size = 12, weight = 400, italic = false, family, width },
  ) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const font = `font-size="${size}" font-weight="${weight}"${italic ? ' font-style="italic"' : ""}`;
    const face = family ? ` font-family="${escape(family)}"` : "";
    const fixed = width ? ` textLength="${round(width)}" lengthAdjust="spacingAndGlyphs"` : "";
    const outline = halo
      ? ` stroke="${halo}" stroke-width="3.5" stroke-linejoin="round" paint-order="stroke"`
      : "";
    const frame = `x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" dominant-baseline="central"`;
    this.parts.push(`<text ${frame} ${font}${face}${fixed} fill="${fill}"${outline}>${escape(words)}</text>`);
  }

  paint({ fill, stroke, width = 1, alpha = 1, dash = [] }) {
    const line = stroke
      ? ` stroke="${stroke}" stroke-width="${width}" stroke-linejoin="round" stroke-linecap="round"`
      : "";
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    return `fill="${fill ?? "none"}"${line}${dashes}${alpha < 1 ? ` opacity="${round(alpha)}"` : ""}`;
  }

  /** The finished file. */
  toString() {
    const head = `xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}"`;
    const box = `viewBox="0 0 ${this.width} ${this.height}" font-family="${escape(SANS)}"`;
    return `<svg ${head} ${box}>${this.parts.join("\n")}</svg>\n`;
  }
}
