/* The result of a cloud as text and as a table of clusters, from the answer of /dynamics. */

import { byId, el, plural, setVariables, star } from "../shared/element.js";
import { N_HUES } from "../shared/colour.js";
import { rankClusters } from "./trajectory.js";

const MAX_ROWS = 40;
const MAX_EMERGING_LEADERS = 6;
const MAX_NAMES = 3; // leaders of a tie
const MAX_COORDINATES = 3;

/** Returns {title, certified, summary, details}: a title for the badge, its meaning, and the figures. */
export function describeStatus({ status, certified_layer: layer, margin, layers, note }) {
  const nLayers = plural(layers, "layer");
  if (status === "certified") {
    const bound = "lower bound on the relative gap between a largest inner product and the next smaller one";
    const start = layer ? `From layer ${layer} on` : "From the start";
    return {
      title: `Certified at layer ${layer}`,
      certified: true,
      summary: `${start}, no point changes which points it follows, so every limit is known exactly.`,
      details: `Certified at layer ${layer}${margin === null ? "" : `, margin ${margin.toPrecision(3)} (${bound})`}.`,
    };
  }
  if (status === "converged") {
    const reason = note
      ? "It is not proved that these are the limits."
      : "A point stays between leaders, which is decided only in the limit, so there is no certificate.";
    return {
      title: `Converged after ${nLayers}`,
      certified: false,
      summary: `The points have stopped moving. ${reason}`,
      details: `Converged after ${nLayers}${note ? `, ${note}` : ""}.`,
    };
  }
  return {
    title: `Stopped after ${nLayers}`,
    certified: false,
    summary: "The run ended before the points converged.",
    details: `${nLayers}, ${note ?? "no certificate"}.`,
  };
}

/** Shows the status in the badge, or hides it if `answer` is null. */
export function showBadge(node, answer) {
  node.hidden = !answer;
  if (!answer) return;
  const { title, certified } = describeStatus(answer);
  node.replaceChildren(el("span", { class: "ok" }, certified ? "\u2713 " : ""), el("b", {}, title));
}

/** Returns a sentence such as "9 points end in 4 clusters: 3 at a leader, 1 between leaders." */
function countClusters({ n, clusters }) {
  const nTies = clusters.filter(({ kind }) => kind === "tie").length;
  const nLed = clusters.length - nTies;
  const start = `${plural(n, "point")} ${n === 1 ? "ends" : "end"}`;
  if (!nTies) return `${start} at ${plural(nLed, "leader")}.`;
  return `${start} in ${plural(clusters.length, "cluster")}: ${nLed} at a leader, ${nTies} between leaders.`;
}

/** Shows the result; `answer` is null before it arrives and if there are no points. */
export function showResult(answer, trajectory) {
  const description = answer && describeStatus(answer);
  const empty = trajectory.n ? "\u2026" : "Add a point to start.";
  byId("result").textContent = answer ? `${countClusters(answer)} ${description.summary}` : empty;
  const d = trajectory.points[0]?.length ?? 0;
  const projection = d > 3 ? ` The plot shows the first 3 of ${d} coordinates.` : "";
  byId("result-details").textContent = answer ? description.details + projection : "";
  const emerging = answer ? trajectory.emergingLeaders.slice(0, MAX_EMERGING_LEADERS) : [];
  byId("emerging").replaceChildren(
    ...emerging.map(({ index, layer }) =>
      el("li", {}, star(), `Point ${index} becomes a leader at layer ${layer}.`),
    ),
  );
  byId("clusters").replaceChildren(...(answer ? createClusterRows(answer) : []));
}

function createClusterRows(answer) {
  const ranks = rankClusters(answer);
  const leaderSince = new Map(answer.leaders.map((leader) => [leader.index, leader.since_layer]));
  const clusters = [...answer.clusters].sort((a, b) => ranks.get(a.id) - ranks.get(b.id));
  const rows = clusters
    .slice(0, MAX_ROWS)
    .map((cluster) => createClusterRow(cluster, ranks.get(cluster.id), leaderSince));
  const nMore = clusters.length - rows.length;
  if (nMore <= 0) return rows;
  const more = el("td", { colspan: 4, class: "soft" }, `and ${plural(nMore, "smaller cluster")}`);
  return [...rows, el("tr", {}, more)];
}

function createClusterRow({ kind, leaders, size, limit }, rank, leaderSince) {
  const tie = kind === "tie";
  const icon = tie ? el("i", { class: "tie", "aria-hidden": "true" }) : star();
  setVariables(icon, { "--hue": rank < N_HUES ? `var(--hue-${rank})` : "var(--soft)" });
  const sinceLayer = Math.max(...leaders.map((i) => leaderSince.get(i) ?? 0));
  const names = truncate(leaders, MAX_NAMES, " + ");
  const coordinates = limit.map((x) => x.toFixed(2).replace("-", "\u2212"));
  return el(
    "tr",
    {},
    el("td", {}, icon, tie ? `tie of ${names}` : `leader ${names}`),
    ...[sinceLayer, size.toLocaleString("en"), truncate(coordinates, MAX_COORDINATES, ", ")].map((value) =>
      el("td", { class: "number" }, String(value)),
    ),
  );
}

const truncate = (items, max, separator) =>
  items.slice(0, max).join(separator) + (items.length > max ? " \u2026" : "");
