/* Room 1: a review, its verdict and the exact reason. Joins the sheet, the ledger and the plane of words. */

import { Latest, inWords } from "./api.js";
import { announce, byId, el, plural, showProblem, signed } from "./element.js";
import { EXAMPLES } from "./examples.js";
import { Ledger, drawLedger, ledgerSize } from "./ledger.js";
import { Picture, addExport } from "./picture.js";
import { Player } from "./player.js";
import { Sheet } from "./sheet.js";
import { Words } from "./words.js";

const TYPING_MS = 90;
/** Beyond this many characters the way of every word is not asked for: it would be megabytes. */
const LONGEST_FILM = 6000;

export class Review {
  /** `cards()` resolves to the cards of the loaded models; `onChange()` hears that the link has changed. */
  constructor(api, cards, onChange) {
    Object.assign(this, {
      api,
      cards,
      onChange,
      latest: new Latest(TYPING_MS),
      card: null,
      item: null,
      request: null,
    });
    this.area = byId("review");
    const parts = {
      sheet: this.area.parentElement,
      ink: byId("ink"),
      arcs: byId("arcs"),
      area: this.area,
      tip: byId("tip"),
    };
    this.sheet = new Sheet(parts, (cluster) => this.lookAt(cluster, this.sheet));
    this.ledger = new Ledger(byId("ledger"), byId("ledger-more"), (cluster) =>
      this.lookAt(cluster, this.ledger),
    );
    this.words = new Words();
    this.picture = new Picture(byId("words"), (painter) => this.words.draw(painter));
    this.player = new Player(
      byId("words-player"),
      "the words",
      (t) => this.moveTo(t),
      (t) => this.describe(t),
    );
    this.listen();
  }

  listen() {
    this.area.addEventListener("input", () => this.ask());
    byId("review-model").addEventListener("change", (event) => this.useModel(event.target.value));
    const canvas = byId("words");
    canvas.addEventListener("pointermove", ({ offsetX, offsetY }) =>
      this.lookAt(this.words.clusterAt(offsetX, offsetY), this.words),
    );
    canvas.addEventListener("pointerleave", () => this.lookAt(null, this.words));
    byId("examples").append(
      ...EXAMPLES.map(({ name, text }) =>
        el("button", { type: "button", class: "chip", onclick: () => this.write(text) }, name),
      ),
    );
    const size = () => ({ width: this.picture.width, height: this.picture.height });
    addExport(byId("words-export"), "words", size, (painter) => this.words.draw(painter));
    const rows = () => this.ledger.rows;
    addExport(
      byId("ledger-export"),
      "reason",
      () => ledgerSize(rows()),
      (painter) => drawLedger(painter, rows(), this.item),
    );
  }

  /** The state as a link says it. */
  values() {
    return { text: this.area.value, model: this.card?.default ? null : this.card?.name };
  }

  /** Opens the room with what a link says. */
  async open(values) {
    if (values.has("text") || !this.area.value) this.area.value = values.get("text") ?? EXAMPLES[0].text;
    this.sheet.show(this.area.value, null);
    this.sheet.grow();
    try {
      const models = (await this.cards()).filter(({ kind }) => kind === "sentiment");
      this.fillModels(models, values.get("model") ?? this.card?.name);
    } catch (error) {
      return this.fail(error);
    }
    return this.ask();
  }

  fillModels(models, wanted) {
    this.models = models;
    this.card =
      models.find(({ name }) => name === wanted) ?? models.find((card) => card.default) ?? models[0] ?? null;
    const options = models.map(({ name, dimension }) =>
      el("option", { value: name }, `${name} \u00b7 ${dimension} dimensions`),
    );
    byId("review-model").replaceChildren(...options);
    if (this.card) byId("review-model").value = this.card.name;
  }

  useModel(name) {
    this.card = this.models.find((card) => card.name === name);
    return this.ask();
  }

  write(text) {
    this.area.value = text;
    this.area.focus({ preventScroll: true });
    return this.ask();
  }

