/* The Models view: cards of the loaded models, the server, and the latest requests of the other views as code. */

import { formatError, findCard } from "../shared/api.js";
import { byId, el, showError } from "../shared/element.js";
import { formatFragment } from "../shared/fragment.js";
import { EXAMPLES } from "../review/examples.js";
import { PRESETS } from "../cloud/presets.js";
import { classifySnippets, dynamicsSnippets, showSnippets } from "./snippets.js";

const KIND_NAMES = {
  encoder: "encoder",
  "text-classification": "text classification",
  dynamics: "point clouds",
  sequences: "sequences",
};
const FIELD_NAMES = {
  balanced_accuracy: "Balanced accuracy",
  linear_accuracy: "TF-IDF baseline",
  sha256: "Data digest",
};
const MAX_LISTED_LABELS = 12;
const MAX_HEADLINE_FIGURES = 3;
const MAX_TABLE_COLUMNS = 4;
const SHOWN_DIGEST_CHARS = 12;

export class Model {
  /** `views` holds the review and the cloud view, whose latest requests are shown as code. */
  constructor(loadCards, loadInfo, views) {
    Object.assign(this, { loadCards, loadInfo, views });
  }

  async open() {
    let cards = [];
    try {
      let info;
      [cards, info] = await Promise.all([this.loadCards(), this.loadInfo()]);
      this.showServer(info);
      const served = servedCards(cards).sort(compareCards);
      byId("cards").replaceChildren(...served.map((card) => renderCard(card, cards)));
      showError(byId("model-error"), null);
    } catch (error) {
      showError(byId("model-error"), formatError(error));
    }
    // Only after the requests, because snippets depend on whether the server requires a key.
    this.showSnippets(cards.find((card) => card.default)?.name);
  }

  showServer({ version, provider, providers, threads, limits }) {
    const device = (provider ?? providers?.[0] ?? "").replace("ExecutionProvider", "").toUpperCase();
    const threadCount = threads ? ` with ${threads} ${threads === 1 ? "thread" : "threads"}` : "";
    const cloudLimit = limits?.max_points
      ? ` Clouds of up to ${limits.max_points.toLocaleString("en")} points.`
      : "";
    byId("model-server").textContent = `hardmax ${version} runs on ${device}${threadCount}.${cloudLimit}`;
  }

  /** Shows the latest requests, or examples: a text for the default model and a triangle. */
  showSnippets(defaultModel = "sentiment") {
    const { review, cloud } = this.views;
    const classification = review.request ?? { input: EXAMPLES[0].text, model: defaultModel };
    showSnippets(byId("snippet-review"), classifySnippets(classification));
    const example = { points: PRESETS.triangle.points(), alpha: 0.5, A: null };
    showSnippets(byId("snippet-cloud"), dynamicsSnippets(cloud.points.length ? cloud.request() : example));
  }
}

/** Orders cards: the default model, then other text classifiers, then the rest; each by name. */
const compareCards = (a, b) => cardPriority(a) - cardPriority(b) || a.name.localeCompare(b.name);
const cardPriority = (card) => (card.default ? 0 : card.kind === "text-classification" ? 1 : 2);

const baseName = ({ name }) => name.split("@")[0];

/** Returns one card per model: that of the version which is served under the base name. */
function servedCards(cards) {
  const names = [...new Set(cards.map(baseName))];
  return names.map((name) => findCard(cards, name));
}

/** Lists the versions of a model, newest first, and marks the served one. Returns null if there is only one. */
function formatVersions(card, cards) {
  const version = ({ name }) => Number(name.split("@")[1] ?? 0);
  const versions = cards
    .filter((other) => baseName(other) === baseName(card))
    .sort((a, b) => version(b) - version(a));
  if (versions.length < 2) return null;
  return versions
    .map(({ name }) => (name === card.name ? `${name} (served as ${baseName(card)})` : name))
    .join(", ");
}

