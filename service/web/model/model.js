/* Room 3: the loaded models and what is known of them, the server, and the other views' requests as programs. */

import { formatError, findCard } from "../shared/api.js";
import { byId, el, showError } from "../shared/element.js";
import { formatLink } from "../shared/link.js";
import { EXAMPLES } from "../review/examples.js";
import { PRESETS } from "../cloud/presets.js";
import { cloudPrograms, reviewPrograms, showPrograms } from "./programs.js";

const KINDS = {
  encoder: "encoder",
  "text-classification": "texts",
  dynamics: "clouds",
  sequences: "sequences",
};
const LISTED = 12; // labels
const MAX_LARGE_NUMBERS = 3; // accuracies set large
const DIGEST = 12; // characters of a digest, enough to tell two apart
const COLUMNS = 4; // of a table of figures
const SAID_AS = {
  accuracy: "Right",
  balanced_accuracy: "Balanced",
  linear_accuracy: "TF-IDF",
  sha256: "Digest of the rows",
};

export class Model {
  /** `views` holds the review and the cloud whose last requests are shown as programs. */
  constructor(cards, info, views) {
    Object.assign(this, { cards, info, views });
  }

  values() {
    return {};
  }

  async open() {
    let cards = [];
    try {
      let info;
      [cards, info] = await Promise.all([this.cards(), this.info()]);
      this.showServer(info);
      byId("cards").replaceChildren(...servedOf(cards).sort(byUse).map((card) => cardNode(card, cards)));
      showError(byId("model-error"), null);
    } catch (error) {
      showError(byId("model-error"), formatError(error));
    }
    // They say whether a key is needed: it is known by now.
    this.showPrograms(cards.find((card) => card.default)?.name);
  }

  showServer({ version, provider, providers, threads, limits }) {
    const on = (provider ?? providers?.[0] ?? "").replace("ExecutionProvider", "").toUpperCase();
    const many = threads ? ` with ${threads} ${threads === 1 ? "thread" : "threads"}` : "";
    const most = limits?.max_points
      ? ` Clouds of up to ${limits.max_points.toLocaleString("en")} points.`
      : "";
    byId("model-server").textContent = `hardmax ${version} runs on ${on}${many}.${most}`;
  }

  /** `model` is used if no text was classified yet: the default one. */
  showPrograms(model = "sentiment") {
    const { review, cloud } = this.views;
    const request = review.request ?? { input: EXAMPLES[0].text, model };
    showPrograms(byId("snippet-review"), reviewPrograms(request));
    const { points } = PRESETS.triangle;
    const run = cloud.points.length ? cloud.request() : { points: points(), alpha: 0.5, A: null };
    showPrograms(byId("snippet-cloud"), cloudPrograms(run));
  }
}

/** The default model first, then those of its kind, then the others. */
const byUse = (a, b) => useOf(a) - useOf(b) || a.name.localeCompare(b.name);
const useOf = (card) => (card.default ? 0 : card.kind === "text-classification" ? 1 : 2);

const baseOf = ({ name }) => name.split("@")[0];

/** One card per model: of several versions the one that is served under the name. */
function servedOf(cards) {
  const names = [...new Set(cards.map(baseOf))];
  return names.map((name) => findCard(cards, name));
}

/** The versions of a model, newest first, the served one marked; null if there is only one. */
function versionsOf(card, cards) {
  const number = ({ name }) => Number(name.split("@")[1] ?? 0);
  const all = cards.filter((other) => baseOf(other) === baseOf(card)).sort((a, b) => number(b) - number(a));
  if (all.length < 2) return null;
  return all.map(({ name }) => (name === card.name ? `${name} (served as ${baseOf(card)})` : name)).join(", ");
}

