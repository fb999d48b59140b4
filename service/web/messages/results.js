/* The table of classified messages: a chart of the labels, filters, order, pages, and labels that a person has checked. */

import { formatPercent } from "../review/answer.js";
import { UNSURE_REASONS } from "../review/verdict.js";
import { byId, el, signed } from "../shared/element.js";

const PAGE_ROWS = 50;
const MAX_SHOWN_CHARACTERS = 240; // of a text
const MAX_SHOWN_LEADERS = 4;
const SURENESS = { any: [-1], low: [1e-9, 0.6], middle: [0.6, 0.9], high: [0.9, 2] }; // names of options
const LABEL_SEPARATOR = "|"; // between the labels of a multi-label model, as in training files
const [UNSURE, FAILED] = ["\0unsure", "\0failed"]; // kinds beside the labels
const KIND_NAMES = { [UNSURE]: "unsure", [FAILED]: "failed", "": "no label" };
const UNFILTERED = { kind: null, sort: "index", descending: false, page: 0 };
const collator = new Intl.Collator();
const SORT_KEYS = {
  index: (a, b) => a.index - b.index,
  text: (a, b) => collator.compare(a.text, b.text),
  label: (a, b) => collator.compare(kindsOf(a).join(), kindsOf(b).join()),
  score: (a, b) => (surenessOf(a) ?? 0) - (surenessOf(b) ?? 0),
};

/** Returns the labels of a row, or one of the kinds beside the labels. */
function kindsOf({ label, labels, abstain_reason, hardmax_error }) {
  if (hardmax_error) return [FAILED];
  if (abstain_reason) return [UNSURE];
  return labels ? (labels.length ? labels : [""]) : [label];
}

/** The sureness of a row; null far from the training texts, where a probability says nothing. */
const surenessOf = ({ score, abstain_reason: reason }) =>
  typeof score === "number" && (!reason || reason === "low_confidence") ? score : null;

export class ResultTable {
  /** `onOpen(row)` is called for the row to explain, `onCheck()` when a person has checked a label. */
  constructor(onOpen, onCheck) {
    Object.assign(this, { onOpen, onCheck, ...UNFILTERED, rows: [], labels: [], pageRows: PAGE_ROWS });
    for (const id of ["rows-find", "rows-sureness", "rows-checked"])
      byId(id).addEventListener("input", () => this.turn(-Infinity));
    for (const button of document.querySelectorAll("[data-sort]"))
      button.addEventListener("click", () => this.sortBy(button.dataset.sort));
    byId("rows-previous").addEventListener("click", () => this.turn(-1));
    byId("rows-next").addEventListener("click", () => this.turn(1));
    addEventListener("beforeprint", () => this.showPages(Infinity));
    addEventListener("afterprint", () => this.showPages(PAGE_ROWS));
  }

  /** Starts a table of texts without results, for a model with these labels. */
  load(texts, labels) {
    Object.assign(this, { texts, labels, rows: [], ...UNFILTERED });
    for (const id of ["rows-sureness", "rows-checked"]) byId(id).selectedIndex = 0;
    byId("rows-find").value = "";
    this.show();
  }

  /** Adds the results of the next texts. */
  add(results) {
    const first = this.rows.length;
    this.rows.push(
      ...results.map((result, k) => ({ ...result, index: first + k, text: this.texts[first + k], checked: null })),
    );
  }

  get checkedRows() {
    return this.rows.filter(({ checked }) => checked !== null);
  }

  sortBy(name) {
    this.descending = this.sort === name && !this.descending;
    this.sort = name;
    this.turn(-Infinity);
  }

  turn(step) {
    this.page = Math.max(0, this.page + step);
    this.show();
  }

  showPages(pageRows) {
    Object.assign(this, { pageRows, page: pageRows === PAGE_ROWS ? (this.pageBefore ?? 0) : 0, pageBefore: this.page });
    this.show();
  }

  /** Returns the rows that pass the filters, in order. */
  listed() {
    const [low, high] = SURENESS[byId("rows-sureness").value];
    const find = byId("rows-find").value.trim().toLowerCase();
    const checked = byId("rows-checked").value;
    const passes = (row) =>
      (this.kind === null || kindsOf(row).includes(this.kind)) &&
      (low < 0 || (surenessOf(row) >= low && surenessOf(row) < high)) &&
      (!checked || (row.checked !== null) === (checked === "yes")) &&
      (!find || row.text.toLowerCase().includes(find));
    const order = this.descending ? (a, b) => SORT_KEYS[this.sort](b, a) : SORT_KEYS[this.sort];
    return this.rows.filter(passes).sort(order);
  }

  show() {
    const listed = this.listed();
    this.page = Math.min(this.page, Math.max(0, Math.ceil(listed.length / this.pageRows) - 1));
    const first = this.pageRows === Infinity ? 0 : this.page * this.pageRows;
    const shown = listed.slice(first, first + this.pageRows);
    this.showChart();
    this.showBody(shown);
    const last = first + shown.length;
    const of = `${listed.length.toLocaleString("en")}${listed.length < this.rows.length ? " that match" : ""}`;
    byId("rows-page").textContent = shown.length ? `${first + 1}\u2013${last} of ${of}` : "No rows match.";
    byId("rows-pages").hidden = !this.rows.length;
    byId("rows-previous").disabled = this.page === 0;
    byId("rows-next").disabled = last >= listed.length;
    for (const button of document.querySelectorAll("[data-sort]")) {
      const order = button.dataset.sort === this.sort && (this.descending ? "descending" : "ascending");
      button.parentElement.setAttribute("aria-sort", order || "none");
    }
  }