function renderCard(card, cards) {
  const figures = card.figures ?? {};
  const data = card.data ?? {};
  const facts = [
    ["Dimension", card.dimension],
    ["Layers", card.layers],
    ["\u03b1", card.alpha],
    ["Versions", formatVersions(card, cards)],
    ["Encoder", card.encoder?.name],
    ["Labels", formatLabels(card.labels)],
    ["License", card.license],
    ["Created", card.created?.slice?.(0, 10)],
    ...scalarEntries(data).map(([name, value]) => [formatFieldName(name), formatFigure(name, value)]),
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const kind = card.default ? "default" : (KIND_NAMES[card.kind] ?? card.kind);
  return el(
    "article",
    { class: "card model-card", "data-model": card.name },
    el("h2", {}, baseName(card), el("small", {}, kind)),
    el("p", {}, card.again && `Rollback to ${card.again}: `, card.description),
    card.kind === "text-classification" &&
      el("a", { class: "chip", href: formatFragment("review", { model: card.name }) }, "Try it"),
    renderList("figures", headlineFigures(figures)),
    renderList("facts", facts),
    figures.labels
      ? renderTable("Recall per label", recallGroups(figures.labels))
      : renderTable("Evaluation", figures),
    renderTable("Training data", data),
  );
}

const formatLabels = (labels) =>
  labels &&
  labels.slice(0, MAX_LISTED_LABELS).join(", ") +
    (labels.length > MAX_LISTED_LABELS ? ` and ${labels.length - MAX_LISTED_LABELS} more` : "");

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const scalarEntries = (record) =>
  Object.entries(record).filter(([, value]) => !isGroup(value) && !Array.isArray(value));
const groupEntries = (record) => Object.entries(record).filter(([, value]) => isGroup(value));

/** Returns the accuracies to emphasize: {reviews: {accuracy: 0.9}} gives [["Reviews", "90.0 %"]]. */
function headlineFigures(figures) {
  const accuracies = [
    ...groupEntries(figures).map(([name, { accuracy }]) => [name, accuracy]),
    ...scalarEntries(figures).filter(([name]) => /accuracy$/.test(name)),
  ];
  return accuracies
    .filter(([, value]) => typeof value === "number")
    .slice(0, MAX_HEADLINE_FIGURES)
    .map(([name, value]) => [formatFieldName(name), formatFigure("accuracy", value)]);
}

/** Converts {label: recall} to groups for `renderTable`. */
const recallGroups = (recalls) =>
  Object.fromEntries(Object.entries(recalls).map(([label, recall]) => [label, { recall }]));

const renderList = (className, entries) =>
  entries.length > 0 &&
  el(
    "dl",
    { class: className },
    entries.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, String(value)))),
  );

/** Renders the groups of a record as a collapsed table, with one row per group and one column per number. */
function renderTable(title, record) {
  const groups = groupEntries(record);
  if (!groups.length) return null;
  const numbers = groups.flatMap(([, group]) =>
    scalarEntries(group).filter(([, value]) => typeof value === "number"),
  );
  const columns = [...new Set(numbers.map(([name]) => name))].slice(0, MAX_TABLE_COLUMNS);
  const head = el(
    "tr",
    {},
    el("td", {}),
    columns.map((name) => el("th", { class: "number", scope: "col" }, formatFieldName(name))),
  );
  const rows = groups.map(([name, group]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, formatFieldName(name)),
      columns.map((key) => el("td", { class: "number" }, key in group ? formatFigure(key, group[key]) : "")),
    ),
  );
  const table = el("table", { class: "data-table" }, el("thead", {}, head), el("tbody", {}, rows));
  const region = { class: "table-scroll", tabindex: 0, role: "region", "aria-label": title };
  return el("details", {}, el("summary", {}, title), el("div", region, table));
}

const formatFieldName = (name) =>
  FIELD_NAMES[name] ??
  capitalize(name.replaceAll("_", " "))
    .replace(/\bimdb\b/gi, "IMDb")
    .replace(/\b(sst2?|mpqa|f1)\b/gi, (acronym) => acronym.toUpperCase());

const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Formats a value of a card; fractions as per cent. */
function formatFigure(name, value) {
  if (name === "sha256") return `${String(value).slice(0, SHOWN_DIGEST_CHARS)}\u2026`;
  if (typeof value !== "number") return String(value);
  if (/accuracy|fraction|share|recall|auc|layers|f1/.test(name) && value <= 1)
    return `${(100 * value).toFixed(1)} %`;
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
}
