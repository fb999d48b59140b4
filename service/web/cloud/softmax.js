/* Comparison of softmax with hardmax attention: the temperature slider, and a chart of the distance between the two at
   each layer, from `softmax` in the answer of /dynamics. */

import { byId, svg } from "../shared/element.js";

const SLIDER_OFF = -8.25; // the slider is log2 of the temperature; its left end turns the comparison off
const CHART_HEIGHT = 40;

export class SoftmaxComparison {
  /** `onChange()` is called when the slider moves. `temperature` is null while the comparison is off. */
  constructor(onChange) {
    Object.assign(this, { temperature: null, result: null, t: 0 });
    this.line = svg("polyline", { "vector-effect": "non-scaling-stroke" });
    this.cursor = svg("line", { y1: 0, y2: CHART_HEIGHT, "vector-effect": "non-scaling-stroke" });
    const attributes = { viewBox: `0 0 100 ${CHART_HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    byId("softmax-curve").append(svg("svg", attributes, this.line, this.cursor));
    byId("softmax").addEventListener("input", ({ target }) => {
      this.setTemperature(Number(target.value) > SLIDER_OFF ? 2 ** Number(target.value) : null);
      onChange();
    });
    this.setTemperature(null);
  }

  /** Sets the temperature and the slider; null or 0 turns the comparison off. */
  setTemperature(temperature) {
    this.temperature = temperature > 0 ? Number(temperature.toPrecision(3)) : null;
    const slider = byId("softmax");
    slider.value = this.temperature ? Math.log2(this.temperature) : SLIDER_OFF;
    slider.style.setProperty("--done", (slider.value - SLIDER_OFF) / (slider.max - SLIDER_OFF));
    byId("softmax-value").textContent = this.temperature ?? "off (hardmax only)";
    this.showResult(null);
  }

  /** Draws the chart of `result` ({layers, distance}), or hides it for null. */
  showResult(result) {
    this.result = result;
    byId("softmax-curve").hidden = !result;
    if (result) {
      const [last, max] = [Math.max(1, result.distance.length - 1), Math.max(...result.distance) || 1];
      const y = (distance) => CHART_HEIGHT - 2 - (CHART_HEIGHT - 4) * (distance / max);
      const points = result.distance.map((distance, k) => `${(100 * k) / last},${y(distance)}`);
      this.line.setAttribute("points", points.join(" "));
    }
    this.showTime(this.t);
  }

  /** Moves the cursor to time t and prints the distances at that layer and at the last one. */
  showTime(t) {
    this.t = t;
    const { result } = this;
    const output = byId("softmax-distance");
    if (!result) {
      const hint = "Move the slider to run softmax attention from the same points.";
      output.textContent = this.temperature ? "\u2026" : hint;
      return;
    }
    const last = result.distance.length - 1;
    const k = Math.min(Math.floor(t + 1e-9), last);
    const x = (100 * Math.min(t, last)) / Math.max(1, last);
    for (const name of ["x1", "x2"]) this.cursor.setAttribute(name, x);
    const format = (index) => `${Number(result.distance[index].toPrecision(3))} at layer ${result.layers[index]}`;
    output.textContent = `Circles: softmax attention. Largest distance from hardmax: ${format(k)}, ${format(last)}.`;
  }
}
