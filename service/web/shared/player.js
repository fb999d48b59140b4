/* Play, pause and slide through layers. Time is a number of layers and may lie between two. */

import { prefersReducedMotion, el } from "./element.js";

const LAYER_MS = 900;
const LONGEST_MS = 9000;

export class Player {
  /** `onTime(t)` draws the moment t; `describe(t)` is its sentence. */
  constructor(host, name, { onTime, describe }) {
    Object.assign(this, { onTime, describe, duration: 0, t: 0, frame: null });
    this.button = el("button", {
      type: "button",
      class: "play",
      "aria-label": `Play ${name}`,
      onclick: () => this.toggle(),
    });
    const range = { type: "range", min: 0, max: 0, step: 0.01, value: 0, "aria-label": `Layer of ${name}` };
    this.slider = el("input", { ...range, oninput: () => this.seek(Number(this.slider.value), true) });
    this.slider.addEventListener("keydown", (event) => this.onKey(event));
    this.ticks = el("div", { class: "ticks", "aria-hidden": "true" });
    this.label = el("span", { class: "when" }); // the slider says the same to screen readers
    this.name = name;
    host.append(this.button, el("div", { class: "rail" }, this.slider, this.ticks), this.label);
    this.show();
  }

  /** A new trajectory of so many layers; `marks` are {layer, title} on the rail. */
  load(duration, { at = duration, marks = [] } = {}) {
    this.pause();
    this.duration = duration;
    this.slider.max = duration;
    this.button.disabled = this.slider.disabled = duration === 0;
    this.ticks.replaceChildren(
      ...marks.map(({ layer, title }) =>
        el("i", { title, vars: { "--at": duration ? layer / duration : 0 } }),
      ),
    );
    this.seek(Math.min(at, duration));
  }

  seek(t, byHand = false) {
    if (byHand) this.pause();
    this.t = Math.max(0, Math.min(this.duration, t));
    this.show();
    this.onTime(this.t);
  }

  toggle() {
    if (this.frame !== null) this.pause();
    else this.play();
  }

  play() {
    if (!this.duration) return;
    if (this.t >= this.duration) this.seek(0);
    if (prefersReducedMotion()) return this.stepOn();
    const each_ms = Math.min(LAYER_MS, LONGEST_MS / this.duration);
    const [start, from] = [performance.now(), this.t];
    const tick = (now) => {
      this.seek(from + Math.max(0, now - start) / each_ms);
      this.frame = this.t < this.duration ? requestAnimationFrame(tick) : null;
      this.show();
    };
    this.frame = requestAnimationFrame(tick);
    this.show();
  }

  /** Without motion, a press of play goes on to the next whole layer. */
  stepOn() {
    this.seek(Math.floor(this.t) + 1);
  }

  pause() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.show();
  }

  /** The arrow keys go from layer to layer, not by hundredths. */
  onKey(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.seek(step > 0 ? Math.floor(this.t + 1e-9) + 1 : Math.ceil(this.t - 1e-9) - 1, true);
  }

  show() {
    const playing = this.frame !== null;
    this.button.classList.toggle("playing", playing);
    this.button.setAttribute("aria-label", `${playing ? "Pause" : "Play"} ${this.name}`);
    this.slider.value = this.t;
    this.slider.style.setProperty("--done", this.duration ? this.t / this.duration : 0);
    const words = this.describe(this.t);
    this.label.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
  }
}
