/* The plot of a cloud at one time: polytope, trails, points coloured by cluster, leaders as stars, ties as rings, and
   the next step of the hovered or selected point. */

import { N_HUES, colour, clusterColour } from "../shared/colour.js";
import { clipToHalfPlane, convexHull, crossBoundary, findHullEdges } from "./geometry.js";
import { projectPoints } from "./camera.js";
import { rankClusters } from "./trajectory.js";
import { Viewport, drawGrid, drawTickLabels } from "../shared/viewport.js";

const MAX_POINTS_WITH_TRAILS = 2500;
const MAX_LABELLED_LEADERS = 14;
const MAX_LINKS_TO_FOLLOWED = 50;
const DEPTH_BANDS = 4; // points farther from the viewer are drawn smaller and paler
const CUBE_HALF_DIAGONAL = 1.74; // of a cube with half side 1: sqrt(3), rounded up
const FLOOR_LINES = 4; // on each side of the middle

export class CloudPlot {
  /** `explanation` is that of explainPoint, or null; `alpha` is the step size of its arrow. */
  constructor(camera) {
    Object.assign(this, { camera, view: new Viewport(), trajectory: null, t: 0 });
    Object.assign(this, { selected: null, marked: new Set(), explanation: null, alpha: null });
  }

  setTrajectory(trajectory) {
    const { answer, coordinates, stride } = trajectory;
    this.trajectory = trajectory;
    this.ranks = rankClusters(answer);
    this.tieIds = new Set((answer?.clusters ?? []).filter(({ kind }) => kind === "tie").map(({ id }) => id));
    this.groups = this.groupPoints();
    this.vertices = answer?.polytope?.vertices ?? [];
    const limits = coordinates[this.limitLayer];
    const corners = this.vertices.map((i) => [...limits.slice(3 * i, 3 * i + 3)]);
    this.edges = stride === 3 ? findHullEdges(corners).map((edge) => edge.map((k) => this.vertices[k])) : [];
  }

  /** The layer at which the polytope is drawn. Its vertices are leaders, which have stopped there. */
  get limitLayer() {
    return this.trajectory.certifiedLayer ?? this.trajectory.layers;
  }

  /** Half the side of the cube around a cloud in space. */
  get extent() {
    return this.trajectory.coordinates[0].reduce((max, x) => Math.max(max, Math.abs(x)), 1e-9);
  }

  /** Returns [{rank, tie, members}]: the indices of the points by style, which is a colour and a ring or a disc. */
  groupPoints() {
    const { trajectory } = this;
    const groups = new Map();
    for (let i = 0; i < trajectory.n; i += 1) {
      const id = trajectory.answer?.assignment?.[i] ?? null;
      const tie = this.tieIds.has(id);
      const rank = id === null ? N_HUES : Math.min(N_HUES, this.ranks.get(id));
      const key = `${rank}${tie ? " tie" : ""}`;
      if (!groups.has(key)) groups.set(key, { rank, tie, members: [] });
      groups.get(key).members.push(i);
    }
    return [...groups.values()];
  }

  pointColour(i) {
    const id = this.trajectory.answer?.assignment?.[i];
    return id === undefined ? colour("soft") : clusterColour(this.ranks.get(id));
  }

  /** Returns a function from the index of a point to its pixel. */
  pixelsOf(positions) {
    return (i) => [this.view.x(positions[2 * i]), this.view.y(positions[2 * i + 1])];
  }

  draw(painter) {
    this.view.resize(painter.width, painter.height);
    if (this.trajectory?.stride === 3) this.drawFloor(painter);
    else {
      drawGrid(painter, this.view);
      drawTickLabels(painter, this.view);
    }
    if (!this.trajectory?.n) return this.drawEmptyMessage(painter);
    const positions = this.trajectory.positionsAt(this.t);
    this.drawPolytope(painter);
    this.drawHalfPlane(painter);
    if (this.trajectory.n <= MAX_POINTS_WITH_TRAILS) this.drawTrails(painter);
    this.drawPoints(painter, positions);
    this.drawSoftmax(painter);
    this.drawLeaders(painter, positions);
    this.drawStep(painter, positions);
    this.drawMarks(painter, positions);
    return undefined;
  }

