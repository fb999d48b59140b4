/* Classifies the rows of a file in batches, with progress; the result can be downloaded as csv. */

import { formatError } from "../shared/api.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { download } from "../shared/figure.js";
import { formatPercent } from "./answer.js";
import { decodeFile, findTextColumn, formatCsv, parseTable } from "./table.js";

const BATCH_ROWS = 64;
const MAX_SHOWN_ROWS = 100;
const MAX_SHOWN_CHARACTERS = 160; // of a text
const DEFAULT_RETRY_S = 2; // if a busy server sends no Retry-After
const MIN_EXPORTED_CONTRIBUTION = 0.05; // of a leader
const OUTPUT_COLUMNS = ["label", "score", "abstain_reason", "truncated", "leaders", "hardmax_error"]; // as in the CLI

export class FileClassifier {
  /** `getModel()` returns the name of the selected model. */
  constructor(api, getModel) {
    Object.assign(this, { api, getModel, table: null, results: [], controller: null });
    byId("rows-file").addEventListener("change", ({ target }) => this.open(target.files[0]));
    byId("rows-column").addEventListener("change", () => this.start());
    byId("rows-stop").addEventListener("click", () => (this.controller ? this.stop() : this.run()));
    byId("rows-save").addEventListener("click", () => this.save());
    byId("rows-close").addEventListener("click", () => this.close());
    const view = byId("view-review");
    for (const [name, isDragging] of Object.entries({ dragover: true, dragleave: false, drop: false }))
      view.addEventListener(name, (event) => {
        if (![...event.dataTransfer.items].some(({ kind }) => kind === "file")) return; // text goes to the editor
        event.preventDefault();
        view.classList.toggle("dropping", isDragging);
        if (name === "drop") this.open(event.dataTransfer.files[0]);
      });
  }

  async open(file) {
    try {
      const table = parseTable(await decodeFile(file), file.name);
      if (!table.rows.length) throw new Error("the file has no rows");
      this.table = table;
    } catch (error) {
      return showError(byId("review-error"), `${file.name} cannot be read: ${error.message}.`);
    } finally {
      byId("rows-file").value = ""; // so that the same file can be opened again
    }
    showError(byId("review-error"), null);
    this.filename = file.name;
    byId("rows-title").textContent = `Rows of ${file.name}`;
    const { columns } = this.table;
    byId("rows-column").replaceChildren(...columns.map((name) => el("option", { value: name }, name)));
    byId("rows-column").value = findTextColumn(this.table);
    byId("rows-pick").hidden = columns.length < 2;
    byId("rows").hidden = false;
    byId("rows").scrollIntoView({ block: "nearest" });
    return this.start();
  }

  close() {
    this.stop();
    byId("rows").hidden = true;
  }

  stop() {
    this.controller?.abort();
  }

  start() {
    this.stop();
    const column = byId("rows-column").value;
    this.model = this.getModel(); // for all rows, even if another model is selected meanwhile
    this.texts = this.table.rows.map((row) => String(row[column] ?? ""));
    this.results = [];
    return this.run();
  }

  /** Classifies the rows that have no result yet. */
  async run() {
    const controller = (this.controller = new AbortController());
    const { signal } = controller;
    let failure = null;
    try {
      while (this.results.length < this.texts.length) {
        this.show(failure);
        const { length } = this.results;
        const batch = this.texts.slice(length, length + BATCH_ROWS);
        const rows = await this.classify(batch.filter(isNotEmpty), signal);
        if (signal.aborted) break;
        this.results.push(
          ...batch.map((text) => (isNotEmpty(text) ? rows.shift() : { hardmax_error: "the text is empty" })),
        );
      }
    } catch (error) {
      failure = error.name === "AbortError" ? null : error;
    }
    if (this.controller !== controller) return; // another run has started
    this.controller = null;
    this.show(failure);
    announce(byId("rows-state").textContent);
  }

