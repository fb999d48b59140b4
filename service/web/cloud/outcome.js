/* What the service found about a cloud, in words and as a table. Knows the answer of /dynamics. */

import { byId, el, plural, setVariables, star } from "../shared/element.js";
import { HUES } from "../shared/colour.js";
import { ranksOf } from "./landscape.js";

const ROWS = 40;

/** What became of a cloud: {short, sure, plain, exact}; `plain` for everybody, `exact` for who wants to know it precisely. */
export function verdictOf(answer) {
  const { status, certified_layer: layer, margin, layers, note } = answer;
  if (status === "certified") {
    const when = layer ? `From layer ${layer} on` : "From the start";
    const safe =
      margin === null ? "" : `, margin ${margin.toPrecision(3)} (how near the closest decision came)`;
    return {
      short: layer ? `Settled after ${plural(layer, "layer")}` : "Settled from the start",
      sure: true,
      plain: `${when} no point changes the points that it follows, so every limit is known exactly.`,
      exact: `Certified at layer ${layer}${safe}.`,
    };
  }
  if (status === "converged") {
    const plain = note
      ? "The points have stopped moving. That this is the end is not proved."
      : "The points have stopped moving. Some point stays between leaders, which only the limit decides, so there is no certificate.";
    return {
      short: `At rest after ${plural(layers, "layer")}`,
      sure: false,
      plain,
      exact: `Converged after ${plural(layers, "layer")}${note ? `, ${note}` : ""}.`,
    };
  }
  const plain = "The run ended before the points had settled.";
  return {
    short: `Stopped after ${plural(layers, "layer")}`,
    sure: false,
    plain,
    exact: `${plural(layers, "layer")}, ${note ?? "no certificate"}.`,
  };
}

export function showBadge(node, answer) {
  node.hidden = !answer;
  if (!answer) return;
  const { short, sure } = verdictOf(answer);
  node.replaceChildren(el("span", { class: "ok" }, sure ? "\u2713 " : ""), el("b", {}, short));
}

/** "9 points end in 4 clusters: 3 with a leader, 1 between leaders." */
function countsOf({ n, clusters }) {
  const ties = clusters.filter(({ kind }) => kind === "tie").length;
  const led = clusters.length - ties;
  const ends = n === 1 ? "ends" : "end";
  if (!ties) return `${plural(n, "point")} ${ends} with ${plural(led, "leader")}.`;
  return `${plural(n, "point")} ${ends} in ${plural(clusters.length, "cluster")}: ${led} with a leader, ${ties} between leaders.`;
}

/** `answer` is null while there is none: no point is placed, or it is on its way. */
export function showOutcome(answer, trajectory) {
  const verdict = answer && verdictOf(answer);
  byId("outcome").textContent = answer
    ? `${countsOf(answer)} ${verdict.plain}`
    : trajectory.n
      ? "\u2026"
      : "Place a point, and see.";
  const d = trajectory.points[0]?.length ?? 0;
  const drawn = d > 3 ? ` Drawn are the first three of ${d} numbers of each point.` : "";
  byId("outcome-exact").textContent = verdict ? verdict.exact + drawn : "";
  const born = answer ? trajectory.emerging.slice(0, 6) : [];
  byId("emerging").replaceChildren(
    ...born.map(({ index, layer }) =>
      el("li", {}, star(), `Point ${index} becomes a leader at layer ${layer}.`),
    ),
  );
  byId("clusters").replaceChildren(...(answer ? clusterRows(answer) : []));
}

function clusterRows(answer) {
  const ranks = ranksOf(answer);
  const since = new Map(answer.leaders.map((leader) => [leader.index, leader.since_layer]));
  const ordered = [...answer.clusters].sort((a, b) => ranks.get(a.id) - ranks.get(b.id));
  const rows = ordered.slice(0, ROWS).map((cluster) => {
    const tie = cluster.kind === "tie";
    const mark = tie ? el("i", { class: "tie", "aria-hidden": "true" }) : star();
    const rank = ranks.get(cluster.id);
    setVariables(mark, { "--hue": rank < HUES ? `var(--hue-${rank})` : "var(--soft)" });
    const layers = cluster.leaders.map((i) => since.get(i) ?? 0);
    const names = cluster.leaders.slice(0, 3).join(" + ") + (cluster.leaders.length > 3 ? " \u2026" : "");
    return el(
      "tr",
      {},
      el("td", {}, mark, tie ? `tie of ${names}` : `leader ${names}`),
      el("td", { class: "number" }, String(Math.max(...layers))),
      el("td", { class: "number" }, cluster.size.toLocaleString("en")),
      el(
        "td",
        { class: "number" },
        cluster.limit
          .slice(0, 3)
          .map((x) => x.toFixed(2).replace("-", "\u2212"))
          .join(", ") + (cluster.limit.length > 3 ? " \u2026" : ""),
      ),
    );
  });
  const more = ordered.length - rows.length;
  return more > 0
    ? [
        ...rows,
        el("tr", {}, el("td", { colspan: 4, class: "soft" }, `and ${plural(more, "smaller cluster")}`)),
      ]
    : rows;
}
