/* What the service found about a cloud, in words and as a table. Knows the answer of /dynamics. */

import { byId, el, plural, setVariables, star } from "./element.js";
import { HUES } from "./colour.js";
import { ranksOf } from "./landscape.js";

const ROWS = 40;

/** "certified at layer 3, margin 0.0123" and its kin: {short, sure, long}. */
export function verdictOf(answer) {
  const { status, certified_layer: layer, margin } = answer;
  if (status === "certified") {
    const safe = margin === null ? "" : `, margin ${margin.toPrecision(3)}`;
    const long = `Certified at layer ${layer}${safe}: from here on nobody changes whom they follow, so where everybody ends is known exactly.`;
    return { short: `Certified at layer ${layer}`, sure: true, long };
  }
  if (status === "converged") {
    const long = `Converged after ${plural(answer.layers, "layer")}: nothing moves any more, but a tie is decided only in the limit, so no certificate.`;
    return { short: `Converged after ${plural(answer.layers, "layer")}`, sure: false, long };
  }
  return {
    short: `Stopped at layer ${answer.layers}`,
    sure: false,
    long: `Stopped after ${plural(answer.layers, "layer")} without a certificate.`,
  };
}

export function showBadge(node, answer) {
  node.hidden = !answer;
  if (!answer) return;
  const { short, sure } = verdictOf(answer);
  const margin = answer.margin === null || !sure ? "" : `, margin ${answer.margin.toPrecision(2)}`;
  node.replaceChildren(
    el("span", { class: sure ? "ok" : "" }, sure ? "\u2713 " : ""),
    el("b", {}, short),
    margin,
  );
}

/** `answer` is null while there is none: no point is placed, or it is on its way. */
export function showOutcome(answer, film) {
  const lines = byId("clusters");
  if (!answer) {
    byId("outcome").textContent = film.n ? "\u2026" : "Place a point, and see.";
    lines.replaceChildren();
    byId("emerging").replaceChildren();
    return;
  }
  const { clusters, leaders, n } = answer;
  const ties = clusters.filter(({ kind }) => kind === "tie").length;
  const counts = `${plural(n, "point")}, ${plural(leaders.length, "leader")}, ${plural(clusters.length, "cluster")}${ties ? ` (${plural(ties, "tie")})` : ""}.`;
  byId("outcome").textContent = `${verdictOf(answer).long} ${counts}`;
  byId("emerging").replaceChildren(
    ...film.emerging
      .slice(0, 6)
      .map(({ index, layer }) => el("li", {}, star(), `Point ${index} becomes a leader at layer ${layer}.`)),
  );
  lines.replaceChildren(...clusterRows(answer));
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
          .slice(0, 2)
          .map((x) => x.toFixed(2).replace("-", "\u2212"))
          .join(", "),
      ),
    );
  });
  const more = ordered.length - rows.length;
  return more > 0
    ? [...rows, el("tr", {}, el("td", { colspan: 4, class: "soft" }, `and ${plural(more, "smaller cluster")}`))]
    : rows;
}
