/* Room 1: a review, its verdict and the exact reason. Joins the sheet, the ledger, the plane of words and the card. */

import { readAnswer } from "./answer.js";
import { LatestRequest, formatError, findCard } from "../shared/api.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { EXAMPLES } from "./examples.js";
import { Ledger } from "./ledger.js";
import { Figure, addExportButtons } from "../shared/figure.js";
import { Player } from "../shared/player.js";
import { CARD, drawCard } from "./card.js";
import { Rows } from "./rows.js";
import { Sheet } from "./sheet.js";
import { Verdict } from "./verdict.js";
import { Without } from "./without.js";
import { Words } from "./words.js";

const TYPING_MS = 90;
const PATIENCE_MS = 250; // after this long the old verdict is called old
/** Beyond this many characters the trajectory of every word is not requested, as it would be megabytes, .. */
const LONGEST_FILM = 6000;
/** .. and beyond this many the link does not carry the text. */
const LONGEST_LINK = 1500;

export class Review {
  /** `cards()` resolves to the cards of the loaded models; `onChange()` hears that the link has changed. */
  constructor(api, cards, onChange) {
    Object.assign(this, { api, cards, onChange, latest: new LatestRequest(TYPING_MS) });
    Object.assign(this, { card: null, answer: null, request: null, label: null });
    this.area = byId("review");
    const parts = { ink: byId("ink"), arcs: byId("arcs"), tip: byId("tip") };
    this.sheet = new Sheet({ sheet: this.area.parentElement, area: this.area, ...parts }, (cluster, token) =>
      this.lookAt(cluster, this.sheet, token),
    );
    this.ledger = new Ledger(byId("ledger"), byId("ledger-more"), {
      onPoint: (cluster) => this.lookAt(cluster, this.ledger),
      onWord: (token) => this.sheet.pointToken(token),
    });
    this.verdict = new Verdict((label) => this.useLabel(label));
    this.without = new Without(
      async (request, signal) => (await api.post("/classify", request, signal)).data[0],
      (tokens) => this.sheet.strike(tokens),
    );
    this.rows = new Rows(api, () => this.card?.name);
    this.words = new Words();
    this.picture = new Figure(byId("words"), (painter) => this.words.draw(painter));
    this.preview = new Figure(byId("card"), (painter) => this.drawPreview(painter));
    this.player = new Player(byId("words-player"), "the words", {
      onTime: (t) => this.moveTo(t),
      describe: (t) => this.describe(t),
    });
    this.listen();
  }

  listen() {
    this.area.addEventListener("input", () => this.ask());
    byId("review-model").addEventListener("change", (event) => this.useModel(event.target.value));
    const canvas = byId("words");
    for (const name of ["pointermove", "pointerdown"])
      canvas.addEventListener(name, ({ offsetX, offsetY }) =>
        this.lookAtWord(this.words.wordAt(offsetX, offsetY)),
      );
    canvas.addEventListener("pointerleave", () => this.lookAt(null, this.words));
    byId("examples").append(
      ...EXAMPLES.map(({ name, text, wrong }) =>
        el(
          "button",
          { type: "button", class: `chip${wrong ? " wrong" : ""}`, onclick: () => this.write(text) },
          name,
        ),
      ),
    );
    addExportButtons(
      byId("card-export"),
      "verdict",
      () => CARD,
      (painter) => this.answer && drawCard(painter, this.answer, this.words),
    );
  }

  /** The state as a link says it. A long text is not part of it. */
  values() {
    const text = this.area.value.length <= LONGEST_LINK ? this.area.value : null;
    return { text, model: this.card?.default ? null : this.card?.name };
  }

  /** What a copied link leaves out, in words. */
  get missing() {
    return this.area.value.length > LONGEST_LINK ? "without the text, which is too long for a link" : null;
  }

  /** Opens the room with what a link says. */
  async open(values) {
    if (values.has("text") || !this.area.value) this.area.value = values.get("text") ?? EXAMPLES[0].text;
    this.sheet.show(this.area.value, null);
    this.sheet.grow();
    this.wanted = values.get("model") ?? this.card?.name;
    this.models = null;
    return this.ask();
  }

  fillModels(cards) {
    const models = cards.filter(({ kind }) => kind === "text-classification");
    this.models = models;
    const wanted = findCard(models, this.wanted);
    this.card = wanted ?? models.find((card) => card.default) ?? models[0] ?? null;
    const instead = this.wanted && !wanted && this.card;
    this.missed = instead
      ? `No model \u201c${this.wanted}\u201d labels texts on this server: ${this.card.name} answers.`
      : null;
    byId("review-model").replaceChildren(
      ...models.map(({ name, labels }) => el("option", { value: name, title: labels?.join(", ") }, name)),
    );
    byId("model-pick").hidden = models.length < 2;
    if (this.card) byId("review-model").value = this.card.name;
    this.showExamples();
  }

  /** Examples are reviews: they are offered only to a model that labels sentiment. */
  showExamples() {
    const fits = ["negative", "positive"].every((label) => this.card?.labels?.includes(label));
    for (const id of ["examples", "examples-or"]) byId(id).hidden = !fits;
  }

  useModel(name) {
    this.card = this.models.find((card) => card.name === name);
    this.missed = null;
    this.showExamples();
    return this.ask();
  }

  /** Shows the sum of another label, where there are several; not of an answer that another is about to replace. */
  useLabel(label) {
    const { input, model } = this.request;
    if (input !== this.area.value || model !== this.card.name) return;
    this.label = label;
    this.showAnswer(readAnswer(this.answer.text, this.item, this.card.readout, label));
  }