  /** Draws the floor of the cube around the cloud, and the three axes through the origin. */
  drawFloor(painter) {
    const { view, camera, extent } = this;
    const [right, up] = camera.axes;
    const toLine = (start, end) => {
      const flat = projectPoints(Float64Array.from([...start, ...end]), [right, up]);
      return [view.x(flat[0]), view.y(flat[1]), view.x(flat[2]), view.y(flat[3])];
    };
    const steps = Array.from(
      { length: 2 * FLOOR_LINES + 1 },
      (_, k) => (extent * (k - FLOOR_LINES)) / FLOOR_LINES,
    );
    const floor = steps.flatMap((s) => [
      ...toLine([s, -extent, -extent], [s, extent, -extent]),
      ...toLine([-extent, s, -extent], [extent, s, -extent]),
    ]);
    painter.segments(floor, { stroke: colour("line"), width: 1, alpha: 0.6 });
    ["x", "y", "z"].forEach((name, k) => {
      const end = [0, 1, 2].map((c) => (c === k ? extent : 0));
      const start = end.map((x) => -x);
      const axis = toLine(start, end);
      painter.segments(axis, { stroke: colour("soft"), width: 1, alpha: 0.6 });
      painter.text(axis[2] + 6, axis[3], name, { fill: colour("soft"), italic: true, halo: colour("card") });
    });
  }

  /** Shades the half-plane in which the inner product with the query is larger than the largest: no point is there.
      The followed points are on its edge. A dashed line from the origin shows the direction of the query. */
  drawHalfPlane(painter) {
    if (this.explanation?.query.length !== 2) return;
    const { view } = this;
    const { query, max } = this.explanation;
    const { width, height } = view;
    const corners = [
      [0, 0],
      [width, 0],
      [width, height],
      [0, height],
    ];
    const visible = corners.map((corner) => view.toWorld(...corner));
    const line = [...query, -max];
    const toPixel = ([x, y]) => [view.x(x), view.y(y)];
    const beyond = clipToHalfPlane(visible, line).map(toPixel);
    if (beyond.length) painter.polygon(beyond, { fill: colour("ink"), alpha: 0.06 });
    const style = { stroke: colour("ink"), width: 1.25, alpha: 0.6 };
    const edge = crossBoundary(visible, line).map(toPixel);
    if (edge.length === 2) painter.polyline(edge, style);
    const squaredNorm = query[0] ** 2 + query[1] ** 2;
    const foot = query.map((x) => (x * max) / (squaredNorm || 1));
    painter.polyline([toPixel([0, 0]), toPixel(foot)], { ...style, dash: [3, 5] });
  }

