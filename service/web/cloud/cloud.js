/* The Cloud view: holds the points and the parameters, runs them (POST /dynamics), and updates the plot, the controls
   and the result. */

import { LatestRequest, formatError } from "../shared/api.js";
import { CanvasInput } from "./canvas_input.js";
import { Ellipse } from "./ellipse.js";
import { announce, byId, prefersReducedMotion, el, plural, showError } from "../shared/element.js";
import { Trajectory, flattenRows } from "./trajectory.js";
import { listenForPoints } from "./point_input.js";
import { CloudPlot } from "./cloud_plot.js";
import { matrixToShape, shapeToMatrix } from "./matrix.js";
import { describeStatus, showBadge, showResult } from "./result_panel.js";
import { UndoHistory } from "./undo_history.js";
import { Figure, addExportButtons } from "../shared/figure.js";
import { Player } from "../shared/player.js";
import { PRESETS } from "./presets.js";
import { SoftmaxComparison } from "./softmax.js";
import { Camera } from "./camera.js";
import { explainPoint, formatExplanation } from "./explanation.js";
import { LeaderControl } from "./control.js";
import { formatLinkValues, isLinkable, parseLinkValues } from "./link_values.js";

const EDIT_DELAY_MS = 40;
const MAX_LISTED_POINTS = 2000;
const MAX_LAYERS = 400; // certified clouds need far fewer; one that converges to a tie may need more
const SPACE_FIT = 1.2; // visible half width in space, in half sides of the cube around the cloud: corners may be cut

export class Cloud {
  /** `loadInfo()` resolves to the answer of /info; `onChange()` is called when the link changes. */
  constructor(api, loadInfo, onChange) {
    Object.assign(this, {
      api,
      loadInfo,
      onChange,
      latestRequest: new LatestRequest(EDIT_DELAY_MS),
      points: [],
      alpha: 0.5,
      preset: null,
      seed: 1,
      lastTime: 0,
      history: new UndoHistory(byId("undo")),
      hovered: null,
      camera: new Camera(),
    });
    this.plot = new CloudPlot(this.camera);
    this.trajectory = new Trajectory([], null, this.camera);
    this.plot.setTrajectory(this.trajectory);
    this.figure = new Figure(byId("cloud-canvas"), (painter) => this.plot.draw(painter));
    this.player = new Player(byId("cloud-player"), "the cloud", {
      onTime: (t) => this.showTime(t),
      describe: (t) => this.describeTime(t),
    });
    this.ellipse = new Ellipse(byId("ellipse"), {
      onBeforeChange: () => this.saveState("matrix"),
      onChange: () => this.run(),
    });
    this.input = new CanvasInput(byId("cloud-canvas"), this.plot, this.inputActions());
    this.softmax = new SoftmaxComparison(() => this.run());
    this.control = new LeaderControl(api, this);
    this.addListeners();
  }

  addListeners() {
    byId("alpha").addEventListener("input", (event) => this.changeAlpha(2 ** Number(event.target.value)));
    byId("undo").addEventListener("click", () => this.undo());
    document.addEventListener("keydown", (event) => {
      const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z";
      if (!isUndo || byId("view-cloud").hidden || event.target.matches("textarea")) return;
      event.preventDefault();
      this.undo();
    });
    byId("presets").append(...Object.keys(PRESETS).map((name) => this.createPresetButton(name)));
    listenForPoints((read) => this.readPoints(read));
    const size = () => ({ width: this.figure.width, height: this.figure.height });
    addExportButtons(byId("cloud-export"), "cloud", size, (painter) => this.plot.draw(painter));
  }

  createPresetButton(name) {
    return el(
      "button",
      {
        type: "button",
        class: "chip",
        "data-preset": name,
        "aria-pressed": "false",
        onclick: () => this.choosePreset(name),
      },
      PRESETS[name].title,
    );
  }

  /** The actions of CanvasInput. */
  inputActions() {
    return {
      tool: () => document.querySelector("#tools input:checked").value,
      addPoint: (x, y) => this.addPoint(x, y),
      movePoint: (i, x, y) => this.editPoints(`move ${i}`, (points) => (points[i] = [x, y])),
      nudgePoint: (i, dx, dy) =>
        this.editPoints(`move ${i}`, (points) => {
          points[i] = [points[i][0] + dx, points[i][1] + dy].map((x) => Number(x.toFixed(6)));
        }),
      removePoint: (i) => this.removePoint(i),
      toggleMark: (i) => this.control.toggleMark(i),
      selectPoint: (i) => this.selectPoint(i),
      selectNext: (step) => this.selectNext(step),
      hoverPoint: (i) => this.hoverPoint(i),
      rotate: (yaw, pitch) => this.rotate(yaw, pitch),
      togglePlay: () => this.player.toggle(),
      redraw: () => this.figure.redraw(),
    };
  }

