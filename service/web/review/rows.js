/* A file of rows, classified with progress: opened or dropped, stopped, gone on with, taken away as CSV.
   Knows texts and labels; nothing of the reasons. */

import { formatError } from "../shared/api.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { download } from "../shared/figure.js";
import { percent } from "./answer.js";
import { columnOf, csvOf, readTable, readText } from "./table.js";

const BATCH = 64; // rows a request
const SHOWN = 100;
const PAUSE_S = 2; // before the next request to a busy server
const ADDED = ["label", "score", "abstain_reason", "truncated", "leaders", "hardmax_error"]; // as the command line writes

export class Rows {
  /** `model()` is the name of the model to ask. */
  constructor(api, model) {
    Object.assign(this, { api, model, table: null, answers: [], controller: null });
    byId("rows-file").addEventListener("change", ({ target }) => this.open(target.files[0]));
    byId("rows-column").addEventListener("change", () => this.start());
    byId("rows-stop").addEventListener("click", () => (this.controller ? this.stop() : this.run()));
    byId("rows-save").addEventListener("click", () => this.save());
    byId("rows-close").addEventListener("click", () => this.close());
    const view = byId("view-review");
    for (const [name, on] of Object.entries({ dragover: true, dragleave: false, drop: false }))
      view.addEventListener(name, (event) => {
        if (![...event.dataTransfer.items].some(({ kind }) => kind === "file")) return; // text is dropped on the sheet
        event.preventDefault();
        view.classList.toggle("dropping", on);
        if (name === "drop") this.open(event.dataTransfer.files[0]);
      });
  }

  async open(file) {
    try {
      const table = readTable(await readText(file), file.name);
      if (!table.rows.length) throw new Error("there are no rows in it");
      this.table = table;
    } catch (error) {
      return showError(byId("review-error"), `${file.name} cannot be read: ${error.message}.`);
    } finally {
      byId("rows-file").value = ""; // the same file may be opened again
    }
    showError(byId("review-error"), null);
    this.name = file.name;
    byId("rows-title").textContent = `The rows of ${file.name}`;
    const { columns } = this.table;
    byId("rows-column").replaceChildren(...columns.map((name) => el("option", { value: name }, name)));
    byId("rows-column").value = columnOf(this.table);
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
    this.chosen = this.model(); // of all rows, whatever is chosen while they run
    this.texts = this.table.rows.map((row) => String(row[column] ?? ""));
    this.answers = [];
    return this.run();
  }

  /** Goes on behind the last row that was answered. */
  async run() {
    const controller = (this.controller = new AbortController());
    const { signal } = controller;
    let failure = null;
    try {
      while (this.answers.length < this.texts.length) {
        this.show(failure);
        const { length } = this.answers;
        const batch = this.texts.slice(length, length + BATCH);
        const found = await this.ask(batch.filter(isSaid), signal);
        if (signal.aborted) break;
        this.answers.push(
          ...batch.map((text) => (isSaid(text) ? found.shift() : { hardmax_error: "the text is empty" })),
        );
      }
    } catch (error) {
      failure = error.name === "AbortError" ? null : error;
    }
    if (this.controller !== controller) return; // another run has begun
    this.controller = null;
    this.show(failure);
    announce(byId("rows-state").textContent);
  }

  /** An answer a text, or {hardmax_error: why there is none}. Texts that are refused together are sent in halves, and
      these in halves, until the one that is refused stands alone. */
  async ask(texts, signal) {
    if (!texts.length) return [];
    try {
      const body = { input: texts.length === 1 ? texts[0] : texts, model: this.chosen, explain: "leaders" };
      return (await this.api.post("/classify", body, signal)).data.map(rowOf);
    } catch (error) {
      if ([429, 503].includes(error.status)) {
        await pause(1000 * (error.retryAfter ?? PAUSE_S), signal);
        return signal.aborted ? [] : this.ask(texts, signal);
      }
      if (![400, 413, 422].includes(error.status)) throw error;
      if (texts.length === 1) return [{ hardmax_error: error.message }];
      const half = texts.length >> 1;
      return [
        ...(await this.ask(texts.slice(0, half), signal)),
        ...(await this.ask(texts.slice(half), signal)),
      ];
    }
  }