function cardNode(card, cards) {
  const figures = card.figures ?? {};
  const data = card.data ?? {};
  const facts = [
    ["Dimension", card.dimension],
    ["Layers", card.layers],
    ["\u03b1", card.alpha],
    ["Versions", versionsOf(card, cards)],
    ["Encoder", card.encoder?.name],
    ["Labels", listed(card.labels)],
    ["License", card.license],
    ["Made", card.created?.slice?.(0, 10)],
    ...scalarsOf(data).map(([name, value]) => [wordsOf(name), figure(name, value)]),
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el(
    "article",
    { class: "card model-card", "data-model": card.name },
    el("h2", {}, baseOf(card), el("small", {}, card.default ? "default" : (KINDS[card.kind] ?? card.kind))),
    el("p", {}, card.again && `${card.again} again: `, card.description),
    card.kind === "text-classification" &&
      el("a", { class: "chip", href: formatLink("review", { model: card.name }) }, "Try it"),
    listOf("figures", largeOf(figures)),
    listOf("facts", facts),
    figures.labels
      ? fold("How many of each label it finds", foundOf(figures.labels))
      : fold("What it was measured on", figures),
    fold("What it was trained on", data),
  );
}

const listed = (labels) =>
  labels &&
  labels.slice(0, LISTED).join(", ") + (labels.length > LISTED ? ` and ${labels.length - LISTED} more` : "");

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const scalarsOf = (record) =>
  Object.entries(record).filter(([, value]) => !isGroup(value) && !Array.isArray(value));
const groupsOf = (record) => Object.entries(record).filter(([, value]) => isGroup(value));

/** The accuracies that are set large: {reviews: {accuracy: 0.9}} gives "Reviews", "90.0 %". */
function largeOf(figures) {
  const found = [
    ...groupsOf(figures).map(([name, { accuracy }]) => [name, accuracy]),
    ...scalarsOf(figures).filter(([name]) => /accuracy$/.test(name)),
  ];
  const numbers = found.filter(([, value]) => typeof value === "number").slice(0, MAX_LARGE_NUMBERS);
  return numbers.map(([name, value]) => [wordsOf(name), figure("accuracy", value)]);
}

/** Shares by label, as groups of one figure. */
const foundOf = (shares) =>
  Object.fromEntries(Object.entries(shares).map(([label, share]) => [label, { share_found: share }]));

const listOf = (name, pairs) =>
  pairs.length > 0 &&
  el(
    "dl",
    { class: name },
    pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, String(value)))),
  );

/** Groups of numbers as a table that unfolds, a row a group; single figures below it. */
function fold(title, record) {
  const groups = groupsOf(record);
  if (!groups.length) return null;
  const numbers = groups.flatMap(([, group]) =>
    scalarsOf(group).filter(([, value]) => typeof value === "number"),
  );
  const columns = [...new Set(numbers.map(([name]) => name))].slice(0, COLUMNS);
  const cell = (tag, text) => el(tag, { class: "number", ...(tag === "th" && { scope: "col" }) }, text);
  const head = el(
    "tr",
    {},
    el("td", {}),
    columns.map((name) => cell("th", wordsOf(name))),
  );
  const rows = groups.map(([name, group]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, wordsOf(name)),
      columns.map((key) => cell("td", key in group ? figure(key, group[key]) : "")),
    ),
  );
  const table = el("table", { class: "clusters" }, el("thead", {}, head), el("tbody", {}, rows));
  const region = { class: "table-scroll", tabindex: 0, role: "region", "aria-label": title };
  return el("details", {}, el("summary", {}, title), el("div", region, table));
}

const wordsOf = (name) =>
  SAID_AS[name] ??
  capital(name.replaceAll("_", " "))
    .replace(/\bimdb\b/gi, "IMDb")
    .replace(/\b(sst2?|mpqa|f1)\b/gi, (s) => s.toUpperCase());

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Accuracies are shares of one and read better as per cent. */
function figure(name, value) {
  if (name === "sha256") return `${String(value).slice(0, DIGEST)}\u2026`;
  if (typeof value !== "number") return String(value);
  if (/accuracy|fraction|share|auc|layers|f1/.test(name) && value <= 1)
    return `${(100 * value).toFixed(1)} %`;
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
}