  /** Applies `edit(points)` to a copy of the points, goes to layer 0 and runs the cloud. Returns the result of
      `edit`. */
  editPoints(kind, edit) {
    if (kind !== "remove" && this.points.some((row) => row.length !== 2)) {
      showError(byId("cloud-error"), "Points can be added and moved only if they have two coordinates.");
      return null;
    }
    this.saveState(kind);
    this.control.discardAnswer();
    this.points = [...this.points]; // trajectories and the undo history refer to the array before the edit
    const result = edit(this.points);
    this.preset = null;
    const answer = this.points.length >= this.trajectory.n ? removeTrajectory(this.trajectory.answer) : null;
    this.showTrajectory(new Trajectory(this.points, answer, this.camera), 0);
    this.run();
    return result;
  }

  addPoint(x, y) {
    const i = this.editPoints("add", (points) => points.push([x, y]) - 1);
    this.history.continueWith(`move ${i}`); // one undo removes a point that was dragged after it was added
    return i;
  }

  removePoint(i) {
    this.selectPoint(null);
    this.control.clearMarks();
    this.editPoints("remove", (points) => points.splice(i, 1));
    announce(`Point ${i} removed, ${this.points.length} left`);
  }

  saveState(kind) {
    const { points, preset, seed, alpha } = this;
    const { stretch, turn } = this.ellipse;
    const { centre, reach } = this.plot.view;
    this.history.push(kind, { points, preset, seed, alpha, stretch, turn, centre, reach });
  }

  undo() {
    const state = this.history.pop();
    if (!state) return undefined;
    const { points, preset, seed, alpha, stretch, turn, centre, reach } = state;
    Object.assign(this, { points, preset, seed });
    Object.assign(this.plot.view, { centre, reach });
    this.plot.selected = this.hovered = null;
    this.control.clearMarks();
    this.setAlpha(alpha);
    this.ellipse.setShape({ stretch, turn });
    this.showTrajectory(new Trajectory(points, null, this.camera), 0);
    announce("Undone");
    return this.run();
  }

  selectPoint(i) {
    this.plot.selected = i;
    this.updateExplanation();
  }

  /** Selects the next point, or the previous one for step -1, and announces it. */
  selectNext(step) {
    const n = this.points.length;
    if (!n) return;
    const i = ((this.plot.selected ?? (step > 0 ? -1 : 0)) + step + n) % n;
    this.selectPoint(i);
    announce(`Point ${i} at ${this.points[i].slice(0, 2).join(", ")}. ${byId("explanation").textContent}`);
  }

  hoverPoint(i) {
    if (i === this.hovered) return;
    this.hovered = i;
    this.updateExplanation();
  }

  rotate(yaw, pitch) {
    this.camera.rotate(yaw, pitch);
    this.trajectory.project(this.camera);
    this.figure.redraw();
    this.onChange();
  }

  /** Explains the hovered or else the selected point, in the plot and as text. */
  updateExplanation() {
    const { plot, trajectory } = this;
    const i = this.hovered ?? plot.selected;
    const t = Math.min(plot.t, trajectory.layers);
    const A = trajectory.points[0]?.length === 2 ? shapeToMatrix(this.ellipse) : null;
    const explanation =
      i !== null && i < trajectory.n
        ? explainPoint(i, trajectory.n, trajectory.pointsAt(t), A, trajectory.targetAt(i, t))
        : null;
    Object.assign(plot, { explanation, alpha: this.alpha });
    byId("explanation").textContent = explanation ? formatExplanation(explanation, this.alpha) : "";
    this.figure.redraw();
  }

  /** Loads a preset. A seeded one that is loaded already gets the next seed. */
  choosePreset(name) {
    const { alpha, points, seeded } = PRESETS[name];
    this.saveState("load");
    if (this.preset === name && seeded) this.seed += 1;
    this.setAlpha(alpha);
    this.ellipse.setShape({ stretch: 1, turn: 0 });
    this.loadPoints(points(this.seed), name);
  }

  /** Replaces the points, fits the view, and plays the trajectory once. */
  loadPoints(points, preset = null) {
    this.points = points;
    this.preset = preset;
    this.plot.selected = this.hovered = null;
    this.control.clearMarks();
    this.showTrajectory(new Trajectory(points, null, this.camera), 0);
    const reach = this.plot.extent * SPACE_FIT;
    const visible = this.inSpace ? [reach, reach, -reach, -reach] : flattenRows(points, 2);
    this.plot.view.fit(visible, { minReach: 1 });
    return this.run({ replay: true });
  }

  get inSpace() {
    return this.trajectory.stride === 3;
  }

  /** Loads the points that `read()` resolves to, or shows why it failed. */
  async readPoints(read) {
    try {
      const points = await read();
      this.saveState("load");
      await this.loadPoints(points);
      announce(`${plural(this.points.length, "point")} loaded`);
    } catch (error) {
      showError(byId("cloud-error"), `These points cannot be read: ${error.message}.`);
    }
  }

  changeAlpha(alpha) {
    this.saveState("alpha");
    this.setAlpha(alpha);
    this.run();
  }

  setAlpha(alpha) {
    this.alpha = Number(alpha.toPrecision(3));
    const slider = byId("alpha");
    slider.value = Math.log2(alpha);
    slider.style.setProperty("--done", (Math.log2(alpha) + 5) / 10);
    const percent = Math.round((100 * alpha) / (1 + alpha));
    byId("alpha-value").textContent = `${this.alpha}: ${percent} % of the way`;
  }