  show(failure) {
    const { answers, texts, controller } = this;
    const done = answers.length === texts.length;
    Object.assign(byId("rows-progress"), { max: texts.length, value: answers.length });
    byId("rows-stop").textContent = controller ? "Stop" : "Go on";
    byId("rows-stop").hidden = done;
    byId("rows-save").disabled = !answers.length;
    const how = failure ? ` ${formatError(failure)}` : controller || done ? "" : " Stopped.";
    const part = `${answers.length.toLocaleString("en")} of ${plural(texts.length, "row")}`;
    byId("rows-state").textContent = `${part}${answers.length ? `: ${countsOf(answers)}` : ""}.${how}`;
    byId("rows-body").replaceChildren(
      ...answers.slice(0, SHOWN).map((answer, k) => rowNode(texts[k], answer)),
    );
  }

  save() {
    const own = this.table.columns;
    const called = (name) => (own.includes(name) ? `hardmax_${name.replace(/^hardmax_/, "")}` : name);
    const named = (answer) => ADDED.map((name) => [called(name), answer[name]]);
    const rows = this.answers.map((answer, k) => ({
      ...this.table.rows[k],
      ...Object.fromEntries(named(answer)),
    }));
    const columns = [...new Set([...own, ...ADDED.map(called)])];
    const name = this.name.replace(/\.\w+$/, "");
    download(`${name}-classified.csv`, new Blob([csvOf(columns, rows)], { type: "text/csv" }));
  }
}

const isSaid = (text) => text.trim() !== "";

/** Waits, but no longer than until the signal. */
const pause = (milliseconds, signal) =>
  new Promise((then) => {
    setTimeout(then, milliseconds);
    signal.addEventListener("abort", then, { once: true });
  });

const LEAST_ADDED = 0.05; // what a leader adds at least to be listed

/** An answer as columns, as the command line writes them. Leaders have their contributions. */
function rowOf({ label, labels, score, abstain_reason: abstainReason, truncated, leaders }) {
  const amounts = (leaders ?? []).map(({ word, contribution: x }) => [word, typeof x === "object" ? x[label] : x]);
  const listed = amounts.filter(([, x]) => Math.abs(x) >= LEAST_ADDED);
  return {
    label: labels ? labels.join(", ") : label,
    score: labels?.length === 0 ? "" : score,
    abstain_reason: abstainReason,
    truncated,
    leaders: listed.map(([word, x]) => `${word} ${x < 0 ? "" : "+"}${x.toFixed(2)}`).join("; "),
  };
}

/** "612 positive, 301 negative, 2 not answered (14 abstained)" */
function countsOf(answers) {
  const counts = new Map();
  for (const { label, hardmax_error: error } of answers) {
    const kind = error ? "not answered" : label || "none of the labels";
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const often = [...counts].sort((a, b) => b[1] - a[1]);
  const named = often.map(([kind, count]) => `${count.toLocaleString("en")} ${kind}`).join(", ");
  const abstained = answers.filter(({ abstain_reason: reason }) => reason).length;
  return abstained ? `${named} (${abstained.toLocaleString("en")} abstained)` : named;
}

function rowNode(text, { label, score, abstain_reason: reason, leaders, hardmax_error: error }) {
  const verdict = error ? [error] : [label, reason && [" ", el("span", { class: "badge" }, reason.replaceAll("_", " "))]].flat(2).filter(Boolean);
  return el(
    "tr",
    {},
    el("td", {}, text.length > 160 ? `${text.slice(0, 160)}\u2026` : text),
    el("td", {}, ...verdict),
    el("td", { class: "number" }, error || score === "" ? "" : percent(score)),
    el("td", {}, leaders ?? ""),
  );
}
