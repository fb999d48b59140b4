/* Pointer, touch, wheel and keyboard input on the plot of the cloud. Calls an action for each; changes no points. */

const POINTER_RADIUS_PX = 14;
const TOUCH_RADIUS_PX = 24;
const LEADER_PREFERENCE_PX2 = 4; // of points at about the same distance, a leader is found
const ROTATION_PER_PX = 0.008; // radians
const ROTATION_PER_KEY = Math.PI / 36; // radians
const ZOOM_PER_WHEEL_PX = 0.004; // natural logarithm of the factor

export class CanvasInput {
  /** `actions`: tool() returns "add", "remove" or "mark"; addPoint(x, y) returns an index; movePoint(i, x, y),
      nudgePoint(i, dx, dy), removePoint(i), toggleMark(i), selectPoint(i), selectNext(step), hoverPoint(i or null),
      rotate(yaw, pitch), togglePlay(), redraw(). */
  constructor(canvas, plot, actions) {
    Object.assign(this, { canvas, plot, actions, draggedPoint: null, tapping: false, rotatingFrom: null });
    canvas.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    canvas.addEventListener("pointermove", (event) => this.onPointerMove(event));
    canvas.addEventListener("pointerup", (event) => this.onPointerUp(event));
    canvas.addEventListener("pointercancel", () => this.endGesture());
    canvas.addEventListener("pointerleave", () => this.actions.hoverPoint(null));
    canvas.addEventListener("touchstart", (event) => this.onTouchStart(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.onKeyDown(event));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("contextmenu", (event) => this.onContextMenu(event));
  }

  /** In space, dragging rotates the cloud and moves no point. */
  get inSpace() {
    return this.plot.trajectory.stride === 3;
  }

  toPixel({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  }

  /** Returns coordinates of the plane, rounded to what a pixel can distinguish. */
  toWorld(px, py) {
    const { view } = this.plot;
    return view.toWorld(px, py).map((x) => Number(x.toFixed(view.decimals)));
  }

  /** Returns the index of the point nearest to a pixel in the current frame, or null if none is within `radius`. */
  findPoint(px, py, radius = POINTER_RADIUS_PX) {
    const { view, trajectory, t } = this.plot;
    const positions = trajectory.positionsAt(t);
    let [best, nearest] = [radius ** 2, null];
    for (let i = 0; i < trajectory.n; i += 1) {
      const distance = (view.x(positions[2 * i]) - px) ** 2 + (view.y(positions[2 * i + 1]) - py) ** 2;
      if (distance < best || (distance <= best + LEADER_PREFERENCE_PX2 && trajectory.leaderSince.has(i)))
        [best, nearest] = [distance, i];
    }
    return nearest;
  }

  /** A touch that starts on a point drags it; elsewhere it scrolls the page. */
  onTouchStart(event) {
    const onPoint = !this.inSpace && this.findPoint(...this.toPixel(event.touches[0]), TOUCH_RADIUS_PX) !== null;
    if (onPoint && this.actions.tool() === "add") event.preventDefault();
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    const touch = event.pointerType === "touch";
    const [px, py] = this.toPixel(event);
    const i = this.findPoint(px, py, touch ? TOUCH_RADIUS_PX : POINTER_RADIUS_PX);
    const tool = this.actions.tool();
    if (tool !== "add") {
      if (i !== null && tool === "remove") this.actions.removePoint(i);
      if (i !== null && tool === "mark") this.actions.toggleMark(i);
    } else if (this.inSpace) {
      if (i !== null) this.actions.selectPoint(i);
      this.startGesture(event, { rotatingFrom: [px, py] });
    } else if (touch && i === null) {
      this.tapping = true; // adds a point on pointerup, unless the touch scrolls
    } else {
      this.startGesture(event, { draggedPoint: i ?? this.actions.addPoint(...this.toWorld(px, py)) });
      this.actions.selectPoint(this.draggedPoint);
    }
  }

  onPointerMove(event) {
    const [px, py] = this.toPixel(event);
    if (this.rotatingFrom) {
      const [x, y] = this.rotatingFrom;
      this.rotatingFrom = [px, py];
      this.actions.rotate((x - px) * ROTATION_PER_PX, (py - y) * ROTATION_PER_PX);
    } else if (this.draggedPoint !== null) {
      this.actions.movePoint(this.draggedPoint, ...this.toWorld(px, py));
    } else if (event.pointerType !== "touch") {
      const i = this.findPoint(px, py);
      this.canvas.classList.toggle("over-point", i !== null);
      this.actions.hoverPoint(i);
    }
  }

  onPointerUp(event) {
    if (this.tapping)
      this.actions.selectPoint(this.actions.addPoint(...this.toWorld(...this.toPixel(event))));
    this.endGesture();
  }

  startGesture(event, state) {
    Object.assign(this, state);
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.classList.add("dragging");
  }

  endGesture() {
    Object.assign(this, { draggedPoint: null, tapping: false, rotatingFrom: null });
    this.canvas.classList.remove("dragging");
  }

  /** A right click or a long press removes the point. */
  onContextMenu(event) {
    event.preventDefault();
    const i = this.findPoint(...this.toPixel(event));
    if (i !== null) this.actions.removePoint(i);
  }

  /** Ctrl and wheel zoom, as does a pinch, which browsers report in the same way; the wheel alone scrolls the page. */
  onWheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.plot.view.zoom(Math.exp(-event.deltaY * ZOOM_PER_WHEEL_PX), ...this.toPixel(event));
    this.actions.redraw();
  }

  onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const run = this.keyBindings(event)[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  }

  keyBindings({ shiftKey }) {
    const { actions, plot } = this;
    const { selected, view } = plot;
    const ifSelected = (action) => () => selected !== null && action();
    const step = view.step / (shiftKey ? 2 : 10);
    const move = this.inSpace
      ? (dx, dy) => () => actions.rotate(-dx * ROTATION_PER_KEY, -dy * ROTATION_PER_KEY)
      : (dx, dy) => ifSelected(() => actions.nudgePoint(selected, dx * step, dy * step));
    const add = () =>
      actions.selectPoint(actions.addPoint(...view.centre.map((x) => Number(x.toFixed(2)) + 0.25)));
    const remove = ifSelected(() => actions.removePoint(selected));
    const mark = ifSelected(() => actions.toggleMark(selected));
    return {
      ArrowLeft: move(-1, 0),
      ArrowRight: move(1, 0),
      ArrowUp: move(0, 1),
      ArrowDown: move(0, -1),
      ",": () => actions.selectNext(-1),
      ".": () => actions.selectNext(1),
      n: add,
      N: add,
      w: mark,
      W: mark,
      Delete: remove,
      Backspace: remove,
      " ": () => actions.togglePlay(),
    };
  }
}
