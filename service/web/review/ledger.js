/* The sum that is the decision: the bias, then leader after leader, up to the logit.
   A table to read and one to listen to. Knows one answer. */

import { readBy, rowsOf, spanOf, stepsOf } from "./answer.js";
import { el, plural, signed, star } from "../shared/element.js";

const SHOWN = 8;

export class Ledger {
  /** `onPoint(cluster or null)` and `onWord(token or null)` hear what is being looked at. */
  constructor(body, more, { onPoint, onWord }) {
    Object.assign(this, { body, more, onPoint, onWord, answer: null, open: null, all: false });
    more.addEventListener("click", () => this.showAll(!this.all));
  }

  show(answer) {
    if (answer?.text !== this.answer?.text) this.open = null;
    this.answer = answer;
    this.render();
  }

  showAll(all) {
    this.all = all;
    this.render();
  }

  /** Marks the row of a cluster that is looked at elsewhere. */
  lookAt(cluster) {
    for (const row of this.body.querySelectorAll("tr[data-cluster]"))
      row.classList.toggle("chosen", cluster !== null && row.dataset.cluster === String(cluster));
  }

  render() {
    const { answer } = this;
    const rows = answer ? rowsOf(answer, this.all ? Infinity : SHOWN) : [];
    const span = spanOf(rows);
    const total = rows.length ? [totalRow(rows.at(-1).to, span, answer)] : [];
    this.body.replaceChildren(...rows.flatMap((row) => this.rowNodes(row, span)), ...total);
    const many = answer !== null && rowsOf(answer, SHOWN).some(({ kind }) => kind === "rest");
    this.more.hidden = !many;
    this.more.setAttribute("aria-expanded", String(this.all));
    this.more.textContent = this.all ? "Only the largest" : `Show all ${answer?.clusters.length} rows`;
  }

  rowNodes(row, span) {
    const id = row.cluster?.id ?? null;
    const point = (cluster) => () => this.onPoint(cluster);
    const line = el(
      "tr",
      { class: row.kind, "data-cluster": id, onpointerenter: point(id), onpointerleave: point(null) },
      el("th", { scope: "row" }, this.nameNode(row, id)),
      el("td", {}, barNode(row, span)),
      el("td", { class: `number ${row.adds >= 0 ? "pos" : "neg"}` }, signed(row.adds)),
      el("td", { class: "number soft sum" }, signed(row.to)),
    );
    if (id === null || this.open !== id) return [line];
    const words = el("td", { colspan: 3 }, this.wordList(row));
    return [line, el("tr", { class: "words", id: `words-${id}` }, words, el("td", { class: "sum" }))];
  }

  nameNode(row, id) {
    if (row.kind === "bias") return "bias";
    if (!row.cluster) return `${plural(row.count, "smaller row")}`;
    const toggle = () => {
      this.open = this.open === id ? null : id;
      this.render();
      this.body.querySelector(`tr[data-cluster="${id}"] button`)?.focus();
    };
    const open = this.open === id;
    const look = { onclick: toggle, onfocus: () => this.onPoint(id), onblur: () => this.onPoint(null) };
    const state = { "aria-expanded": String(open), "aria-controls": open ? `words-${id}` : null };
    return el(
      "button",
      { type: "button", class: "name", ...state, ...look },
      el("span", { class: "who" }, whoLeads(row.cluster, this.answer.words)),
      el("small", {}, madeOf(row.cluster, this.answer.words)),
    );
  }

  /** The words of a cluster, heaviest first; together they add what the row adds. */
  wordList({ cluster, value }) {
    const { words } = this.answer;
    const steps = stepsOf(cluster.members.map((token) => words[token].contribution));
    const look = (token) => () => this.onWord(token);
    const chips = cluster.members.map((token, k) => {
      const see = {
        onpointerenter: look(token),
        onfocus: look(token),
        onpointerleave: look(null),
        onblur: look(null),
      };
      const adds = el(
        "span",
        { class: words[token].contribution >= 0 ? "pos" : "neg" },
        signed(steps[k].adds),
      );
      const mark = words[token].leader ? star() : null;
      return el(
        "li",
        {},
        el("button", { type: "button", class: "member", ...see }, mark, words[token].text, adds),
      );
    });
    const label = `${plural(chips.length, "word")}, together ${signed(value)}`;
    return el("ul", { class: "members", "aria-label": label }, chips);
  }
}

/** "\u2605 bad", or "\u25c7 good and film" where followers stay between leaders. */
function whoLeads({ kind, leaders }, words) {
  const names = [...new Set(leaders.map((token) => words[token].text))];
  return [kind === "tie" ? el("i", { class: "tie", "aria-hidden": "true" }) : star(), names.join(" and ")];
}

/** "read not, at, all \u00b7 5 words" */
function madeOf({ kind, leaders, members }, words) {
  const read = kind === "leader" && leaders.length ? readBy(leaders[0], words, 2) : null;
  return [read && `read ${read} \u00b7 `, plural(members.length, "word")];
}

function barNode({ from, to, adds }, { low, size }) {
  const vars = {
    "--left": (Math.min(from, to) - low) / size,
    "--width": Math.abs(to - from) / size,
    "--zero": -low / size,
    "--from": (from - low) / size,
  };
  return el(
    "div",
    { class: "rod", "aria-hidden": "true", vars },
    el("i", { class: adds >= 0 ? "pos" : "neg" }),
  );
}

function totalRow(logit, span, { several, shown }) {
  return el(
    "tr",
    { class: "total" },
    el("th", { scope: "row" }, several ? `logit of ${shown}` : "logit"),
    el("td", {}, barNode({ from: 0, to: logit, adds: logit }, span)),
    el("td", { class: "number", id: "ledger-logit" }, signed(logit)),
    el("td", { class: "sum" }),
  );
}
