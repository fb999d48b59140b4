/* The picture of a cloud at one moment: polytope, trails, points by cluster, leaders as stars, ties as rings,
   and why one point goes where it goes. Knows a trajectory and what is marked; nothing of pointers and keys. */

import { HUES, colour, hue } from "../shared/colour.js";
import { clip, crossing } from "./halfplane.js";
import { edgesOf, projected } from "./space.js";
import { Viewport, drawGrid, drawNumbers } from "../shared/viewport.js";

const TRAILS_UP_TO = 2500;
const NUMBERS_UP_TO = 14;
const BANDS = 4; // by nearness: what is farther is smaller and paler
const FLOOR = 4; // lines of the floor on each side of its middle

export class Landscape {
  constructor() {
    Object.assign(this, { view: new Viewport(), trajectory: null, t: 0, selected: null, marked: new Set() });
    this.reason = null; // of the point that is looked at, as why.js gives it
  }

  show(trajectory) {
    this.trajectory = trajectory;
    this.ranks = ranksOf(trajectory.answer);
    const { clusters = [] } = trajectory.answer ?? {};
    this.tied = new Set(clusters.filter(({ kind }) => kind === "tie").map(({ id }) => id));
    this.groups = this.groupPoints();
    const corners = trajectory.answer?.polytope?.vertices ?? [];
    const limits = corners.map((i) => trajectory.solid[trajectory.certified ?? trajectory.layers].slice(3 * i, 3 * i + 3));
    this.edges =
      trajectory.stride === 3 ? edgesOf(limits.map((z) => [...z])).map((e) => e.map((k) => corners[k])) : [];
  }

  /** Half the side of the cube that holds a cloud in space. */
  get extent() {
    return this.trajectory.solid[0].reduce((most, x) => Math.max(most, Math.abs(x)), 1e-9);
  }

  /** Indices of the followers by the name of their look: colour, and ring or disc. */
  groupPoints() {
    const { trajectory } = this;
    const groups = new Map();
    for (let i = 0; i < trajectory.n; i += 1) {
      const id = trajectory.answer?.assignment?.[i] ?? null;
      const tie = this.tied.has(id);
      const rank = id === null ? HUES : Math.min(HUES, this.ranks.get(id));
      const name = `${rank}${tie ? " tie" : ""}`;
      if (!groups.has(name)) groups.set(name, { rank, tie, members: [] });
      groups.get(name).members.push(i);
    }
    return [...groups.values()];
  }

  hueOf(i) {
    const id = this.trajectory.answer?.assignment?.[i];
    return id === undefined ? colour("soft") : hue(this.ranks.get(id));
  }

  draw(painter) {
    this.view.resize(painter.width, painter.height);
    if (this.camera && this.trajectory?.stride === 3) this.drawFloor(painter);
    else {
      drawGrid(painter, this.view);
      drawNumbers(painter, this.view);
    }
    if (!this.trajectory?.n) return this.drawInvitation(painter);
    const positions = this.trajectory.at(this.t);
    this.drawPolytope(painter);
    this.drawHalfPlane(painter);
    if (this.trajectory.n <= TRAILS_UP_TO) this.drawTrails(painter);
    this.drawFollowers(painter, positions);
    this.drawSoftmax(painter);
    this.drawLeaders(painter, positions);
    this.drawArrow(painter, positions);
    this.drawMarks(painter, positions);
    return undefined;
  }

  /** The floor of the cube that holds the cloud, and the three axes through the origin. */
  drawFloor(painter) {
    const { view, camera, extent } = this;
    const [right, up] = camera.axes;
    const onPicture = (...ends) => {
      const flat = projected(Float64Array.from(ends.flat()), [right, up]);
      return [view.x(flat[0]), view.y(flat[1]), view.x(flat[2]), view.y(flat[3])];
    };
    const steps = Array.from({ length: 2 * FLOOR + 1 }, (_, k) => (extent * (k - FLOOR)) / FLOOR);
    const floor = steps.flatMap((s) => [
      ...onPicture([s, -extent, -extent], [s, extent, -extent]),
      ...onPicture([-extent, s, -extent], [extent, s, -extent]),
    ]);
    painter.segments(floor, { stroke: colour("line"), width: 1, alpha: 0.6 });
    ["x", "y", "z"].forEach((name, k) => {
      const end = [0, 1, 2].map((c) => (c === k ? extent : 0));
      const line = onPicture(
        end.map((x) => -x),
        end,
      );
      painter.segments(line, { stroke: colour("soft"), width: 1, alpha: 0.6 });
      painter.text(line[2] + 6, line[3], name, { fill: colour("soft"), italic: true, halo: colour("card") });
    });
  }

