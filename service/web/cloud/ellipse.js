/* A as an ellipse with a tip to drag, and the same as two sliders. Knows the shape of A, not its use. */

import { byId, svg } from "../shared/element.js";

const HALF = 64;
const UNIT = 26; // pixels of the unit circle's radius
const LARGEST = 32;

export class Ellipse {
  /** `before()` and `onShape({stretch, turn})` hear every change made by hand. */
  constructor(host, { before, onShape }) {
    Object.assign(this, { before, onShape, stretch: 1, turn: 0 });
    this.shape = svg("ellipse", { class: "shape" });
    this.grip = svg("circle", { class: "grip", r: 8 });
    const box = `${-HALF} ${-HALF} ${2 * HALF} ${2 * HALF}`;
    const circle = svg("circle", { class: "circle", r: UNIT });
    this.picture = svg("svg", { viewBox: box, "aria-hidden": "true" }, circle, this.shape, this.grip);
    host.append(this.picture);
    this.listen();
    this.show({ stretch: 1, turn: 0 });
  }

  listen() {
    this.picture.addEventListener("pointerdown", (event) => {
      this.picture.setPointerCapture(event.pointerId);
      this.drag(event);
    });
    this.picture.addEventListener("pointermove", (event) => event.buttons && this.drag(event));
    byId("stretch").addEventListener("input", (event) =>
      this.change({ stretch: 2 ** Number(event.target.value), turn: this.turn }),
    );
    byId("turn").addEventListener("input", (event) =>
      this.change({ stretch: this.stretch, turn: Number(event.target.value) }),
    );
  }

  drag(event) {
    const box = this.picture.getBoundingClientRect();
    const scale = (2 * HALF) / box.width;
    const x = (event.clientX - box.left) * scale - HALF;
    const y = HALF - (event.clientY - box.top) * scale;
    const stretch = Math.min(LARGEST, Math.max(1, (Math.hypot(x, y) / UNIT) ** 2));
    const turn = ((Math.atan2(y, x) * 180) / Math.PI + 180) % 180;
    this.change({ stretch: stretch < 1.15 ? 1 : stretch, turn: Math.round(turn) });
  }

  change(shape) {
    this.before();
    this.show(shape);
    this.onShape(shape);
  }

  show({ stretch, turn }) {
    Object.assign(this, { stretch, turn });
    const long = Math.min(HALF - 4, UNIT * Math.sqrt(stretch));
    const short = UNIT / Math.sqrt(stretch);
    const [c, s] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
    this.shape.setAttribute("rx", long);
    this.shape.setAttribute("ry", short);
    this.shape.setAttribute("transform", `rotate(${-turn})`);
    this.grip.setAttribute("cx", long * c);
    this.grip.setAttribute("cy", -long * s);
    byId("stretch").value = Math.log2(stretch);
    byId("turn").value = turn;
    byId("stretch-value").textContent = stretch === 1 ? "none (A = I)" : `${stretch.toFixed(1)} to 1`;
    byId("turn-value").textContent = `${Math.round(turn)}\u00b0`;
    this.fill();
  }

  fill() {
    for (const id of ["stretch", "turn"]) {
      const input = byId(id);
      input.style.setProperty("--done", (input.value - input.min) / (input.max - input.min));
    }
  }
}
