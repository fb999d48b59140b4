/* Playback controls for a trajectory: play button, slider and label. Time is measured in layers and is fractional. */

import { prefersReducedMotion, el } from "./element.js";

const LAYER_MS = 900; // shorter if the whole trajectory would exceed MAX_DURATION_MS
const MAX_DURATION_MS = 9000;

export class Player {
  /** `onTime(t)` is called when the time changes; `describe(t)` returns the text of the label. */
  constructor(container, name, { onTime, describe }) {
    Object.assign(this, { onTime, describe, duration: 0, t: 0, frame: null });
    this.button = el("button", {
      type: "button",
      class: "play",
      "aria-label": `Play ${name}`,
      onclick: () => this.toggle(),
    });
    const range = { type: "range", min: 0, max: 0, step: 0.01, value: 0, "aria-label": `Layer of ${name}` };
    this.slider = el("input", { ...range, oninput: () => this.seek(Number(this.slider.value), true) });
    this.slider.addEventListener("keydown", (event) => this.onKeyDown(event));
    this.ticks = el("div", { class: "ticks", "aria-hidden": "true" });
    this.label = el("span", { class: "player-time" }); // for screen readers, the slider has aria-valuetext
    this.name = name;
    container.append(this.button, el("div", { class: "player-track" }, this.slider, this.ticks), this.label);
    this.show();
  }

  /** Loads a trajectory of `duration` layers and goes to layer `at`; `marks` are {layer, title} on the slider. */
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

  seek(t, fromUser = false) {
    if (fromUser) this.pause();
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
    if (prefersReducedMotion()) return this.stepForward();
    const layerMs = Math.min(LAYER_MS, MAX_DURATION_MS / this.duration);
    const [startMs, startLayer] = [performance.now(), this.t];
    const tick = (now) => {
      this.seek(startLayer + Math.max(0, now - startMs) / layerMs);
      this.frame = this.t < this.duration ? requestAnimationFrame(tick) : null;
      this.show();
    };
    this.frame = requestAnimationFrame(tick);
    this.show();
  }

  /** With reduced motion, the play button goes to the next whole layer. */
  stepForward() {
    this.seek(Math.floor(this.t) + 1);
  }

  pause() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.show();
  }

  /** Arrow keys move by whole layers, instead of the step of the slider. */
  onKeyDown(event) {
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
    const text = this.describe(this.t);
    this.label.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }
}
