/* Input of the matrix A: an ellipse with a handle to drag, and two sliders for the same values. */

import { byId, svg } from "../shared/element.js";

const HALF_SIZE = 64; // of the image, in pixels
const UNIT_RADIUS = 26; // pixels
const MAX_STRETCH = 32;
const SNAP_STRETCH = 1.15; // below it, dragging gives a circle

export class Ellipse {
  /** `onBeforeChange()` and `onChange()` are called before and after each change by the user. The shape of A is
      `stretch` and `turn`, as in matrix.js. */
  constructor(host, { onBeforeChange, onChange }) {
    Object.assign(this, { onBeforeChange, onChange, stretch: 1, turn: 0 });
    this.shape = svg("ellipse", { class: "shape" });
    this.handle = svg("circle", { class: "handle", r: 8 });
    const viewBox = `${-HALF_SIZE} ${-HALF_SIZE} ${2 * HALF_SIZE} ${2 * HALF_SIZE}`;
    const circle = svg("circle", { class: "circle", r: UNIT_RADIUS });
    this.image = svg("svg", { viewBox, "aria-hidden": "true" }, circle, this.shape, this.handle);
    host.append(this.image);
    this.addListeners();
    this.setShape({ stretch: 1, turn: 0 });
  }

  addListeners() {
    this.image.addEventListener("pointerdown", (event) => {
      this.image.setPointerCapture(event.pointerId);
      this.drag(event);
    });
    this.image.addEventListener("pointermove", (event) => event.buttons && this.drag(event));
    byId("stretch").addEventListener("input", (event) =>
      this.changeShape({ stretch: 2 ** Number(event.target.value), turn: this.turn }),
    );
    byId("turn").addEventListener("input", (event) =>
      this.changeShape({ stretch: this.stretch, turn: Number(event.target.value) }),
    );
  }

  drag(event) {
    const box = this.image.getBoundingClientRect();
    const scale = (2 * HALF_SIZE) / box.width;
    const x = (event.clientX - box.left) * scale - HALF_SIZE;
    const y = HALF_SIZE - (event.clientY - box.top) * scale;
    const stretch = Math.min(MAX_STRETCH, Math.max(1, (Math.hypot(x, y) / UNIT_RADIUS) ** 2));
    const turn = ((Math.atan2(y, x) * 180) / Math.PI + 180) % 180;
    this.changeShape({ stretch: stretch < SNAP_STRETCH ? 1 : stretch, turn: Math.round(turn) });
  }

  changeShape(shape) {
    this.onBeforeChange();
    this.setShape(shape);
    this.onChange();
  }

  setShape({ stretch, turn }) {
    Object.assign(this, { stretch, turn });
    const rx = Math.min(HALF_SIZE - 4, UNIT_RADIUS * Math.sqrt(stretch));
    const ry = UNIT_RADIUS / Math.sqrt(stretch);
    const [c, s] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
    this.shape.setAttribute("rx", rx);
    this.shape.setAttribute("ry", ry);
    this.shape.setAttribute("transform", `rotate(${-turn})`);
    this.handle.setAttribute("cx", rx * c);
    this.handle.setAttribute("cy", -rx * s);
    byId("stretch").value = Math.log2(stretch);
    byId("turn").value = turn;
    byId("stretch-value").textContent = stretch === 1 ? "none (A = I)" : `${stretch.toFixed(1)} to 1`;
    byId("turn-value").textContent = `${Math.round(turn)}\u00b0`;
    this.updateSliderTracks();
  }

  updateSliderTracks() {
    for (const id of ["stretch", "turn"]) {
      const input = byId(id);
      input.style.setProperty("--done", (input.value - input.min) / (input.max - input.min));
    }
  }
}