  /** A point looks in the direction A z. Whom it follows lies farthest that way: beyond the line there is no point. */
  drawHalfPlane(painter) {
    if (this.reason?.gaze.length !== 2) return;
    const { view, reason } = this;
    const { gaze, best } = reason;
    const corner = (px, py) => view.world(px, py);
    const { width, height } = view;
    const window = [corner(0, 0), corner(width, 0), corner(width, height), corner(0, height)];
    const line = [...gaze, -best];
    const toScreen = ([x, y]) => [view.x(x), view.y(y)];
    const beyond = clip(window, line).map(toScreen);
    if (beyond.length) painter.polygon(beyond, { fill: colour("ink"), alpha: 0.06 });
    const edge = crossing(window, line).map(toScreen);
    if (edge.length === 2) painter.polyline(edge, { stroke: colour("ink"), width: 1.25, alpha: 0.6 });
    const norm = gaze[0] ** 2 + gaze[1] ** 2;
    const foot = gaze.map((x) => (x * best) / (norm || 1));
    painter.polyline([toScreen([0, 0]), toScreen(foot)], {
      stroke: colour("ink"),
      width: 1.25,
      alpha: 0.6,
      dash: [3, 5],
    });
  }

  /** From where the point is to where the next layer takes it; thin from there to those it follows. */
  drawArrow(painter, positions) {
    if (!this.reason) return;
    const { view, reason, alpha } = this;
    const { i, followed } = reason;
    const [x, y] = [positions[2 * i], positions[2 * i + 1]];
    const stroke = colour("ink");
    const thin = followed
      .slice(0, 50)
      .flatMap((j) => [view.x(x), view.y(y), view.x(positions[2 * j]), view.y(positions[2 * j + 1])]);
    painter.segments(thin, { stroke, width: 1, alpha: 0.5 });
    const middle = [0, 1].map(
      (c) => followed.reduce((sum, j) => sum + positions[2 * j + c], 0) / followed.length,
    );
    const share = alpha / (1 + alpha);
    const from = [view.x(x), view.y(y)];
    const to = [view.x(x + share * (middle[0] - x)), view.y(y + share * (middle[1] - y))];
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy);
    if (length < 4) return;
    painter.polyline([from, to], { stroke, width: 2.5 });
    const head = Math.min(9, length / 2);
    const [u, v] = [(dx / length) * head, (dy / length) * head];
    const back = [to[0] - u, to[1] - v];
    painter.polygon([to, [back[0] - v / 2, back[1] + u / 2], [back[0] + v / 2, back[1] - u / 2]], {
      fill: stroke,
      stroke,
      width: 1,
    });
  }

  drawInvitation(painter) {
    const style = { fill: colour("soft"), size: 15, align: "center" };
    painter.text(painter.width / 2, painter.height / 2 - 24, "Place a point anywhere", style);
  }

  /** The convex hull of the limits: its corners are leaders. */
  drawPolytope(painter) {
    const { view, trajectory } = this;
    const corners = trajectory.answer?.polytope?.vertices ?? [];
    const positions = trajectory.frames[trajectory.certified ?? trajectory.layers];
    const onPicture = (i) => [view.x(positions[2 * i]), view.y(positions[2 * i + 1])];
    const hull = hullOf(corners.map(onPicture));
    const inside = this.edges.flatMap((edge) => edge.flatMap(onPicture));
    painter.segments(inside, { stroke: colour("accent"), width: 1, alpha: 0.3 });
    if (hull.length > 2) painter.polygon(hull, { fill: colour("accent"), alpha: 0.07 });
    if (hull.length > 1)
      painter.polygon(hull, { stroke: colour("accent"), width: 1.25, alpha: 0.45, dash: [2, 4] });
  }

  drawTrails(painter) {
    const { view, trajectory, t } = this;
    for (let k = 0; k < t; k += 1) {
      const [a, b] = [trajectory.frames[k], trajectory.at(Math.min(k + 1, t))];
      const alpha = 0.14 + 0.36 * (1 - (t - k) / (t + 1));
      for (const { rank, members } of this.groups) {
        const lines = members.flatMap((i) => [
          view.x(a[2 * i]),
          view.y(a[2 * i + 1]),
          view.x(b[2 * i]),
          view.y(b[2 * i + 1]),
        ]);
        painter.segments(lines, { stroke: hue(rank), width: 1.25, alpha });
      }
    }
  }

  /** Points by nearness, the farthest first: {members, near} with near from 0 to 1. In the plane all are alike. */
  bandsOf(members, depths) {
    if (!depths) return [{ members, near: 0.75 }];
    const bandOf = (i) => Math.floor((BANDS * (depths[i] / (1.74 * this.extent) + 1)) / 2);
    return Array.from({ length: BANDS }, (_, band) => ({
      members: members.filter((i) => Math.min(BANDS - 1, Math.max(0, bandOf(i))) === band),
      near: band / (BANDS - 1),
    }));
  }

  drawFollowers(painter, positions) {
    const { view, trajectory, groups } = this;
    const usual = trajectory.n > 3000 ? 1.1 : trajectory.n > 400 ? 2.4 : 4.5;
    const depths = trajectory.depthsAt(this.t);
    const bands = groups.flatMap(({ rank, tie, members }) =>
      this.bandsOf(members, depths).map((band) => ({ rank, tie, ...band })),
    );
    for (const { rank, tie, members, near } of bands.sort((a, b) => a.near - b.near)) {
      const centres = new Float64Array(2 * members.length);
      members.forEach((i, k) => {
        centres[2 * k] = view.x(positions[2 * i]);
        centres[2 * k + 1] = view.y(positions[2 * i + 1]);
      });
      const r = usual * (0.55 + 0.6 * near);
      const alpha = (trajectory.n > 3000 ? 0.75 : 0.92) * (depths ? 0.45 + 0.55 * near : 1);
      const ring = { fill: colour("card"), stroke: hue(rank), width: Math.min(2, r / 2), alpha };
      if (members.length) painter.dots(centres, r, tie ? ring : { fill: hue(rank), alpha });
    }
  }

  /** Where softmax attention has each point: a small circle. */
  drawSoftmax(painter) {
    const { view, trajectory } = this;
    const positions = trajectory.softmaxAt(this.t);
    if (!positions) return;
    const r = trajectory.n > 400 ? 2 : 5.5;
    for (const { rank, members } of this.groups) {
      const centres = members.flatMap((i) => [view.x(positions[2 * i]), view.y(positions[2 * i + 1])]);
      painter.dots(Float64Array.from(centres), r, { stroke: hue(rank), width: 1.25, alpha: 0.9 });
    }
  }

  drawLeaders(painter, positions) {
    const { view, trajectory, t } = this;
    const depths = trajectory.depthsAt(t);
    const leaders = trajectory.leadersAt(t).sort((a, b) => (depths ? depths[a] - depths[b] : 0));
    const usual = leaders.length > 60 ? 6 : 10;
    for (const i of leaders) {
      const [x, y] = [view.x(positions[2 * i]), view.y(positions[2 * i + 1])];
      const r = usual * (depths ? 1 + 0.2 * (depths[i] / this.extent) : 1);
      const born = trajectory.since.get(i);
      const age = t - born;
      if (born > 0 && age < 1)
        painter.dots([x, y], 12 + 26 * age, { stroke: colour("accent"), width: 2, alpha: 1 - age });
      painter.star(x, y, r, { fill: this.hueOf(i), stroke: colour("card"), width: 1.5 });
      if (leaders.length <= NUMBERS_UP_TO) {
        painter.text(x + 12, y - 10, String(i), {
          fill: colour("ink"),
          size: 12,
          weight: 600,
          halo: colour("card"),
        });
      }
    }
  }

  drawMarks(painter, positions) {
    const { view } = this;
    const ring = (i, r, style) => painter.dots([view.x(positions[2 * i]), view.y(positions[2 * i + 1])], r, style);
    for (const i of this.marked) ring(i, 14, { stroke: colour("accent"), width: 2.5 });
    if (this.selected !== null) ring(this.selected, 10, { stroke: colour("ink"), width: 1.5 });
  }
}

/** Clusters by size: 0 for the largest. */
export function ranksOf(answer) {
  const bySize = [...(answer?.clusters ?? [])].sort((a, b) => b.size - a.size || a.id - b.id);
  return new Map(bySize.map(({ id }, rank) => [id, rank]));
}

/** The convex hull of points of the picture, in order (Andrew's monotone chain). */
function hullOf(points) {
  const sorted = [...points].sort((p, q) => p[0] - q[0] || p[1] - q[1]);
  const turn = (o, p, q) => (p[0] - o[0]) * (q[1] - o[1]) - (p[1] - o[1]) * (q[0] - o[0]);
  const half = (way) =>
    way.reduce((chain, p) => {
      while (chain.length > 1 && turn(chain.at(-2), chain.at(-1), p) <= 0) chain.pop();
      return [...chain, p];
    }, []);
  if (sorted.length < 3) return sorted;
  return [...half(sorted).slice(0, -1), ...half(sorted.reverse()).slice(0, -1)];
}
