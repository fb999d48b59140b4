/* The mode for many messages: pasted lines or a file become a table with a label per row. */

import { ApiError, formatError } from "../shared/api.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { download } from "../shared/figure.js";
import { BATCH_ROWS, BatchClassifier } from "./classifier.js";
import { ResultTable, formatCounts } from "./results.js";
import { encodeText, findTextColumn, formatCsv, openFile, parsePasted } from "./table.js";

const REDRAW_MS = 300; // while results arrive
const OUTPUT_COLUMNS = ["label", "score", "abstain_reason", "truncated", "leaders", "hardmax_error"]; // as in the CLI
const TRAINING_FORMAT = { separator: ",", newline: "\n", encoding: "utf-8", mark: true };

export class Messages {
  /** `explain(text)` shows a text in the other mode; `onChange()` is called when the link may have changed. */
  constructor(api, choice, { explain, onChange }) {
    Object.assign(this, { choice, explain, onChange, classifier: new BatchClassifier(api) });
    Object.assign(this, { source: null, table: null, texts: [], controller: null, model: null });
    this.results = new ResultTable(
      (row) => this.openRow(row),
      () => this.showState(),
    );
    choice.listeners.push(() => this.showState());
    this.addListeners();
  }

  addListeners() {
    const on = (id, action, type = "click") => byId(id).addEventListener(type, action);
    on("messages-run", () => this.usePasted());
    const isSubmit = ({ key, ctrlKey, metaKey }) => key === "Enter" && (ctrlKey || metaKey);
    on("messages-text", (event) => isSubmit(event) && this.usePasted(), "keydown");
    on("rows-file", ({ target }) => target.files[0] && this.useFile(target.files[0]), "change");
    on("rows-sheet", () => this.useSheet(byId("rows-sheet").value), "change");
    on("rows-column", () => this.start(), "change");
    on("rows-stop", () => (this.controller ? this.stop() : this.run()));
    on("rows-again", () => this.start());
    on("rows-save", () => this.save());
    on("rows-train", () => this.saveTraining());
    on("row-previous", () => this.openRow(this.neighbour(-1)));
    on("row-next", () => this.openRow(this.neighbour(1)));
    on("row-back", () => (location.hash = "#messages"));
    on("review-text", () => this.leaveRow(), "input");
    for (const id of ["view-review", "view-messages"])
      for (const type of ["dragover", "dragleave", "drop"]) on(id, (event) => this.handleDrag(event), type);
  }

  /** A file that is dropped in either mode is opened here; dragged text goes to the editor. */
  handleDrag(event) {
    if (![...event.dataTransfer.items].some(({ kind }) => kind === "file")) return;
    event.preventDefault();
    event.currentTarget.classList.toggle("dropping", event.type === "dragover");
    if (event.type === "drop") this.useFile(event.dataTransfer.files[0]);
  }

  /** The values of the address, which never contains the messages. */
  link() {
    return { values: { model: this.choice.linked }, note: this.texts.length ? "without the messages" : null };
  }

  async open(values) {
    this.choice.request(values.get("model"));
    await this.attempt(async () => {
      await this.choice.load();
      showError(byId("messages-error"), this.choice.notice);
      this.showState();
      this.onChange();
    });
  }

  /** Runs a task and shows its error, if any. */
  async attempt(task, subject = "") {
    try {
      await task();
    } catch (error) {
      const isServer = error instanceof ApiError || !subject;
      showError(byId("messages-error"), isServer ? formatError(error) : `${subject} cannot be read: ${error.message}.`);
    }
  }

  usePasted() {
    return this.attempt(() => {
      const table = parsePasted(byId("messages-text").value);
      return this.useSource({ name: "", sheets: [], read: async () => table });
    }, "The pasted text");
  }

  /** Classifies pasted lines of the other mode. */
  paste(text) {
    byId("messages-text").value = text;
    location.hash = "#messages";
    return this.usePasted();
  }

