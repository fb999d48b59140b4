/* Hands on the cloud: pointer, wheel and keys become placed, moved, removed and marked points, and turns in space.
   Knows where points stand on the picture; not what happens to them afterwards. */

const POINTER_RADIUS = 14; // pixels
const FINGER_RADIUS = 24;
const TURN = 0.008; // radians a pixel
const KEY_TURN = Math.PI / 36;

export class Board {
  /** `acts`: place(x, y), move(i, x, y), remove(i), mark(i), select(i), look(i or null), turn(yaw, pitch),
      play(), zoom(); `tool()` is the present one. */
  constructor(canvas, landscape, acts) {
    Object.assign(this, { canvas, landscape, acts, held: null, tap: null, turning: null });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.drop());
    canvas.addEventListener("pointerleave", () => this.acts.look(null));
    // A finger on a point moves the point; anywhere else it scrolls the page.
    canvas.addEventListener("touchstart", (event) => this.touch(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("contextmenu", (event) => this.menu(event));
  }

  /** A cloud of more than two coordinates is turned; its points stay where they are. */
  get inSpace() {
    return this.landscape.trajectory.stride === 3;
  }

  pixelOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** The point under the pointer, the nearest if several, leaders before others, as the picture shows them now. */
  nearest(px, py, reach = POINTER_RADIUS) {
    const { view, trajectory, t } = this.landscape;
    const positions = trajectory.at(t);
    let [best, found] = [reach ** 2, null];
    for (let i = 0; i < trajectory.n; i += 1) {
      const away = (view.x(positions[2 * i]) - px) ** 2 + (view.y(positions[2 * i + 1]) - py) ** 2;
      if (away < best || (away <= best + 4 && trajectory.since.has(i))) [best, found] = [away, i];
    }
    return found;
  }

  world(px, py) {
    const { view } = this.landscape;
    return view.world(px, py).map((x) => Number(x.toFixed(view.decimals)));
  }

  touch(event) {
    const box = this.canvas.getBoundingClientRect();
    const { clientX, clientY } = event.touches[0];
    const onPoint =
      !this.inSpace && this.nearest(clientX - box.left, clientY - box.top, FINGER_RADIUS) !== null;
    if (onPoint && this.acts.tool() === "place") event.preventDefault();
  }

  down(event) {
    if (event.button !== 0) return;
    const finger = event.pointerType === "touch";
    const [px, py] = this.pixelOf(event);
    const i = this.nearest(px, py, finger ? FINGER_RADIUS : POINTER_RADIUS);
    const tool = this.acts.tool();
    if (tool === "remove") return void (i !== null && this.acts.remove(i));
    if (tool === "mark") return void (i !== null && this.acts.mark(i));
    if (this.inSpace) {
      if (i !== null) this.acts.select(i);
      this.turning = [px, py];
      this.canvas.setPointerCapture(event.pointerId);
      return void this.canvas.classList.add("held");
    }
    if (finger && i === null) return void (this.tap = [px, py]); // placed when the finger leaves, unless it scrolls
    this.canvas.setPointerCapture(event.pointerId);
    this.held = i ?? this.acts.place(...this.world(px, py));
    this.canvas.classList.add("held");
    this.acts.select(this.held);
  }

  hover(event) {
    const [px, py] = this.pixelOf(event);
    if (this.turning) {
      const [x, y] = this.turning;
      this.turning = [px, py];
      return this.acts.turn((x - px) * TURN, (py - y) * TURN);
    }
    if (this.held !== null) return this.acts.move(this.held, ...this.world(px, py));
    if (event.pointerType === "touch") return undefined;
    const i = this.nearest(px, py);
    this.canvas.classList.toggle("over", i !== null);
    return this.acts.look(i);
  }

  up(event) {
    if (this.tap) this.acts.select(this.acts.place(...this.world(...this.pixelOf(event))));
    this.drop();
  }

  drop() {
    Object.assign(this, { held: null, tap: null, turning: null });
    this.canvas.classList.remove("held");
  }

  /** The other button removes. */
  menu(event) {
    event.preventDefault();
    const i = this.nearest(...this.pixelOf(event));
    if (i !== null) this.acts.remove(i);
  }

  /** The page still scrolls over the picture; with Ctrl (a pinch is the same) the picture zooms. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.landscape.view.zoom(Math.exp(-event.deltaY * 0.004), ...this.pixelOf(event));
    this.acts.zoom();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.keys(event)[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  keys({ shiftKey }) {
    const { acts, landscape } = this;
    const chosen = landscape.selected;
    const has = (act) => () => chosen !== null && act();
    const step = landscape.view.step / (shiftKey ? 2 : 10);
    const by = this.inSpace
      ? (dx, dy) => () => acts.turn(-dx * KEY_TURN, -dy * KEY_TURN)
      : (dx, dy) => has(() => acts.nudge(chosen, dx * step, dy * step));
    const add = () =>
      acts.select(acts.place(...landscape.view.centre.map((x) => Number(x.toFixed(2)) + 0.25)));
    const remove = has(() => acts.remove(chosen));
    const moves = { ArrowLeft: by(-1, 0), ArrowRight: by(1, 0), ArrowUp: by(0, 1), ArrowDown: by(0, -1) };
    const choose = { ",": () => acts.choose(-1), ".": () => acts.choose(1), w: has(() => acts.mark(chosen)) };
    return {
      ...moves,
      ...choose,
      n: add,
      N: add,
      W: choose.w,
      Delete: remove,
      Backspace: remove,
      " ": () => acts.play(),
    };
  }
}
