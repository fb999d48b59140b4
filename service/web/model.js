/* Room 3: the loaded models and what is known of them, the server, and the other rooms' requests as programs. */

import { inWords } from "./api.js";
import { byId, el, showProblem } from "./element.js";
import { cloudSnippets, reviewSnippets, showSnippets } from "./snippets.js";

const KINDS = { sentiment: "reviews", dynamics: "clouds", sequences: "sequences" };
/** Figures set large: the first three of these that a card has. */
const TELLING = [/test.*accuracy/, /validation.*accuracy/, /sentences.*accuracy/, /clusters$/];

export class Model {
  /** `rooms` holds the review and the cloud whose last requests are shown as programs. */
  constructor(api, cards, rooms) {
    Object.assign(this, { api, cards, rooms });
  }

  values() {
    return {};
  }

  async open() {
    this.showPrograms();
    try {
      const [cards, info] = await Promise.all([this.cards(), this.api.get("/info")]);
      this.showServer(info);
      byId("cards").replaceChildren(...[...cards].sort(byUse).map(cardNode));
      showProblem(byId("model-problem"), null);
    } catch (error) {
      showProblem(byId("model-problem"), inWords(error));
    }
  }

  showServer({ version, provider, providers, threads, limits }) {
    const on = (provider ?? providers?.[0] ?? "").replace("ExecutionProvider", "").toUpperCase();
    const many = threads ? ` with ${threads} ${threads === 1 ? "thread" : "threads"}` : "";
    const most = limits?.max_points ? ` Clouds of up to ${limits.max_points.toLocaleString("en")} points.` : "";
    byId("model-server").textContent = `hardmax ${version} runs on ${on}${many}.${most}`;
  }

  showPrograms() {
    const { review, cloud } = this.rooms;
    const text = review.request ?? {
      input: "A superb cast and a story that stays with you.",
      model: "sentiment",
      explain: "leaders",
    };
    showSnippets(byId("snippet-review"), reviewSnippets({ ...text, explain: "leaders" }));
    const points = cloud.points.length
      ? cloud.request()
      : {
          points: [
            [1, 1],
            [0.5, -0.5],
            [-1, -1],
          ],
          alpha: 0.5,
          A: null,
        };
    showSnippets(byId("snippet-cloud"), cloudSnippets(points));
  }
}

/** The default model first, then those of its kind, then the others. */
const byUse = (a, b) => useOf(a) - useOf(b) || a.name.localeCompare(b.name);
const useOf = (card) => (card.default ? 0 : card.kind === "sentiment" ? 1 : 2);

function cardNode(card) {
  const figures = Object.entries(flatten(card.figures ?? {}));
  const large = TELLING.map((telling) =>
    figures.find(([name, value]) => typeof value === "number" && telling.test(name)),
  )
    .filter(Boolean)
    .slice(0, 3);
  const facts = [
    ["Dimension", card.dimension],
    ["Layers", card.layers],
    ["\u03b1", card.alpha],
    ["Vocabulary", card.vocabulary?.toLocaleString("en")],
    ["Labels", card.labels?.join(", ")],
    ["Licence", card.licence],
    ["Made", card.created?.slice?.(0, 10)],
    ...Object.entries(flatten(card.data ?? {})).map(([name, value]) => [wordsOf(name), figure(name, value)]),
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el(
    "article",
    { class: "card model-card", "data-model": card.name },
    el("h2", {}, card.name, el("small", {}, card.default ? "default" : (KINDS[card.kind] ?? card.kind))),
    el("p", {}, card.description),
    large.length ? el("dl", { class: "figures" }, large.map(pair)) : null,
    el(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))),
    ),
    figures.length
      ? el(
          "details",
          {},
          el("summary", {}, `All figures (${figures.length})`),
          el("dl", { class: "facts" }, figures.map(pair)),
        )
      : null,
  );
}

const pair = ([name, value]) => el("div", {}, el("dt", {}, wordsOf(name)), el("dd", {}, figure(name, value)));

/** Figures may lie in groups: {imdb: {accuracy: 0.9}} is shown as "imdb accuracy". */
function flatten(figures, before = "") {
  return Object.fromEntries(
    Object.entries(figures).flatMap(([name, value]) => {
      const whole = before ? `${before}_${name}` : name;
      if (value !== null && typeof value === "object" && !Array.isArray(value))
        return Object.entries(flatten(value, whole));
      return [[whole, Array.isArray(value) ? value.join(", ") : value]];
    }),
  );
}

const wordsOf = (name) =>
  capital(name.replaceAll("_", " "))
    .replace(/\bimdb\b/gi, "IMDb")
    .replace(/\bsst2?\b/gi, (s) => s.toUpperCase());

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Accuracies are shares of one and read better as per cent. */
function figure(name, value) {
  if (typeof value !== "number") return String(value);
  if (/accuracy|fraction|share|auc/.test(name) && value <= 1) return `${(100 * value).toFixed(1)} %`;
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(3)));
}