  useFile(file) {
    location.hash = "#messages";
    byId("rows-file").value = ""; // so that the same file can be opened again
    return this.attempt(async () => this.useSource({ name: file.name, ...(await openFile(file)) }), file.name);
  }

  /** Classifies the first sheet that has rows. A source without rows leaves the table as it is. */
  async useSource(source) {
    for (const sheet of source.sheets.length ? source.sheets : [null]) {
      const table = await source.read(sheet);
      if (!table.rows.length) continue;
      this.source = source;
      const options = source.sheets.map((name) => el("option", { value: name }, name));
      byId("rows-sheet").replaceChildren(...options);
      byId("sheet-pick").hidden = options.length < 2;
      byId("rows-sheet").value = sheet ?? "";
      return this.useTable(table);
    }
    throw new Error(source.name ? "the file has no rows" : "it has no text");
  }

  useSheet(name) {
    return this.attempt(async () => {
      const table = await this.source.read(name);
      if (!table.rows.length) throw new Error(`the sheet \u201c${name}\u201d has no rows`);
      return this.useTable(table);
    }, this.source.name);
  }

  async useTable(table) {
    this.table = table;
    const options = table.columns.map((name) => el("option", { value: name }, name));
    byId("rows-column").replaceChildren(...options);
    byId("rows-column").value = findTextColumn(table);
    byId("column-pick").hidden = options.length < 2;
    byId("rows").hidden = false;
    byId("rows").scrollIntoView();
    byId("rows-title").focus({ preventScroll: true });
    return this.start();
  }

  /** Classifies all rows with the selected model. */
  async start() {
    this.stop();
    this.leaveRow();
    const column = byId("rows-column").value;
    this.texts = this.table.rows.map((row) => String(row[column] ?? ""));
    this.model = await this.choice.load(); // for all rows, even if another model is selected meanwhile
    showError(byId("messages-error"), this.choice.notice);
    this.results.load(this.texts, this.model.labels ?? []);
    this.onChange();
    return this.run();
  }

  stop() {
    this.controller?.abort();
  }

  /** Classifies the rows that have no result yet. */
  async run() {
    const controller = (this.controller = new AbortController());
    const { signal } = controller;
    const { rows } = this.results;
    const { name } = this.model;
    let [failure, shownAt] = [null, -Infinity];
    try {
      while (rows.length < this.texts.length && !signal.aborted) {
        if (performance.now() - shownAt > REDRAW_MS) {
          this.show();
          shownAt = performance.now();
        }
        const batch = this.texts.slice(rows.length, rows.length + BATCH_ROWS);
        const results = await this.classifier.classify(batch, name, signal);
        if (!signal.aborted) this.results.add(results);
      }
    } catch (error) {
      failure = error.name === "AbortError" ? null : error;
    }
    if (this.controller !== controller) return; // another run has started
    this.controller = null;
    this.show(failure);
    announce(byId("rows-state").textContent);
  }

  show(failure = null) {
    this.failure = failure;
    this.results.show();
    this.showState();
  }

  /** Shows the progress, the model and the counts, and whether the results are those of the selected model. */
  showState() {
    if (!this.table || !this.model) return;
    const { rows, checkedRows } = this.results;
    const [total, isDone] = [this.texts.length, rows.length === this.texts.length];
    byId("rows-title").textContent = this.source.name ? `Rows of ${this.source.name}` : plural(total, "message");
    Object.assign(byId("rows-progress"), { max: total, value: rows.length, hidden: isDone });
    byId("rows-stop").textContent = this.controller ? "Stop" : "Continue";
    byId("rows-stop").hidden = isDone;
    byId("rows-save").disabled = !rows.length;
    byId("rows-train").disabled = !checkedRows.length;
    byId("rows-train").textContent = `Training file${checkedRows.length ? ` (${checkedRows.length})` : ""}`;
    const note = this.failure ? ` ${formatError(this.failure)}` : this.controller || isDone ? "" : " Stopped.";
    const progress = `${rows.length.toLocaleString("en")} of ${plural(total, "row")} classified by ${this.describeModel()}`;
    byId("rows-state").textContent = `${progress}${rows.length ? `: ${formatCounts(rows)}` : ""}.${note}`;
    this.showStale();
  }

