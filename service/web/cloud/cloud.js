/* Room 2: a cloud of points, the rules, and what becomes of it. Joins board, landscape, trajectory and outcome. */

import { LatestRequest, formatError } from "../shared/api.js";
import { Board } from "./board.js";
import { Ellipse } from "./ellipse.js";
import { announce, byId, prefersReducedMotion, el, plural, showError } from "../shared/element.js";
import { Trajectory, packed } from "./trajectory.js";
import { listenForPoints } from "./intake.js";
import { Landscape } from "./landscape.js";
import { matrixOf, shapeOf } from "./matrix.js";
import { showBadge, showOutcome, verdictOf } from "./outcome.js";
import { Past } from "./past.js";
import { Figure, addExportButtons } from "../shared/figure.js";
import { Player } from "../shared/player.js";
import { PRESETS } from "./presets.js";
import { Softmax } from "./softmax.js";
import { Camera } from "./space.js";
import { reasonOf, sentenceOf } from "./why.js";
import { Control } from "./control.js";

const EDIT_MS = 40;
const LINKED_UP_TO = 300;
const LISTED_UP_TO = 2000;
const REACH = 1.2; // of the cube around a cloud in space: its far corners may be cut
const FAR = 400; // layers; a certificate comes long before, ties of the limit would go on

export class Cloud {
  /** `info()` resolves to what the server says of itself; `onChange()` hears that the link has changed. */
  constructor(api, info, onChange) {
    Object.assign(this, {
      api,
      info,
      onChange,
      latest: new LatestRequest(EDIT_MS),
      points: [],
      alpha: 0.5,
      preset: null,
      seed: 1,
      announced: 0,
      past: new Past(byId("undo")),
      hovered: null,
      camera: new Camera(),
    });
    this.landscape = new Landscape();
    this.landscape.camera = this.camera;
    this.trajectory = new Trajectory([], null, this.camera);
    this.landscape.show(this.trajectory);
    this.picture = new Figure(byId("cloud"), (painter) => this.landscape.draw(painter));
    this.player = new Player(byId("cloud-player"), "the cloud", {
      onTime: (t) => this.moveTo(t),
      describe: (t) => this.describe(t),
    });
    this.ellipse = new Ellipse(byId("ellipse"), {
      before: () => this.remember("matrix"),
      onShape: () => this.change(),
    });
    this.board = new Board(byId("cloud"), this.landscape, this.acts());
    this.softmax = new Softmax(() => this.change());
    this.control = new Control(api, this);
    this.listen();
  }

  listen() {
    byId("alpha").addEventListener("input", (event) => this.setAlpha(2 ** Number(event.target.value)));
    byId("undo").addEventListener("click", () => this.undo());
    document.addEventListener("keydown", (event) => {
      const wanted = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "z";
      if (!wanted || byId("view-cloud").hidden || event.target.matches("textarea")) return;
      event.preventDefault();
      this.undo();
    });
    byId("presets").append(
      ...Object.entries(PRESETS).map(([name, { title }]) =>
        el(
          "button",
          {
            type: "button",
            class: "chip",
            "data-preset": name,
            "aria-pressed": "false",
            onclick: () => this.choosePreset(name),
          },
          title,
        ),
      ),
    );
    listenForPoints((rows) => this.read(rows));
    const size = () => ({ width: this.picture.width, height: this.picture.height });
    addExportButtons(byId("cloud-export"), "cloud", size, (painter) => this.landscape.draw(painter));
  }

