/* The sum that is the decision: the bias, then leader after leader, up to the logit.
   A table to read and one to listen to; the same rows as a picture to save. Knows one explained text. */

import { colour, side } from "./colour.js";
import { el, plural, setVariables, signed, star } from "./element.js";
import { sentenceOf } from "./sheet.js";

const SHOWN = 9;

/** Rows of {kind, name, from, to, adds, cluster}: each begins where the one before ended. */
export function ledgerRows(item, shown = SHOWN) {
  const ordered = [...item.clusters].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const [kept, rest] =
    ordered.length > shown + 1 ? [ordered.slice(0, shown), ordered.slice(shown)] : [ordered, []];
  const entries = [
    { kind: "bias", name: "bias", adds: item.bias },
    ...kept.map((cluster) => ({
      kind: cluster.kind,
      name: cluster.leaders.join(" + "),
      adds: cluster.contribution,
      cluster,
    })),
  ];
  if (rest.length) {
    const adds = rest.reduce((sum, { contribution }) => sum + contribution, 0);
    entries.push({ kind: "rest", name: `${rest.length} more clusters`, adds, rest });
  }
  let at = 0;
  return entries.map((entry) => ({ ...entry, from: at, to: (at += entry.adds) }));
}

/** The stretch of the axis that all bars need, zero included. */
export function ledgerSpan(rows) {
  const ends = rows.flatMap(({ from, to }) => [from, to]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const pad = 0.04 * (high - low || 1);
  return { low: low - pad, size: high - low + 2 * pad };
}

export class Ledger {
  /** `onPoint(cluster id or null)` hears which row is being looked at. */
  constructor(body, more, onPoint) {
    Object.assign(this, { body, more, onPoint, item: null, open: null, all: false });
    more.addEventListener("click", () => this.showAll(!this.all));
  }

  show(item) {
    if (item?.clusters.length !== this.item?.clusters.length) this.open = null;
    this.item = item;
    this.render();
  }

  showAll(all) {
    this.all = all;
    this.render();
  }

  /** Marks the row of a cluster that is looked at elsewhere. */
  lookAt(cluster) {
    for (const row of this.body.querySelectorAll("tr[data-cluster]")) {
      row.classList.toggle("chosen", cluster !== null && row.dataset.cluster === String(cluster));
    }
  }

  render() {
    const { item } = this;
    this.rows = item ? ledgerRows(item, this.all ? Infinity : SHOWN) : [];
    const span = ledgerSpan(this.rows);
    const lines = this.rows.flatMap((row, k) => this.rowNodes(row, k, span));
    this.body.replaceChildren(...lines, ...(item ? [totalRow(item, span)] : []));
    const many = (item?.clusters.length ?? 0) > SHOWN + 1;
    this.more.hidden = !many;
    this.more.setAttribute("aria-expanded", String(this.all));
    this.more.textContent = this.all ? "Only the largest" : `Show all ${item?.clusters.length} clusters`;
  }

  rowNodes(row, k, span) {
    const id = row.cluster?.id ?? null;
    const point = (cluster) => () => this.onPoint(cluster);
    const line = el(
      "tr",
      { class: row.kind, "data-cluster": id, onpointerenter: point(id), onpointerleave: point(null) },
      el("th", { scope: "row" }, this.nameNode(row, id)),
      el("td", { class: "unseen-narrow" }, barNode(row, k, span)),
      el("td", { class: `number ${row.adds >= 0 ? "pos" : "neg"}` }, signed(row.adds)),
      el("td", { class: "number soft sum" }, signed(row.to)),
    );
    if (id === null || this.open !== id) return [line];
    const words = el("td", { colspan: 3 }, this.wordChips(row.cluster));
    return [line, el("tr", { class: "words", id: `words-${id}` }, words, el("td", { class: "sum" }))];
  }

  nameNode(row, id) {
    if (!row.cluster) return row.name;
    const others = row.cluster.words.length - row.cluster.leaders.length;
    const toggle = () => {
      this.open = this.open === id ? null : id;
      this.render();
      this.body.querySelector(`tr[data-cluster="${id}"] button`)?.focus();
    };
    const open = this.open === id;
    const look = { onclick: toggle, onfocus: () => this.onPoint(id), onblur: () => this.onPoint(null) };
    return el(
      "button",
      {
        type: "button",
        class: "name",
        "aria-expanded": String(open),
        "aria-controls": open ? `words-${id}` : null,
        ...look,
      },
      row.kind === "tie" ? el("i", { class: "tie", "aria-hidden": "true" }) : star(),
      el("span", { class: "who" }, row.name),
      others > 0 &&
        el("small", {}, `+${others}`, el("span", { class: "unseen" }, ` ${others === 1 ? "word" : "words"}`)),
    );
  }

  wordChips(cluster) {
    const members = this.item.words
      .map((word, token) => ({ word, token }))
      .filter(({ word }) => word.cluster === cluster.id);
    members.sort((a, b) => Math.abs(b.word.contribution) - Math.abs(a.word.contribution));
    const chips = members.map(({ word, token }) =>
      el(
        "li",
        { title: `${word.text} ${sentenceOf(this.item, token)}` },
        word.text,
        el("span", { class: word.contribution >= 0 ? "pos" : "neg" }, signed(word.contribution)),
      ),
    );
    return el(
      "ul",
      { class: "members", "aria-label": `${plural(members.length, "word")} of this cluster` },
      chips,
    );
  }
}

function barNode({ from, to, adds }, k, { low, size }) {
  const left = (Math.min(from, to) - low) / size;
  const vars = {
    "--left": left,
    "--width": Math.abs(to - from) / size,
    "--zero": -low / size,
    "--from": (from - low) / size,
    "--k": k,
  };
  const bar = el("i", { class: adds >= 0 ? "pos" : "neg" });
  const node = el("div", { class: "rod", "aria-hidden": "true" }, bar);
  setVariables(node, vars);
  return node;
}

function totalRow(item, { low, size }) {
  const vars = {
    "--left": (Math.min(0, item.logit) - low) / size,
    "--width": Math.abs(item.logit) / size,
    "--zero": -low / size,
  };
  const rod = el(
    "div",
    { class: "rod total", "aria-hidden": "true", vars },
    el("i", { class: item.logit >= 0 ? "pos" : "neg" }),
  );
  return el(
    "tr",
    { class: "total" },
    el("th", { scope: "row" }, "logit"),
    el("td", { class: "unseen-narrow" }, rod),
    el("td", { class: "number", id: "ledger-logit" }, signed(item.logit, 3)),
    el("td", { class: "sum" }),
  );
}

const ROW = 26;
const PICTURE = { width: 640, names: 210, numbers: 70 };

export const ledgerSize = (rows) => ({ width: PICTURE.width, height: (rows.length + 2) * ROW });

/** The same ledger with a painter, for saving. */
export function drawLedger(painter, rows, item) {
  const span = ledgerSpan(rows);
  const width = PICTURE.width - PICTURE.names - PICTURE.numbers;
  const x = (value) => PICTURE.names + (width * (value - span.low)) / span.size;
  const height = ROW * (rows.length + 1.5);
  painter.segments([x(0), ROW * 0.4, x(0), height], { stroke: colour("line") });
  [...rows, { name: "logit", from: 0, to: item.logit, adds: item.logit, kind: "total" }].forEach((row, k) => {
    const y = ROW * (k + 0.8);
    const starred = row.cluster && row.kind === "leader";
    if (starred) painter.star(8, y, 6, { fill: side(row.adds) });
    const name = row.name.length > 26 ? `${row.name.slice(0, 25)}\u2026` : row.name;
    painter.text(20, y, name, { fill: colour("ink"), size: 13, weight: row.kind === "total" ? 600 : 400 });
    painter.rect(
      Math.min(x(row.from), x(row.to)),
      y - 7,
      Math.max(1, Math.abs(x(row.to) - x(row.from))),
      14,
      side(row.adds),
    );
    if (row.kind !== "total")
      painter.segments([x(row.to), y + 7, x(row.to), y + ROW - 7], { stroke: colour("soft"), alpha: 0.5 });
    painter.text(PICTURE.width - 6, y, signed(row.adds), {
      fill: side(row.adds),
      size: 13,
      weight: 600,
      align: "right",
    });
  });
}