  /** The name of the model, and its version if the answers tell it. */
  describeModel() {
    const versions = this.versions();
    return `${this.model.name}${versions.length ? ` (version ${versions.join(" and ")})` : ""}`;
  }

  versions() {
    return [...new Set(this.results.rows.map(({ version }) => version).filter((version) => version !== undefined))];
  }

  showStale() {
    const selected = this.choice.model;
    const isOther = selected && selected.name !== this.model.name;
    const isMixed = this.versions().length > 1;
    byId("rows").classList.toggle("stale", Boolean(isOther));
    byId("rows-stale").hidden = !isOther && !isMixed;
    byId("rows-stale-text").textContent = isOther
      ? `These labels are of ${this.model.name}; you have selected ${selected.name}.`
      : "The model was replaced while these rows were classified.";
  }

  /** Opens the explanation of a row in the other mode, by the model of the table. */
  openRow(row) {
    this.choice.select(this.model.name);
    this.row = row;
    this.showRowBar();
    this.explain(row.text);
  }

  /** Returns the next row of the table that has a text, in its order and with its filters; the previous for step -1. */
  neighbour(step) {
    const listed = this.results.listed().filter((row) => row === this.row || row.text.trim());
    return listed[listed.indexOf(this.row) + step];
  }

  showRowBar() {
    byId("row-bar").hidden = !this.row;
    if (!this.row) return;
    byId("row-name").textContent = `Row ${this.row.index + 1} of ${this.texts.length}`;
    byId("row-previous").disabled = !this.neighbour(-1);
    byId("row-next").disabled = !this.neighbour(1);
  }

  /** The text of the other mode has been edited: it is no longer that of a row. */
  leaveRow() {
    this.row = null;
    this.showRowBar();
  }

  /** Returns the focus to the row whose explanation was open. */
  enter() {
    if (!this.row) return;
    const button = document.querySelector(`#rows-body [data-row="${this.row.index}"] button`);
    button?.scrollIntoView({ block: "center" });
    button?.focus({ preventScroll: true });
  }

  /** Downloads the rows with the output columns. Those that the file has too get the prefix "hardmax_". */
  save() {
    const { columns: inputColumns, format, rows } = this.table;
    const { checkedRows } = this.results;
    const names = checkedRows.length ? [...OUTPUT_COLUMNS, "checked_label"] : OUTPUT_COLUMNS;
    const rename = (name) => (inputColumns.includes(name) ? `hardmax_${name.replace(/^hardmax_/, "")}` : name);
    const saved = this.results.rows.map((result) => {
      const values = toOutput(result);
      return { ...rows[result.index], ...Object.fromEntries(names.map((name) => [rename(name), values[name]])) };
    });
    const columns = [...new Set([...inputColumns, ...names.map(rename)])];
    const basename = this.source.name.replace(/\.\w+$/, "") || "messages";
    saveCsv(`${basename}-classified.csv`, columns, saved, format);
  }

  /** Downloads the checked rows as a file that `hardmax-export train` reads. */
  saveTraining() {
    const rows = this.results.checkedRows.map(({ text, checked }) => ({ text, label: checked }));
    saveCsv("training.csv", ["text", "label"], rows, TRAINING_FORMAT);
  }
}

function saveCsv(name, columns, rows, format) {
  const content = encodeText(formatCsv(columns, rows, format), format);
  download(name, new Blob([content], { type: "text/csv" }));
}

/** Converts a result to output columns. Leaders are listed with their contributions. */
function toOutput({ labels, label, leaders, checked, ...rest }) {
  const format = ([word, x]) => `${word} ${x < 0 ? "" : "+"}${x.toFixed(2)}`;
  return {
    ...rest,
    label: labels ? labels.join(", ") : label,
    leaders: (leaders ?? []).map(format).join("; "),
    checked_label: checked,
  };
}