  /** Changes A to a matrix that /control found. */
  useMatrix(A) {
    this.saveState("control");
    this.ellipse.setShape(matrixToShape(A));
    return this.run();
  }

  /** Returns the body of the request to /dynamics, without max_layers. */
  request() {
    const inPlane = this.points.every((row) => row.length === 2);
    const { temperature } = this.softmax;
    const include = ["assignment", "limits", "trajectory", "polytope", ...(temperature ? ["softmax"] : [])];
    const A = inPlane ? shapeToMatrix(this.ellipse) : null;
    return { points: this.points, alpha: this.alpha, A, include, temperature };
  }

  async sendRequest(signal) {
    const { limits } = await this.loadInfo();
    const max_layers = Math.min(MAX_LAYERS, limits.max_layers);
    return this.api.post("/dynamics", { ...this.request(), max_layers }, signal);
  }

  /** Runs the cloud after a change and shows its result; `replay` plays the trajectory from layer 0. */
  async run({ replay = false } = {}) {
    this.showPoints();
    this.onChange();
    showError(byId("cloud-error"), null);
    if (!this.points.length) {
      this.latestRequest.stop();
      return this.showTrajectory(new Trajectory([], null, this.camera), 0);
    }
    const { points } = this;
    try {
      const answer = await this.latestRequest.run((signal) => this.sendRequest(signal));
      return answer && this.showAnswer(points, answer, replay);
    } catch (error) {
      return this.showFailure(error);
    }
  }

  showAnswer(points, answer, replay) {
    const t = replay ? 0 : Math.min(this.player.t, this.trajectory.layers);
    this.showTrajectory(new Trajectory(points, answer, this.camera), t);
    announce(describeStatus(answer).title);
    if (replay && !prefersReducedMotion()) this.player.play();
    return answer;
  }

  showFailure(error) {
    showBadge(byId("cloud-badge"), null);
    showResult(null, new Trajectory([], null, this.camera));
    byId("result").textContent = "These points have not been run.";
    showError(byId("cloud-error"), formatError(error));
  }

  /** Shows a trajectory at time t: the plot, the player and, unless its answer is incomplete, the result. */
  showTrajectory(trajectory, t) {
    this.trajectory = trajectory;
    this.plot.setTrajectory(trajectory);
    const { answer, certifiedLayer } = trajectory;
    byId("view-cloud").classList.toggle("space", this.inSpace);
    const marks =
      certifiedLayer === null ? [] : [{ layer: certifiedLayer, title: `certified at layer ${certifiedLayer}` }];
    this.player.load(answer?.trajectory ? trajectory.layers : 0, { at: t, marks });
    this.softmax.showResult(answer?.softmax ?? null);
    this.updateExplanation();
    if (answer && !answer.trajectory) return;
    showBadge(byId("cloud-badge"), answer);
    showResult(trajectory.n ? answer : null, trajectory);
  }

  /** Shows the preset and the points as text, unless the text is being edited. */
  showPoints() {
    for (const button of byId("presets").children)
      button.setAttribute("aria-pressed", String(button.dataset.preset === this.preset));
    const textarea = byId("points");
    if (document.activeElement === textarea) return;
    textarea.value =
      this.points.length > MAX_LISTED_POINTS
        ? `# ${this.points.length} points: too many to list`
        : this.points.map((row) => row.join(", ")).join("\n");
  }

  describeTime(t) {
    const { certifiedLayer } = this.trajectory;
    const layer = `layer ${Number(t.toFixed(1))}`;
    return certifiedLayer !== null && t > certifiedLayer ? `${layer}, closed form` : layer;
  }

  showTime(t) {
    this.plot.t = t;
    this.softmax.showTime(t);
    for (const { index, layer } of this.trajectory.emergingLeaders)
      if (this.lastTime < layer && t >= layer) announce(`Point ${index} becomes a leader at layer ${layer}`);
    this.lastTime = t;
    this.updateExplanation();
  }

  /** The values of the address, and a note on what they leave out. */
  link() {
    const note = isLinkable(this) ? null : "without the points, which are too many for a link";
    return { values: formatLinkValues(this), note };
  }

  /** Opens the view with the values of a link. */
  open(values) {
    const { preset, seed, points, alpha, shape, temperature, camera } = parseLinkValues(values);
    Object.assign(this.camera, camera);
    this.seed = seed;
    this.setAlpha(alpha);
    this.ellipse.setShape(shape);
    this.softmax.setTemperature(temperature);
    return this.loadPoints(points, preset);
  }

  repaint() {
    this.figure.redraw();
  }
}

const NO_TRAJECTORY = { trajectory: null, limits: null, polytope: null, softmax: null, certified_layer: null };

/** Returns an answer with only its clusters and the leaders of layer 0, to be shown until the next one arrives. */
function removeTrajectory(answer) {
  const leaders = answer?.leaders.filter(({ since_layer }) => since_layer === 0);
  return answer && { ...answer, leaders, ...NO_TRAJECTORY };
}
