/* The choice of leaders: marks points, and requests a matrix A that makes them leaders (POST /control). */

import { LatestRequest, formatError } from "../shared/api.js";
import { announce, byId, plural } from "../shared/element.js";

export class LeaderControl {
  constructor(api, cloud) {
    Object.assign(this, { api, cloud, latestRequest: new LatestRequest(), marked: cloud.plot.marked });
    byId("control").addEventListener("click", () => this.findMatrix());
    byId("control-clear").addEventListener("click", () => this.clearMarks());
    this.showMarks();
  }

  toggleMark(i) {
    if (!this.marked.delete(i)) this.marked.add(i);
    this.discardAnswer();
    announce(`Point ${i} ${this.marked.has(i) ? "marked" : "unmarked"}`);
    this.showMarks();
  }

  clearMarks() {
    this.marked.clear();
    this.discardAnswer();
    this.showMarks();
  }

  /** Cancels a running request and clears its answer, because the points or the marks have changed. */
  discardAnswer() {
    this.latestRequest.stop();
    byId("control-answer").textContent = "";
  }

  showMarks() {
    const { size } = this.marked;
    byId("control").disabled = size === 0;
    byId("control-count").textContent = size ? `${plural(size, "point")} marked` : "No points marked";
    this.cloud.figure.redraw();
  }

  async findMatrix() {
    const leaders = [...this.marked].sort((a, b) => a - b);
    const output = byId("control-answer");
    output.textContent = "Searching \u2026";
    try {
      const body = { points: this.cloud.points, leaders };
      const answer = await this.latestRequest.run((signal) => this.api.post("/control", body, signal));
      if (!answer) return;
      output.textContent = [formatAnswer(answer, leaders.length), answer.note].filter(Boolean).join(" ");
      if (answer.feasible && answer.A.length === 2) await this.cloud.useMatrix(answer.A);
    } catch (error) {
      output.textContent = formatError(error);
    }
  }
}

function formatAnswer({ feasible, margin, A }, nLeaders) {
  if (feasible) {
    const used = A.length === 2 ? " The plot now uses it." : "";
    return `Found${margin === null ? "" : `, with margin ${margin.toPrecision(3)}`}.${used}`;
  }
  if (feasible === null) return "Undecided: it is proved neither that such an A exists nor that none exists.";
  const points = nLeaders === 1 ? "this point cannot be a leader" : "these points cannot all be leaders";
  return `No such A exists: ${points} from layer 0.`;
}