  /** The label that a person gives an example which the model gets wrong, in words. */
  get confession() {
    const { text, label, labels, abstainReason } = this.answer;
    const example = EXAMPLES.find((each) => each.text === text);
    const wrong = labels.includes(example?.label) && label !== example.label && !abstainReason;
    return wrong && `The model gets this one wrong: a person says ${example.label}.`;
  }

  write(text) {
    this.area.value = text;
    if (matchMedia("(hover: hover)").matches) this.area.focus({ preventScroll: true }); // no keyboard jumps up on a phone
    return this.ask();
  }

  async ask() {
    const input = this.area.value;
    this.sheet.grow();
    this.sheet.show(input, null);
    this.onChange();
    try {
      if (!this.models) this.fillModels(await this.cards());
    } catch (error) {
      return this.fail(error);
    }
    if (!this.card) return this.fail(new Error("this server has no sentiment model"));
    if (!input.trim()) return this.clear();
    const request = {
      input,
      model: this.card.name,
      explain: "full",
      trajectory: input.length <= LONGEST_FILM,
    };
    const dim = setTimeout(() => this.verdict.state("asking"), TYPING_MS + PATIENCE_MS);
    try {
      const answer = await this.latest.run((signal) => this.api.post("/classify", request, signal));
      if (!answer) return undefined;
      this.request = { input, model: this.card.name };
      this.item = answer.data[0];
      showError(byId("review-error"), this.missed);
      return this.showAnswer(readAnswer(input, this.item, this.card.readout, this.label));
    } catch (error) {
      return this.fail(error);
    } finally {
      clearTimeout(dim);
    }
  }

  showAnswer(answer) {
    const fresh = this.answer === null || this.answer.vector !== answer.vector;
    this.answer = answer;
    this.lookAt(null, null);
    this.sheet.show(answer.text, answer);
    this.verdict.show(answer, this.confession);
    const known = answer.abstainReason !== "no_known_words";
    this.ledger.show(known ? answer : null);
    this.words.show(answer);
    this.showCaptions(known ? null : "No word here tells the model anything, so there is nothing to add up.");
    byId("against").textContent = answer.against;
    byId("for").textContent = answer.shown;
    const { layers } = this.words;
    this.player.load(layers, { at: fresh ? layers : Math.min(this.player.t, layers) });
    this.without.show(answer, this.request, this.card.readout);
    this.preview.redraw();
    this.onChange();
  }

  /** `nothing` says why there is no reason to show; null when there is one. */
  showCaptions(nothing) {
    byId("view-review").classList.toggle("nothing", nothing !== null);
    byId("ledger-caption").textContent =
      nothing ??
      "One row for each leader \u2605: where it stands, times the share of the words that follow it. The last bar ends where the logit is.";
    byId("words-caption").textContent = nothing ? "No word stands in the plane." : this.captionOfWords();
    const leaders = this.answer?.words.filter(({ leader }) => leader).map(({ text }) => text) ?? [];
    const named = leaders.length ? `; leaders: ${leaders.slice(0, 5).join(", ")}` : "";
    byId("words").setAttribute(
      "aria-label",
      `${plural(this.answer?.words.length ?? 0, "word")} as points${named}`,
    );
  }

  captionOfWords() {
    if (!this.words.answer) return "This answer says nothing of where the words are.";
    const { flat, lift, answer } = this.words;
    const way = answer.trajectory
      ? "Layer by layer each word walks towards the one it follows"
      : "Each word ends with the one it follows (in a long text, straight from start to end)";
    const cast = flat ? "" : ` A shadow of ${answer.words[0].start.length} dimensions.`;
    const lifted = lift > 1 ? ` Drawn ${lift} times higher than it is.` : "";
    const lines = answer.words[0].follows
      ? " Point at a word: a line leads to whom it follows here, dashes to those that its heads followed when it was read."
      : "";
    return `${way}. The larger a dot, the more it adds; right of the border it speaks for \u201c${answer.shown}\u201d.${lines}${cast}${lifted}`;
  }

  describe(t) {
    return this.words?.answer?.trajectory
      ? `layer ${Number(t.toFixed(1))} of ${this.words.layers}`
      : "start to end";
  }

  moveTo(t) {
    if (!this.words) return;
    this.words.t = t;
    this.picture?.redraw();
  }

  drawPreview(painter) {
    if (!this.answer) return;
    const scale = painter.width / CARD.width;
    painter.inset({ x: 0, y: 0, width: painter.width, height: painter.height, scale }, () =>
      drawCard(painter, this.answer, this.words),
    );
  }

  lookAtWord(token) {
    this.lookAt(token === null ? null : this.answer.words[token].cluster, this.words, token);
  }

  /** One cluster is looked at, or one word of it, in whichever of the pictures; the others follow. */
  lookAt(cluster, origin, token = null) {
    if (cluster === this.words.cluster && token === this.words.token) return;
    this.words.lookAt(cluster, token);
    this.picture.redraw();
    if (origin !== this.ledger) this.ledger.lookAt(cluster);
    if (origin !== this.sheet) this.sheet.lookAt(cluster, token);
  }

  clear() {
    this.latest.run(async () => undefined);
    this.answer = null;
    this.ledger.show(null);
    this.words.show(null);
    this.player.load(0);
    this.verdict.show(null);
    this.without.show(null, null);
    showError(byId("review-error"), null);
    this.showCaptions("Nothing is written yet.");
  }

  /** What is shown stays, dimmed and called old: it belongs to another text. */
  fail(error) {
    this.verdict.state("old");
    showError(byId("review-error"), formatError(error));
    announce(formatError(error));
  }

  repaint() {
    this.picture.redraw();
    this.preview.redraw();
  }
}