  /** What hands on the board do. */
  acts() {
    return {
      tool: () => document.querySelector("#tools input:checked").value,
      place: (x, y) => this.addPoint(x, y),
      move: (i, x, y) => this.edit(`move ${i}`, (points) => (points[i] = [x, y])),
      nudge: (i, dx, dy) =>
        this.edit(`move ${i}`, (points) => (points[i] = [tidy(points[i][0] + dx), tidy(points[i][1] + dy)])),
      remove: (i) => this.removePoint(i),
      mark: (i) => this.control.mark(i),
      select: (i) => this.select(i),
      look: (i) => this.look(i),
      choose: (step) =>
        this.points.length &&
        this.select(
          ((this.landscape.selected ?? (step > 0 ? -1 : 0)) + step + this.points.length) % this.points.length,
          true,
        ),
      play: () => this.player.toggle(),
      zoom: () => this.picture.redraw(),
      turn: (yaw, pitch) => this.turn(yaw, pitch),
    };
  }

  /** Changes the points by hand: back to layer 0, which is where they are put. */
  edit(kind, change) {
    if (kind !== "remove" && this.points.some((row) => row.length !== 2)) {
      showError(byId("cloud-error"), "Only points of the plane are placed and moved by hand.");
      return null;
    }
    this.remember(kind);
    this.control.forget();
    this.points = [...this.points]; // trajectories and undo hold the array they were made of
    const result = change(this.points);
    this.preset = null;
    const answer = this.points.length >= this.trajectory.n ? stale(this.trajectory.answer) : null;
    this.show(new Trajectory(this.points, answer, this.camera), 0);
    this.change();
    return result;
  }

  /** Dragging a point that was just placed belongs to placing it. */
  addPoint(x, y) {
    const i = this.edit("place", (points) => points.push([x, y]) - 1);
    this.past.continueAs(`move ${i}`);
    return i;
  }

  removePoint(i) {
    this.select(null);
    this.control.clear();
    this.edit("remove", (points) => points.splice(i, 1));
    announce(`Point ${i} removed, ${this.points.length} left`);
  }

  remember(kind) {
    const { points, preset, seed, alpha } = this;
    const { stretch, turn } = this.ellipse;
    const { centre, reach } = this.landscape.view;
    this.past.keep(kind, { points, preset, seed, alpha, stretch, turn, centre, reach });
  }

  undo() {
    const state = this.past.pop();
    if (!state) return undefined;
    const { points, preset, seed, alpha, stretch, turn, centre, reach } = state;
    Object.assign(this, { points, preset, seed });
    Object.assign(this.landscape.view, { centre, reach });
    this.landscape.selected = this.hovered = null;
    this.control.clear();
    this.showAlpha(alpha);
    this.ellipse.show({ stretch, turn });
    this.show(new Trajectory(points, null, this.camera), 0);
    announce("Undone");
    return this.change();
  }

  select(i, aloud = false) {
    this.landscape.selected = i;
    this.explain();
    if (aloud) announce(`Point ${i} at ${this.points[i].slice(0, 2).join(", ")}. ${byId("why").textContent}`);
  }

  /** Turns a cloud in space; what is under the pointer is looked for again when it rests. */
  turn(yaw, pitch) {
    this.camera.turn(yaw, pitch);
    this.trajectory.look(this.camera);
    this.picture.redraw();
    this.onChange();
  }

  look(i) {
    if (i === this.hovered) return;
    this.hovered = i;
    this.explain();
  }

  /** Shows why the point that is looked at goes where it goes: on the picture, and in words. */
  explain() {
    const { landscape, trajectory } = this;
    const i = this.hovered ?? landscape.selected;
    const known = i !== null && i < trajectory.n;
    const plane = trajectory.points[0]?.length === 2;
    landscape.alpha = this.alpha;
    const A = plane ? matrixOf(this.ellipse) : null;
    const t = Math.min(landscape.t, trajectory.layers);
    landscape.reason = known ? reasonOf(i, trajectory.n, trajectory.rowsAt(t), A, trajectory.meanOf(i, t)) : null;
    byId("why").textContent = known ? sentenceOf(landscape.reason, this.alpha) : "";
    this.picture.redraw();
  }

  choosePreset(name) {
    if (this.preset === name && PRESETS[name].again) this.seed += 1;
    this.usePreset(name, this.seed);
  }

