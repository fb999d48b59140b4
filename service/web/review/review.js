/* The text view: classifies the text as it is typed and shows the verdict with its explanation. Connects the editor,
   the contribution table, the word plot, word removal and the image for sharing. */

import { parseAnswer } from "./answer.js";
import { LatestRequest, findCard, formatError } from "../shared/api.js";
import { ContributionTable } from "./contributions.js";
import { HighlightEditor } from "./editor.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { EXAMPLES } from "./examples.js";
import { Figure, addExportButtons } from "../shared/figure.js";
import { FileClassifier } from "./file_classifier.js";
import { Player } from "../shared/player.js";
import { IMAGE_SIZE, drawShareImage } from "./share_image.js";
import { Verdict } from "./verdict.js";
import { WordPlot } from "./word_plot.js";
import { WordRemoval } from "./removal.js";

const TYPING_DELAY_MS = 90;
const PENDING_DELAY_MS = 250; // a request that takes longer dims the previous verdict
const MAX_TRAJECTORY_CHARACTERS = 6000; // trajectories of longer texts have megabytes and are not requested
const MAX_LINK_CHARACTERS = 1500; // longer texts are not part of the link
const MAX_LABELLED_LEADERS = 5; // in the accessible name of the plot

export class Review {
  /** `loadCards()` resolves to the model cards; `onChange()` is called when the state in the link may have changed. */
  constructor(api, loadCards, onChange) {
    Object.assign(this, { api, loadCards, onChange, classification: new LatestRequest(TYPING_DELAY_MS) });
    Object.assign(this, { models: null, model: null, answer: null, request: null, label: null });
    this.textarea = byId("review-text");
    const elements = { overlay: byId("highlights"), arcs: byId("arcs"), tooltip: byId("tooltip") };
    this.editor = new HighlightEditor(
      { root: this.textarea.parentElement, textarea: this.textarea, ...elements },
      (clusterId, index) => this.highlight(clusterId, this.editor, index),
    );
    this.contributions = new ContributionTable(byId("contributions"), byId("contributions-more"), {
      onSelectCluster: (id) => this.highlight(id, this.contributions),
      onSelectWord: (index) => this.editor.selectWord(index),
    });
    this.verdict = new Verdict((label) => this.selectLabel(label));
    this.removal = new WordRemoval(
      async (request, signal) => (await api.post("/classify", request, signal)).data[0],
      (indices) => this.editor.markRemoved(indices),
    );
    this.fileClassifier = new FileClassifier(api, () => this.model?.name);
    this.plot = new WordPlot();
    this.plotFigure = new Figure(byId("words"), (painter) => this.plot.draw(painter));
    this.imageFigure = new Figure(byId("card"), (painter) => this.drawImagePreview(painter));
    this.player = new Player(byId("words-player"), "the words", {
      onTime: (t) => this.setTime(t),
      describe: (t) => this.describeTime(t),
    });
    this.addListeners();
  }

  addListeners() {
    this.textarea.addEventListener("input", () => this.classify());
    byId("review-model").addEventListener("change", (event) => this.selectModel(event.target.value));
    const canvas = byId("words");
    for (const name of ["pointermove", "pointerdown"])
      canvas.addEventListener(name, ({ offsetX, offsetY }) =>
        this.highlightWord(this.plot.findWordAt(offsetX, offsetY)),
      );
    canvas.addEventListener("pointerleave", () => this.highlight(null, this.plot));
    byId("examples").append(
      ...EXAMPLES.map(({ name, text, knownError }) => {
        const onclick = () => this.setText(text);
        return el("button", { type: "button", class: `chip${knownError ? " known-error" : ""}`, onclick }, name);
      }),
    );
    addExportButtons(
      byId("card-export"),
      "verdict",
      () => IMAGE_SIZE,
      (painter) => this.answer && drawShareImage(painter, this.answer, this.plot),
    );
  }

  /** Returns the state for the link. */
  values() {
    const text = this.textarea.value.length <= MAX_LINK_CHARACTERS ? this.textarea.value : null;
    return { text, model: this.model?.default ? null : this.model?.name };
  }