  /** Draws an arrow from the explained point to its position in the next layer, and lines to the points it follows. */
  drawStep(painter, positions) {
    if (!this.explanation) return;
    const { view, alpha } = this;
    const { i, followed } = this.explanation;
    const toPixel = this.pixelsOf(positions);
    const [x, y] = [positions[2 * i], positions[2 * i + 1]];
    const from = toPixel(i);
    const stroke = colour("ink");
    const links = followed.slice(0, MAX_LINKS_TO_FOLLOWED).flatMap((j) => [...from, ...toPixel(j)]);
    painter.segments(links, { stroke, width: 1, alpha: 0.5 });
    const mean = [0, 1].map((c) => followed.reduce((sum, j) => sum + positions[2 * j + c], 0) / followed.length);
    const share = alpha / (1 + alpha);
    const to = [view.x(x + share * (mean[0] - x)), view.y(y + share * (mean[1] - y))];
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy);
    if (length < 4) return;
    painter.polyline([from, to], { stroke, width: 2.5 });
    const headLength = Math.min(9, length / 2);
    const [u, v] = [(dx / length) * headLength, (dy / length) * headLength];
    const base = [to[0] - u, to[1] - v];
    painter.polygon([to, [base[0] - v / 2, base[1] + u / 2], [base[0] + v / 2, base[1] - u / 2]], {
      fill: stroke,
      stroke,
      width: 1,
    });
  }

  drawEmptyMessage(painter) {
    const style = { fill: colour("soft"), size: 15, align: "center" };
    painter.text(painter.width / 2, painter.height / 2 - 24, "Click or tap to add a point", style);
  }

  /** Draws the convex hull of the limits. */
  drawPolytope(painter) {
    const toPixel = this.pixelsOf(this.trajectory.frames[this.limitLayer]);
    const hull = convexHull(this.vertices.map(toPixel));
    const edges = this.edges.flatMap((edge) => edge.flatMap(toPixel));
    painter.segments(edges, { stroke: colour("accent"), width: 1, alpha: 0.3 });
    if (hull.length > 2) painter.polygon(hull, { fill: colour("accent"), alpha: 0.07 });
    if (hull.length > 1)
      painter.polygon(hull, { stroke: colour("accent"), width: 1.25, alpha: 0.45, dash: [2, 4] });
  }

  drawTrails(painter) {
    const { view, trajectory, t } = this;
    for (let k = 0; k < t; k += 1) {
      const [start, end] = [trajectory.frames[k], trajectory.positionsAt(Math.min(k + 1, t))];
      const alpha = 0.14 + 0.36 * (1 - (t - k) / (t + 1));
      for (const { rank, members } of this.groups) {
        const lines = members.flatMap((i) => [
          view.x(start[2 * i]),
          view.y(start[2 * i + 1]),
          view.x(end[2 * i]),
          view.y(end[2 * i + 1]),
        ]);
        painter.segments(lines, { stroke: clusterColour(rank), width: 1.25, alpha });
      }
    }
  }

  /** Splits points into [{members, nearness}], the farthest first; nearness is from 0 to 1. The plane is one band. */
  splitByDepth(members, depths) {
    if (!depths) return [{ members, nearness: 0.75 }];
    const limit = CUBE_HALF_DIAGONAL * this.extent;
    const bandOf = (i) => Math.floor((DEPTH_BANDS * (depths[i] / limit + 1)) / 2);
    return Array.from({ length: DEPTH_BANDS }, (_, band) => ({
      members: members.filter((i) => Math.min(DEPTH_BANDS - 1, Math.max(0, bandOf(i))) === band),
      nearness: band / (DEPTH_BANDS - 1),
    }));
  }

  drawPoints(painter, positions) {
    const { view, trajectory, groups } = this;
    const radius = trajectory.n > 3000 ? 1.1 : trajectory.n > 400 ? 2.4 : 4.5;
    const depths = trajectory.depthsAt(this.t);
    const bands = groups.flatMap(({ rank, tie, members }) =>
      this.splitByDepth(members, depths).map((band) => ({ rank, tie, ...band })),
    );
    for (const { rank, tie, members, nearness } of bands.sort((a, b) => a.nearness - b.nearness)) {
      const centres = new Float64Array(2 * members.length);
      members.forEach((i, k) => {
        centres[2 * k] = view.x(positions[2 * i]);
        centres[2 * k + 1] = view.y(positions[2 * i + 1]);
      });
      const r = radius * (0.55 + 0.6 * nearness);
      const alpha = (trajectory.n > 3000 ? 0.75 : 0.92) * (depths ? 0.45 + 0.55 * nearness : 1);
      const ring = { fill: colour("card"), stroke: clusterColour(rank), width: Math.min(2, r / 2), alpha };
      if (members.length) painter.dots(centres, r, tie ? ring : { fill: clusterColour(rank), alpha });
    }
  }

  /** Draws the positions under softmax attention as circles. */
  drawSoftmax(painter) {
    const { trajectory } = this;
    const positions = trajectory.softmaxPositionsAt(this.t);
    if (!positions) return;
    const r = trajectory.n > 400 ? 2 : 5.5;
    const toPixel = this.pixelsOf(positions);
    for (const { rank, members } of this.groups) {
      const centres = Float64Array.from(members.flatMap(toPixel));
      painter.dots(centres, r, { stroke: clusterColour(rank), width: 1.25, alpha: 0.9 });
    }
  }

  drawLeaders(painter, positions) {
    const { trajectory, t } = this;
    const toPixel = this.pixelsOf(positions);
    const depths = trajectory.depthsAt(t);
    const leaders = trajectory.leadersAt(t).sort((a, b) => (depths ? depths[a] - depths[b] : 0));
    const radius = leaders.length > 60 ? 6 : 10;
    for (const i of leaders) {
      const [x, y] = toPixel(i);
      const r = radius * (depths ? 1 + 0.2 * (depths[i] / this.extent) : 1);
      const since = trajectory.leaderSince.get(i);
      const age = t - since;
      if (since > 0 && age < 1)
        painter.dots([x, y], 12 + 26 * age, { stroke: colour("accent"), width: 2, alpha: 1 - age });
      painter.star(x, y, r, { fill: this.pointColour(i), stroke: colour("card"), width: 1.5 });
      if (leaders.length <= MAX_LABELLED_LEADERS) {
        painter.text(x + 12, y - 10, String(i), {
          fill: colour("ink"),
          size: 12,
          weight: 600,
          halo: colour("card"),
        });
      }
    }
  }

  /** Draws a ring around each marked point and around the selected one. */
  drawMarks(painter, positions) {
    const toPixel = this.pixelsOf(positions);
    for (const i of this.marked) painter.dots(toPixel(i), 14, { stroke: colour("accent"), width: 2.5 });
    if (this.selected !== null) painter.dots(toPixel(this.selected), 10, { stroke: colour("ink"), width: 1.5 });
  }
}
