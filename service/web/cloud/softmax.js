/* Softmax attention next to hardmax: its temperature, and how far the two are apart at each layer. Knows the slider and
   the part `softmax` of an answer of /dynamics. */

import { byId, svg } from "../shared/element.js";

const OFF = -8.25; // the slider is the logarithm of the temperature to base 2; its left end is no softmax
const HEIGHT = 40;

export class Softmax {
  /** `onTemperature()` hears that the slider was moved; `temperature` is null while nothing is compared. */
  constructor(onTemperature) {
    Object.assign(this, { temperature: null, found: null, at: 0 });
    this.line = svg("polyline", { "vector-effect": "non-scaling-stroke" });
    this.mark = svg("line", { y1: 0, y2: HEIGHT, "vector-effect": "non-scaling-stroke" });
    const box = { viewBox: `0 0 100 ${HEIGHT}`, preserveAspectRatio: "none" };
    this.picture = svg("svg", { ...box, "aria-hidden": "true" }, this.line, this.mark);
    byId("softmax-curve").append(this.picture);
    byId("softmax").addEventListener("input", ({ target }) => {
      this.use(Number(target.value) > OFF ? 2 ** Number(target.value) : null);
      onTemperature();
    });
    this.use(null);
  }

  use(temperature) {
    this.temperature = temperature > 0 ? Number(temperature.toPrecision(3)) : null;
    const slider = byId("softmax");
    slider.value = this.temperature ? Math.log2(this.temperature) : OFF;
    slider.style.setProperty("--done", (slider.value - OFF) / (slider.max - OFF));
    byId("softmax-value").textContent = this.temperature ?? "off (hardmax alone)";
    this.show(null);
  }

  /** `found` is null while there is none. */
  show(found) {
    this.found = found;
    byId("softmax-curve").hidden = !found;
    if (found) {
      const [last, top] = [Math.max(1, found.distance.length - 1), Math.max(...found.distance) || 1];
      const ends = found.distance.map((d, k) => `${(100 * k) / last},${HEIGHT - 2 - (HEIGHT - 4) * (d / top)}`);
      this.line.setAttribute("points", ends.join(" "));
    }
    this.moveTo(this.at);
  }

  /** Says how far the farthest point is from its hardmax run at the layer before the moment t. */
  moveTo(t) {
    this.at = t;
    const { found } = this;
    const say = byId("softmax-distance");
    if (!found) {
      say.textContent = this.temperature ? "\u2026" : "Move the slider to run softmax attention from the same points.";
      return;
    }
    const last = found.distance.length - 1;
    const k = Math.min(Math.floor(t + 1e-9), last);
    const x = (100 * Math.min(t, last)) / Math.max(1, last);
    for (const end of ["x1", "x2"]) this.mark.setAttribute(end, x);
    const far = (layer) => Number(found.distance[layer].toPrecision(3));
    const both = [k, last].map((layer) => `${far(layer)} at layer ${found.layers[layer]}`);
    say.textContent = `Circles: softmax attention. Largest distance from hardmax: ${both.join(", ")}.`;
  }
}