  /** Describes what the link does not contain. */
  get omittedFromLink() {
    return this.textarea.value.length > MAX_LINK_CHARACTERS
      ? "without the text, which is too long for a link"
      : null;
  }

  /** Opens the view with the values of a link. */
  async open(values) {
    if (values.has("text") || !this.textarea.value)
      this.textarea.value = values.get("text") ?? EXAMPLES[0].text;
    this.editor.show(this.textarea.value, null);
    this.editor.resize();
    this.requestedModel = values.get("model") ?? this.model?.name;
    this.models = null;
    return this.classify();
  }

  setModels(cards) {
    const models = cards.filter(({ kind }) => kind === "text-classification");
    this.models = models;
    const requested = findCard(models, this.requestedModel);
    this.model = requested ?? models.find((card) => card.default) ?? models[0] ?? null;
    this.modelNotice =
      this.requestedModel && !requested && this.model
        ? `This server has no text classification model \u201c${this.requestedModel}\u201d. Using ${this.model.name}.`
        : null;
    byId("review-model").replaceChildren(
      ...models.map(({ name, labels }) => el("option", { value: name, title: labels?.join(", ") }, name)),
    );
    byId("model-pick").hidden = models.length < 2;
    if (this.model) byId("review-model").value = this.model.name;
    this.showExamples();
  }

  /** Shows the examples only for sentiment models, because they are reviews. */
  showExamples() {
    const isSentiment = ["negative", "positive"].every((label) => this.model?.labels?.includes(label));
    for (const id of ["examples", "examples-or"]) byId(id).hidden = !isSentiment;
  }

  selectModel(name) {
    this.model = this.models.find((card) => card.name === name);
    this.modelNotice = null;
    this.showExamples();
    return this.classify();
  }

  /** Explains another label, unless the answer is out of date. */
  selectLabel(label) {
    const { input, model } = this.request;
    if (input !== this.textarea.value || model !== this.model.name) return;
    this.label = label;
    this.showAnswer(parseAnswer(this.answer.text, this.item, this.model.readout, label));
  }

  /** Describes a wrong answer to an example; falsy if there is none. */
  describeKnownError() {
    const { text, label, labels, abstainReason } = this.answer;
    const example = EXAMPLES.find((other) => other.text === text);
    const isWrong = labels.includes(example?.label) && label !== example.label && !abstainReason;
    return isWrong && `The model gets this one wrong: the correct label is ${example.label}.`;
  }

  setText(text) {
    this.textarea.value = text;
    const isTouchScreen = !matchMedia("(hover: hover)").matches;
    if (!isTouchScreen) this.textarea.focus({ preventScroll: true }); // would open the on-screen keyboard
    return this.classify();
  }

  /** Classifies the text after a pause in typing. */
  async classify() {
    const input = this.textarea.value;
    this.editor.resize();
    this.editor.show(input, null);
    this.onChange();
    try {
      if (!this.models) this.setModels(await this.loadCards());
    } catch (error) {
      return this.showFailure(error);
    }
    if (!this.model) return this.showFailure(new Error("this server has no text classification model"));
    if (!input.trim()) return this.clear();
    const request = {
      input,
      model: this.model.name,
      explain: "full",
      trajectory: input.length <= MAX_TRAJECTORY_CHARACTERS,
    };
    const timer = setTimeout(() => this.verdict.setState("pending"), TYPING_DELAY_MS + PENDING_DELAY_MS);
    try {
      const answer = await this.classification.run((signal) => this.api.post("/classify", request, signal));
      if (!answer) return undefined;
      this.request = { input, model: this.model.name };
      this.item = answer.data[0];
      showError(byId("review-error"), this.modelNotice);
      return this.showAnswer(parseAnswer(input, this.item, this.model.readout, this.label));
    } catch (error) {
      return this.showFailure(error);
    } finally {
      clearTimeout(timer);
    }
  }