  usePreset(name, seed) {
    this.remember("load");
    const { alpha, points } = PRESETS[name];
    this.seed = seed;
    this.showAlpha(alpha);
    this.ellipse.show({ stretch: 1, turn: 0 });
    this.load(points(seed), name);
  }

  /** A new cloud in place of the present one. It plays once by itself. */
  load(points, preset = null) {
    this.points = points;
    this.preset = preset;
    this.landscape.selected = this.hovered = null;
    this.control.clear();
    this.show(new Trajectory(points, null, this.camera), 0);
    const reach = this.landscape.extent * REACH;
    this.landscape.view.fit(this.inSpace ? [reach, reach, -reach, -reach] : packed(points, 2), { least: 1 });
    return this.change(true);
  }

  get inSpace() {
    return this.trajectory.stride === 3;
  }

  async read(rows) {
    try {
      const points = await rows();
      this.remember("load");
      await this.load(points);
      announce(`${plural(this.points.length, "point")} read`);
    } catch (error) {
      showError(byId("cloud-error"), `These points cannot be read: ${error.message}.`);
    }
  }

  setAlpha(alpha) {
    this.remember("alpha");
    this.showAlpha(alpha);
    this.change();
  }

  showAlpha(alpha) {
    this.alpha = Number(alpha.toPrecision(3));
    byId("alpha").value = Math.log2(alpha);
    byId("alpha").style.setProperty("--done", (Math.log2(alpha) + 5) / 10);
    byId("alpha-value").textContent =
      `${this.alpha}: ${Math.round((100 * alpha) / (1 + alpha))} % of the way`;
  }

  request() {
    const plane = this.points.every((row) => row.length === 2);
    const { temperature } = this.softmax;
    const include = ["assignment", "limits", "trajectory", "polytope", ...(temperature ? ["softmax"] : [])];
    const A = plane ? matrixOf(this.ellipse) : null;
    return { points: this.points, alpha: this.alpha, A, include, temperature };
  }

  /** Runs the cloud for no more layers than the server allows. */
  async ask(signal) {
    const { limits } = await this.info();
    const max_layers = Math.min(FAR, limits.max_layers);
    return this.api.post("/dynamics", { ...this.request(), max_layers }, signal);
  }

  /** Something is different: ask what becomes of it now. */
  async change(rewind = false) {
    this.showPoints();
    this.onChange();
    showError(byId("cloud-error"), null);
    if (!this.points.length) {
      this.latest.stop();
      return this.show(new Trajectory([], null, this.camera), 0);
    }
    const points = this.points;
    try {
      const answer = await this.latest.run((signal) => this.ask(signal));
      return answer && this.answered(points, answer, rewind);
    } catch (error) {
      return this.fail(error);
    }
  }

  answered(points, answer, rewind) {
    this.show(new Trajectory(points, answer, this.camera), rewind ? 0 : Math.min(this.player.t, this.trajectory.layers));
    announce(verdictOf(answer).short);
    if (rewind && !prefersReducedMotion()) this.player.play();
    return answer;
  }

  show(trajectory, at) {
    this.trajectory = trajectory;
    this.landscape.show(trajectory);
    const { answer } = trajectory;
    byId("view-cloud").classList.toggle("space", this.inSpace);
    const marks =
      trajectory.certified === null
        ? []
        : [{ layer: trajectory.certified, title: `certified at layer ${trajectory.certified}` }];
    this.player.load(answer?.trajectory ? trajectory.layers : 0, { at, marks });
    this.softmax.show(answer?.softmax ?? null);
    this.explain();
    if (answer && !answer.trajectory) return;
    showBadge(byId("cloud-badge"), answer);
    showOutcome(trajectory.n && answer ? answer : null, trajectory);
  }