  async ask() {
    const input = this.area.value;
    this.sheet.grow();
    this.sheet.show(input, null);
    this.onChange();
    if (!this.card) return this.fail(new Error("this server has no sentiment model"));
    if (!input.trim()) return this.clear();
    const trajectory = input.length <= LONGEST_FILM;
    const request = { input, model: this.card.name, explain: "full", trajectory };
    try {
      let start = 0;
      const answer = await this.latest.run((signal) => {
        start = performance.now();
        return this.api.post("/classify", request, signal);
      });
      if (!answer) return undefined;
      this.request = { ...request, trajectory: false };
      return this.show(input, answer.data[0], performance.now() - start);
    } catch (error) {
      return this.fail(error);
    }
  }

  show(text, item, took_ms) {
    const fresh = this.item === null || this.shownModel !== this.card.name;
    Object.assign(this, { item, shownModel: this.card.name });
    showProblem(byId("review-problem"), null);
    this.lookAt(null, null);
    this.sheet.show(text, item);
    this.ledger.show(item);
    this.showVerdict(item, took_ms);
    this.words.show(item, this.card.readout);
    this.describeWords();
    this.player.load(this.words.layers, {
      at: fresh ? this.words.layers : Math.min(this.player.t, this.words.layers),
    });
    this.onChange();
  }

  showVerdict(item, took_ms) {
    const positive = item.probs.positive ?? item.score;
    byId("verdict-label").textContent = item.label;
    byId("verdict-label").className = `label ${item.logit >= 0 ? "pos" : "neg"}`;
    byId("verdict-score").textContent = `${percent(item.score)} sure`;
    byId("verdict-mark").style.setProperty("--at", positive);
    const cut = item.truncated ? ` Only the first ${item.tokens} tokens were read.` : "";
    const led = `${plural(item.tokens, "token")} follow ${plural(item.clusters.length, "leader")}`;
    const sum = `\u03c3(${signed(item.logit)}) = ${percent(positive)} positive, from the sum below.`;
    byId("verdict-fine").textContent =
      `${sum} ${led}; answered in ${Math.max(1, Math.round(took_ms))} ms.${cut}`;
    announce(`${item.label}, ${percent(item.score)} sure`);
  }

  describeWords() {
    const { flat } = this.words;
    const missing = "The way of every word is not asked for in a text as long as this one.";
    const plane =
      "Every word is a point of the plane. Layer by layer it walks towards the one it attends to; where it ends, the dashed line decides.";
    const cast = `The shadow of ${this.card.dimension} dimensions: across, the direction the decoder reads; upwards, where the words differ most besides. For the true plane choose a model of 2 dimensions.`;
    byId("words-caption").textContent = this.words.item ? (flat ? plane : cast) : missing;
    const leaders = this.item.leaders
      .slice(0, 5)
      .map(({ word }) => word)
      .join(", ");
    byId("words").setAttribute(
      "aria-label",
      `The ${this.item.words.length} words as points; leaders: ${leaders}`,
    );
  }

  describe(t) {
    return `layer ${Number(t.toFixed(1))} of ${this.words?.layers ?? 0}`;
  }

  moveTo(t) {
    if (!this.words) return;
    this.words.t = t;
    this.picture?.redraw();
  }

  /** One cluster is looked at, in whichever of the pictures; the others follow. */
  lookAt(cluster, origin) {
    if (cluster === this.words.cluster) return;
    this.words.cluster = cluster;
    this.picture.redraw();
    if (origin !== this.ledger) this.ledger.lookAt(cluster);
    if (origin !== this.sheet) this.sheet.lookAt(cluster);
  }

  clear() {
    this.latest.run(async () => undefined);
    this.item = null;
    this.ledger.show(null);
    this.words.show(null);
    this.player.load(0);
    showProblem(byId("review-problem"), null);
    byId("verdict-label").textContent = "\u2026";
    byId("verdict-label").className = "label";
    byId("verdict-score").textContent = "\u00a0";
    byId("verdict-fine").textContent = "Write something, and the verdict follows.";
    byId("verdict-mark").style.setProperty("--at", 0.5);
  }

  fail(error) {
    showProblem(byId("review-problem"), inWords(error));
  }

  repaint() {
    this.picture.redraw();
  }
}

/** 0.9731 as "97.3 %", and never more certain than it is. */
export function percent(p) {
  if (p > 0.9995) return "over 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}