  /** Shows the number of messages per label as bars, which are buttons that filter. */
  showChart() {
    const counts = new Map(this.labels.map((label) => [label, 0]));
    for (const kind of this.rows.flatMap(kindsOf)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const most = Math.max(1, ...counts.values());
    const listed = [...counts].filter(([kind, count]) => count || kind === this.kind);
    const signature = JSON.stringify([listed, this.kind]);
    if (signature === this.chartSignature) return; // a redrawn button would lose the focus
    this.chartSignature = signature;
    const chart = byId("rows-chart");
    const focused = chart.contains(document.activeElement) ? document.activeElement.dataset.kind : null;
    chart.replaceChildren(...listed.map(([kind, count]) => this.createBar(kind, count, count / most)));
    [...chart.children].find(({ dataset }) => dataset.kind === focused)?.focus();
  }

  createBar(kind, count, share) {
    const pressed = kind === this.kind;
    const onclick = () => {
      this.kind = pressed ? null : kind;
      this.turn(-Infinity);
    };
    const percent = formatPercent(count / this.rows.length).replace("over 99.9", "100");
    return el(
      "button",
      { type: "button", class: "label-button", "data-kind": kind, "aria-pressed": String(pressed), onclick },
      el("span", {}, KIND_NAMES[kind] ?? kind),
      el("b", {}, `${count.toLocaleString("en")}, ${percent}`),
      el("i", { class: this.sideOf(kind), vars: { "--probability": share }, "aria-hidden": "true" }),
    );
  }

  /** The colour of a label: ends of a scale have sides, as in the verdict. */
  sideOf(kind) {
    const isScale = this.labels.length <= 3 && !this.rows[0]?.labels;
    if (!isScale || !this.labels.includes(kind)) return "none";
    return { 0: "neg", [this.labels.length - 1]: "pos" }[this.labels.indexOf(kind)] ?? "none";
  }

  showBody(shown) {
    const isSame = this.shown?.length === shown.length && shown.every((row, k) => row === this.shown[k]);
    if (isSame) return; // keeps the focus while results arrive
    this.shown = shown;
    byId("rows-body").replaceChildren(...shown.map((row) => this.createRow(row)));
  }

  createRow(row) {
    const { index, text, leaders, hardmax_error: error } = row;
    const sureness = surenessOf(row);
    const shortText = text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}\u2026` : text;
    const open = { type: "button", class: "link", onclick: () => this.onOpen(row), disabled: !text.trim() };
    return el(
      "tr",
      { class: row.checked === null ? null : "checked", "data-row": index },
      el("td", { class: "number soft" }, (index + 1).toLocaleString("en")),
      el("td", {}, el("button", open, shortText || "(blank)")),
      el("td", {}, ...(error ? [el("span", { class: "fine" }, `failed: ${error}`)] : this.createLabelNodes(row))),
      el("td", { class: "number" }, sureness === null ? "" : formatPercent(sureness)),
      el("td", { class: "main-words" }, ...(leaders ?? []).slice(0, MAX_SHOWN_LEADERS).map(createWord)),
    );
  }

  /** Returns the control that corrects the label, the box that confirms it, and why the model is unsure. */
  createLabelNodes(row) {
    const { index, label, labels, abstain_reason: reason } = row;
    const answered = reason ? "" : labels ? labels.join(LABEL_SEPARATOR) : label;
    const current = row.checked ?? answered;
    const name = `Label of row ${index + 1}`;
    const control = labels
      ? this.createLabelInput(current, name)
      : this.createLabelSelect(current, name, Boolean(reason));
    control.addEventListener("change", () => control.checkValidity() && this.check(row, control.value || null));
    const box = el("input", { type: "checkbox", checked: row.checked !== null, disabled: !current && !labels });
    box.addEventListener("change", () => this.check(row, box.checked ? control.value : null));
    const tick = el(
      "label",
      { class: "tick" },
      box,
      row.checked === null || row.checked === answered ? "right" : "corrected",
    );
    const note = reason ? (UNSURE_REASONS[reason] ?? reason) : "";
    const was = row.checked !== null && row.checked !== answered && answered ? `was ${answered}` : "";
    return [control, tick, el("span", { class: "fine" }, [note, was].filter(Boolean).join(", "))];
  }

  createLabelSelect(current, name, isUnsure) {
    const options = this.labels.map((label) => el("option", { value: label, selected: label === current }, label));
    const none = isUnsure || !current ? [el("option", { value: "" }, "unsure")] : [];
    return el("select", { "aria-label": name }, ...none, ...options);
  }

  createLabelInput(current, name) {
    const title = `One or more of ${this.labels.join(", ")}, separated by ${LABEL_SEPARATOR}`;
    const input = el("input", { type: "text", value: current, title, "aria-label": name });
    input.addEventListener("input", () => {
      const unknown = input.value && input.value.split(LABEL_SEPARATOR).find((label) => !this.labels.includes(label));
      input.setCustomValidity(unknown ? `${unknown} is not a label of this model` : "");
    });
    return input;
  }

  /** Stores the label that a person has given; null takes it back. */
  check(row, label) {
    row.checked = label;
    const node = document.querySelector(`#rows-body [data-row="${row.index}"]`);
    const tag = document.activeElement?.type;
    const fresh = this.createRow(row);
    node.replaceWith(fresh);
    fresh.querySelector(tag === "checkbox" ? "[type=checkbox]" : "select, [type=text]")?.focus();
    this.onCheck();
  }
}

const createWord = ([word, contribution]) =>
  el("span", { class: contribution >= 0 ? "pos" : "neg", title: signed(contribution) }, word);

/** "612 positive, 301 negative, 14 unsure" */
export function formatCounts(rows) {
  const counts = new Map();
  for (const kind of rows.flatMap(kindsOf)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.map(([kind, count]) => `${count.toLocaleString("en")} ${KIND_NAMES[kind] ?? kind}`).join(", ");
}