  showPoints() {
    for (const chip of byId("presets").children)
      chip.setAttribute("aria-pressed", String(chip.dataset.preset === this.preset));
    const area = byId("points");
    if (document.activeElement === area) return;
    const many = this.points.length > LISTED_UP_TO;
    area.value = many
      ? `# ${this.points.length} points: too many to list`
      : this.points.map((row) => row.join(", ")).join("\n");
  }

  describe(t) {
    const at = Number(t.toFixed(1));
    return this.trajectory?.certified !== null && t > this.trajectory?.certified
      ? `layer ${at}, closed form`
      : `layer ${at}`;
  }

  moveTo(t) {
    if (!this.landscape) return;
    this.landscape.t = t;
    this.softmax.moveTo(t);
    for (const { index, layer } of this.trajectory.emerging) {
      if (this.announced < layer && t >= layer) announce(`Point ${index} becomes a leader at layer ${layer}`);
    }
    this.announced = t;
    this.explain();
  }

  /** A and its answer, as /control found them. */
  useMatrix(A) {
    this.remember("control");
    this.ellipse.show(shapeOf(A));
    return this.change();
  }

  fail(error) {
    showBadge(byId("cloud-badge"), null);
    showOutcome(null, new Trajectory([], null, this.camera));
    byId("outcome").textContent = "What is shown has not been run.";
    showError(byId("cloud-error"), formatError(error));
  }

  /** What a copied link leaves out, in words. */
  get missing() {
    const fits = this.preset || this.points.length <= LINKED_UP_TO;
    return fits ? null : "without the points, which are too many for a link";
  }

  /** The state as a link says it. A large cloud of one's own is too long for a link; of an empty plane the points are
      ";", as a link leaves out what is empty. */
  values() {
    const { stretch, turn } = this.ellipse;
    const named = this.preset && { preset: this.preset, seed: PRESETS[this.preset].again ? this.seed : null };
    const points = this.points.map((row) => row.join(",")).join(";") || ";";
    const listed = this.points.length <= LINKED_UP_TO ? { points } : {};
    const A = stretch === 1 ? {} : { stretch: stretch.toFixed(3), turn: Math.round(turn) };
    const look = [this.camera.yaw, this.camera.pitch].map((x) => x.toFixed(2)).join(",");
    const { temperature } = this.softmax;
    const at = { alpha: this.alpha, ...A, softmax: temperature };
    return { ...(named || listed), ...at, look: this.inSpace ? look : null };
  }

  /** Opens the room with what a link says. */
  open(values) {
    const wanted = values.get("preset");
    const preset = Object.hasOwn(PRESETS, wanted) ? wanted : values.has("points") ? null : "triangle";
    const rows = (values.get("points") ?? "").split(";").filter(Boolean);
    const [yaw, pitch] = (values.get("look") ?? "").split(",").map(Number);
    if (Number.isFinite(yaw + pitch)) Object.assign(this.camera, { yaw, pitch });
    this.seed = Number(values.get("seed")) || 1;
    this.showAlpha(Number(values.get("alpha")) || (preset ? PRESETS[preset].alpha : 0.5));
    this.ellipse.show({ stretch: Number(values.get("stretch")) || 1, turn: Number(values.get("turn")) || 0 });
    this.softmax.use(Number(values.get("softmax")));
    return this.load(
      preset ? PRESETS[preset].points(this.seed) : rows.map((row) => row.split(",").map(Number)),
      preset,
    );
  }

  repaint() {
    this.picture.redraw();
  }
}

const tidy = (x) => Number(x.toFixed(6));

const WITHOUT_TRAJECTORY = { trajectory: null, limits: null, polytope: null, softmax: null, certified_layer: null };

/** While the next answer is on its way the colours and first leaders of the last one stay; its trajectory does not. */
function stale(answer) {
  const leaders = answer?.leaders.filter(({ since_layer }) => since_layer === 0);
  return answer && { ...answer, leaders, ...WITHOUT_TRAJECTORY };
}