  showAnswer(answer) {
    const isNewReadout = this.answer?.readoutVector !== answer.readoutVector; // also for the first answer
    this.answer = answer;
    this.highlight(null, null);
    this.editor.show(answer.text, answer);
    this.verdict.show(answer, this.describeKnownError());
    const isExplained = answer.abstainReason !== "no_known_words";
    this.contributions.show(isExplained ? answer : null);
    this.plot.show(answer);
    this.showCaptions(isExplained ? null : "The text has no known words, so there is nothing to add up.");
    byId("scale-low").textContent = answer.oppositeLabel;
    byId("scale-high").textContent = answer.shownLabel;
    const { layers } = this.plot;
    this.player.load(layers, { at: isNewReadout ? layers : Math.min(this.player.t, layers) });
    this.removal.show(answer, this.request, this.model.readout);
    this.imageFigure.redraw();
    this.onChange();
  }

  /** `emptyReason` says why there is no explanation; null if there is one. */
  showCaptions(emptyReason) {
    byId("view-review").classList.toggle("no-explanation", emptyReason !== null);
    byId("contributions-caption").textContent =
      emptyReason ??
      "One row per leader \u2605: the readout of its position, times the share of the words that follow it. " +
        "The last bar ends at the logit.";
    byId("words-caption").textContent = emptyReason ? "No words to show." : this.describePlot();
    const words = this.answer?.words ?? [];
    const leaders = words.filter(({ leader }) => leader).map(({ text }) => text);
    const list = leaders.length ? `; leaders: ${leaders.slice(0, MAX_LABELLED_LEADERS).join(", ")}` : "";
    byId("words").setAttribute("aria-label", `${plural(words.length, "word")} as points${list}`);
  }

  describePlot() {
    const { answer, exact, yScale } = this.plot;
    if (!answer) return "This answer contains no word positions.";
    const [word] = answer.words;
    return [
      answer.trajectory
        ? "In each layer, a word moves towards the word it follows."
        : "Each word moves to the word it follows (for a long text, in a straight line from start to end).",
      `Larger dots contribute more; dots right of the boundary count towards \u201c${answer.shownLabel}\u201d.`,
      word.attendsTo &&
        "Point at a word: a solid line leads to its leader, dashed lines to the words that its heads attend to.",
      !exact && `Projected from ${word.position.length} dimensions.`,
      yScale > 1 && `The vertical axis is stretched by a factor of ${yScale}.`,
    ]
      .filter(Boolean)
      .join(" ");
  }

  describeTime(t) {
    return this.plot.answer?.trajectory
      ? `layer ${Number(t.toFixed(1))} of ${this.plot.layers}`
      : "start to end";
  }

  setTime(t) {
    this.plot.t = t;
    this.plotFigure.redraw();
  }

  drawImagePreview(painter) {
    if (!this.answer) return;
    const { width, height } = painter;
    painter.inset({ x: 0, y: 0, width, height, scale: width / IMAGE_SIZE.width }, () =>
      drawShareImage(painter, this.answer, this.plot),
    );
  }

  highlightWord(index) {
    this.highlight(index === null ? null : this.answer.words[index].cluster, this.plot, index);
  }

  /** Highlights a cluster, or one word of it, in all parts but `origin`, the part in which it was selected. */
  highlight(clusterId, origin, index = null) {
    if (clusterId === this.plot.clusterId && index === this.plot.index) return;
    this.plot.highlight(clusterId, index);
    this.plotFigure.redraw();
    if (origin !== this.contributions) this.contributions.highlight(clusterId);
    if (origin !== this.editor) this.editor.highlight(clusterId, index);
  }

  clear() {
    this.classification.run(async () => undefined); // aborts the running request
    this.answer = null;
    this.contributions.show(null);
    this.plot.show(null);
    this.player.load(0);
    this.verdict.show(null);
    this.removal.show(null, null);
    showError(byId("review-error"), null);
    this.showCaptions("Write a text to see its explanation.");
  }

  /** Shows an error. The previous answer stays visible, dimmed and marked as stale. */
  showFailure(error) {
    this.verdict.setState("stale");
    showError(byId("review-error"), formatError(error));
    announce(formatError(error));
  }

  repaint() {
    this.plotFigure.redraw();
    this.imageFigure.redraw();
  }
}
