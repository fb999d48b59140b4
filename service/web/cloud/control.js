/* Marks points and requests a matrix A under which they lead (POST /control). */

import { LatestRequest, formatError } from "../shared/api.js";
import { announce, byId, plural } from "../shared/element.js";

export class Control {
  constructor(api, cloud) {
    Object.assign(this, { api, cloud, latest: new LatestRequest(), marked: cloud.landscape.marked });
    byId("control").addEventListener("click", () => this.ask());
    byId("control-clear").addEventListener("click", () => this.clear());
    this.show();
  }

  mark(i) {
    if (!this.marked.delete(i)) this.marked.add(i);
    this.forget();
    announce(`Point ${i} ${this.marked.has(i) ? "marked" : "no longer marked"}`);
    this.show();
  }

  clear() {
    this.marked.clear();
    this.forget();
    this.show();
  }

  /** Stops a running request and clears its answer: the points or the marks have changed. */
  forget() {
    this.latest.stop();
    byId("control-answer").textContent = "";
  }

  show() {
    byId("control").disabled = this.marked.size === 0;
    byId("control-count").textContent = this.marked.size
      ? `${plural(this.marked.size, "point")} marked`
      : "none marked yet";
    this.cloud.picture.redraw();
  }

  async ask() {
    const leaders = [...this.marked].sort((a, b) => a - b);
    const answer = byId("control-answer");
    answer.textContent = "Looking for it \u2026";
    try {
      const body = { points: this.cloud.points, leaders };
      const found = await this.latest.run((signal) => this.api.post("/control", body, signal));
      if (!found) return;
      answer.textContent = [sentenceOf(found, leaders.length), found.note].filter(Boolean).join(" ");
      if (found.feasible && found.A.length === 2) await this.cloud.useMatrix(found.A);
    } catch (error) {
      answer.textContent = formatError(error);
    }
  }
}

function sentenceOf({ feasible, margin, A }, count) {
  if (feasible) {
    const used = A.length === 2 ? " The picture now uses it." : "";
    return `Found${margin === null ? "" : `, with margin ${margin.toPrecision(3)}`}.${used}`;
  }
  if (feasible === null) return "It could be proved neither that there is such an A nor that there is none.";
  const who = count === 1 ? "this point cannot lead" : "these points cannot all lead";
  return `No A does it: ${who} from the start.`;
}
