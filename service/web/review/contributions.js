/* The table of contributions: the bias and a row per cluster, which add up to the logit. A row opens its words. */

import { buildContributionRows, computeAxisRange, formatRead, roundSteps } from "./answer.js";
import { el, plural, signed, star } from "../shared/element.js";

const MAX_COLLAPSED_CLUSTERS = 8;

export class ContributionTable {
  /** `onSelectCluster(id)` and `onSelectWord(index)` are called on hover and focus, with null at their end. */
  constructor(body, moreButton, { onSelectCluster, onSelectWord }) {
    Object.assign(this, { body, moreButton, onSelectCluster, onSelectWord });
    Object.assign(this, { answer: null, openId: null, expanded: false });
    moreButton.addEventListener("click", () => this.setExpanded(!this.expanded));
  }

  show(answer) {
    if (answer?.text !== this.answer?.text) this.openId = null;
    this.answer = answer;
    this.render();
  }

  setExpanded(expanded) {
    this.expanded = expanded;
    this.render();
  }

  /** Highlights the row of a cluster; null clears the highlight. */
  highlight(clusterId) {
    for (const row of this.body.querySelectorAll("tr[data-cluster]"))
      row.classList.toggle("highlighted", clusterId !== null && row.dataset.cluster === String(clusterId));
  }

  render() {
    const { answer, expanded, moreButton } = this;
    const rows = answer ? buildContributionRows(answer, expanded ? Infinity : MAX_COLLAPSED_CLUSTERS) : [];
    const range = computeAxisRange(rows);
    const total = rows.length ? [createTotalRow(rows.at(-1).to, range, answer)] : [];
    this.body.replaceChildren(...rows.flatMap((row) => this.createRow(row, range)), ...total);
    const hasMore =
      answer !== null &&
      buildContributionRows(answer, MAX_COLLAPSED_CLUSTERS).some(({ kind }) => kind === "rest");
    moreButton.hidden = !hasMore;
    moreButton.setAttribute("aria-expanded", String(expanded));
    moreButton.textContent = expanded ? "Show fewer" : `Show all ${answer?.clusters.length} clusters`;
  }

  /** Returns the row of a term and, if it is open, the row with its words. */
  createRow(row, range) {
    const id = row.cluster?.id ?? null;
    const select = (clusterId) => () => this.onSelectCluster(clusterId);
    const node = el(
      "tr",
      { class: row.kind, "data-cluster": id, onpointerenter: select(id), onpointerleave: select(null) },
      el("th", { scope: "row" }, this.createRowHeader(row, id)),
      el("td", {}, createBar(row, range)),
      el("td", { class: `number ${row.rounded >= 0 ? "pos" : "neg"}` }, signed(row.rounded)),
      el("td", { class: "number soft sum" }, signed(row.to)),
    );
    if (id === null || this.openId !== id) return [node];
    const words = el("td", { colspan: 3 }, this.createWordList(row));
    return [node, el("tr", { class: "words", id: `words-${id}` }, words, el("td", { class: "sum" }))];
  }

  createRowHeader(row, id) {
    if (row.kind === "bias") return "bias";
    if (!row.cluster) return plural(row.count, "smaller cluster");
    const isOpen = this.openId === id;
    const toggle = () => {
      this.openId = isOpen ? null : id;
      this.render();
      this.body.querySelector(`tr[data-cluster="${id}"] button`)?.focus();
    };
    const events = {
      onclick: toggle,
      onfocus: () => this.onSelectCluster(id),
      onblur: () => this.onSelectCluster(null),
    };
    const state = { "aria-expanded": String(isOpen), "aria-controls": isOpen ? `words-${id}` : null };
    return el(
      "button",
      { type: "button", class: "name", ...state, ...events },
      el("span", { class: "leaders" }, formatLeaders(row.cluster, this.answer.words)),
      el("small", {}, formatDetails(row.cluster, this.answer.words)),
    );
  }

  /** Returns the words of a cluster by size; their contributions add up to that of the row. */
  createWordList({ cluster, value }) {
    const { words } = this.answer;
    const steps = roundSteps(cluster.members.map((index) => words[index].contribution));
    const select = (index) => () => this.onSelectWord(index);
    const items = cluster.members.map((index, k) => {
      const { contribution, leader, text } = words[index];
      const events = {
        onpointerenter: select(index),
        onfocus: select(index),
        onpointerleave: select(null),
        onblur: select(null),
      };
      const amount = el("span", { class: contribution >= 0 ? "pos" : "neg" }, signed(steps[k].rounded));
      const properties = { type: "button", class: "member", ...events };
      return el("li", {}, el("button", properties, leader ? star() : null, text, amount));
    });
    const label = `${plural(items.length, "word")}, total ${signed(value)}`;
    return el("ul", { class: "members", "aria-label": label }, items);
  }
}

/** "\u2605 bad", or "\u25c7 good and film" for a tie between leaders. */
function formatLeaders({ kind, leaders }, words) {
  const names = [...new Set(leaders.map((index) => words[index].text))];
  return [kind === "tie" ? el("i", { class: "tie", "aria-hidden": "true" }) : star(), names.join(" and ")];
}

/** "read not, at, all \u00b7 5 words" */
function formatDetails({ kind, leaders, members }, words) {
  const read = kind === "leader" && leaders.length ? formatRead(leaders[0], words, 2) : null;
  return [read && `read ${read} \u00b7 `, plural(members.length, "word")];
}

/** Returns the bar of a waterfall chart from one running total to the next. */
function createBar({ from, to, rounded }, { low, size }) {
  const vars = {
    "--left": (Math.min(from, to) - low) / size,
    "--width": Math.abs(to - from) / size,
    "--zero": -low / size,
    "--from": (from - low) / size,
  };
  return el(
    "div",
    { class: "waterfall", "aria-hidden": "true", vars },
    el("i", { class: rounded >= 0 ? "pos" : "neg" }),
  );
}

function createTotalRow(logit, range, { perLabel, shownLabel }) {
  return el(
    "tr",
    { class: "total" },
    el("th", { scope: "row" }, perLabel ? `logit of ${shownLabel}` : "logit"),
    el("td", {}, createBar({ from: 0, to: logit, rounded: logit }, range)),
    el("td", { class: "number", id: "contributions-logit" }, signed(logit)),
    el("td", { class: "sum" }),
  );
}