  /** Resolves to one row per text. Retries while the server is busy. A rejected batch is split in halves until the
      rejected text is alone; its row has a `hardmax_error`. */
  async classify(texts, signal) {
    if (!texts.length) return [];
    try {
      const body = { input: texts.length === 1 ? texts[0] : texts, model: this.model, explain: "leaders" };
      return (await this.api.post("/classify", body, signal)).data.map(toRow);
    } catch (error) {
      if ([429, 503].includes(error.status)) {
        await wait(1000 * (error.retryAfter ?? DEFAULT_RETRY_S), signal);
        return signal.aborted ? [] : this.classify(texts, signal);
      }
      if (![400, 413, 422].includes(error.status)) throw error;
      if (texts.length === 1) return [{ hardmax_error: error.message }];
      const half = texts.length >> 1;
      return [
        ...(await this.classify(texts.slice(0, half), signal)),
        ...(await this.classify(texts.slice(half), signal)),
      ];
    }
  }

  show(failure) {
    const { results, texts, controller } = this;
    const isDone = results.length === texts.length;
    Object.assign(byId("rows-progress"), { max: texts.length, value: results.length });
    byId("rows-stop").textContent = controller ? "Stop" : "Continue";
    byId("rows-stop").hidden = isDone;
    byId("rows-save").disabled = !results.length;
    const note = failure ? ` ${formatError(failure)}` : controller || isDone ? "" : " Stopped.";
    const progress = `${results.length.toLocaleString("en")} of ${plural(texts.length, "row")}`;
    byId("rows-state").textContent = `${progress}${results.length ? `: ${formatCounts(results)}` : ""}.${note}`;
    byId("rows-body").replaceChildren(
      ...results.slice(0, MAX_SHOWN_ROWS).map((result, k) => createRow(texts[k], result)),
    );
  }

  /** Downloads the file with the output columns. Those that the file has too get the prefix "hardmax_". */
  save() {
    const inputColumns = this.table.columns;
    const rename = (name) =>
      inputColumns.includes(name) ? `hardmax_${name.replace(/^hardmax_/, "")}` : name;
    const rows = this.results.map((result, k) => ({
      ...this.table.rows[k],
      ...Object.fromEntries(OUTPUT_COLUMNS.map((name) => [rename(name), result[name]])),
    }));
    const columns = [...new Set([...inputColumns, ...OUTPUT_COLUMNS.map(rename)])];
    const basename = this.filename.replace(/\.\w+$/, "");
    download(`${basename}-classified.csv`, new Blob([formatCsv(columns, rows)], { type: "text/csv" }));
  }
}

const isNotEmpty = (text) => text.trim() !== "";

/** Resolves after a delay, or when the signal is aborted. */
const wait = (delayMs, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, delayMs);
    signal.addEventListener("abort", resolve, { once: true });
  });

/** Converts an item of an answer to output columns. Leaders are listed with their contributions. */
function toRow({ label, labels, score, abstain_reason: abstainReason, truncated, leaders }) {
  const named = (leaders ?? []).map(({ word, contribution: x }) => [word, typeof x === "object" ? x[label] : x]);
  const listed = named.filter(([, x]) => Math.abs(x) >= MIN_EXPORTED_CONTRIBUTION);
  return {
    label: labels ? labels.join(", ") : label,
    score: labels?.length === 0 ? "" : score,
    abstain_reason: abstainReason,
    truncated,
    leaders: listed.map(([word, x]) => `${word} ${x < 0 ? "" : "+"}${x.toFixed(2)}`).join("; "),
  };
}

/** "612 positive, 301 negative, 2 failed (14 abstained)" */
function formatCounts(results) {
  const counts = new Map();
  for (const { label, hardmax_error: error } of results) {
    const kind = error ? "failed" : label || "without a label";
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const listed = sorted.map(([kind, count]) => `${count.toLocaleString("en")} ${kind}`).join(", ");
  const abstained = results.filter(({ abstain_reason: reason }) => reason).length;
  return abstained ? `${listed} (${abstained.toLocaleString("en")} abstained)` : listed;
}

function createRow(text, { label, score, abstain_reason: reason, leaders, hardmax_error: error }) {
  const badge = reason ? [" ", el("span", { class: "badge" }, reason.replaceAll("_", " "))] : [];
  const shownText = text.length > MAX_SHOWN_CHARACTERS ? `${text.slice(0, MAX_SHOWN_CHARACTERS)}\u2026` : text;
  return el(
    "tr",
    {},
    el("td", {}, shownText),
    el("td", {}, ...(error ? [error] : [label, ...badge])),
    el("td", { class: "number" }, error || score === "" ? "" : formatPercent(score)),
    el("td", {}, leaders ?? ""),
  );
}
