/* The mode for one text: classifies it as it is typed and shows the verdict with its explanation. Connects the editor,
   the contribution table, the word plot and word removal. */

import { parseAnswer } from "./answer.js";
import { LatestRequest, formatError } from "../shared/api.js";
import { ContributionTable } from "./contributions.js";
import { HighlightEditor } from "./editor.js";
import { announce, byId, el, plural, showError } from "../shared/element.js";
import { EXAMPLES } from "./examples.js";
import { Figure } from "../shared/figure.js";
import { Player } from "../shared/player.js";
import { Verdict } from "./verdict.js";
import { WordPlot } from "./word_plot.js";
import { WordRemoval } from "./removal.js";

const TYPING_DELAY_MS = 90;
const PENDING_DELAY_MS = 250; // a request that takes longer dims the previous verdict
const MAX_TRAJECTORY_CHARACTERS = 6000; // trajectories of longer texts have megabytes and are not requested
const MAX_LINK_CHARACTERS = 1500; // longer texts are not part of a copied link
const MIN_MESSAGES = 3; // so many short lines are offered to the other mode
const MAX_MESSAGE_CHARACTERS = 400;
const MAX_LABELLED_LEADERS = 5; // in the accessible name of the plot

export class Review {
  /** `split(text)` opens the lines of a text as messages; `onChange()` is called when the link may have changed. */
  constructor(api, choice, { split, onChange }) {
    Object.assign(this, { api, choice, split, onChange, classification: new LatestRequest(TYPING_DELAY_MS) });
    Object.assign(this, { answer: null, request: null, label: null });
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
    this.plot = new WordPlot();
    this.figure = new Figure(byId("words"), (painter) => this.plot.draw(painter));
    this.player = new Player(byId("words-player"), "the words", {
      onTime: (t) => this.setTime(t),
      describe: (t) => this.describeTime(t),
    });
    this.addListeners();
  }

  addListeners() {
    this.textarea.addEventListener("input", () => this.classify());
    this.choice.listeners.push(() => this.request && this.classify());
    byId("details").addEventListener("toggle", () => this.onChange());
    byId("split-run").addEventListener("click", () => this.split(this.textarea.value));
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
  }

  /** Returns the values of the address, which never contains the text, and those that only a copied link has. */
  link() {
    const { value: text } = this.textarea;
    const fits = text.length <= MAX_LINK_CHARACTERS;
    const values = { model: this.choice.linked, details: byId("details").open ? 1 : null };
    const note = fits ? "with the text" : "without the text, which is too long for a link";
    return { values, copied: { text: fits ? text : null }, note: text ? note : null };
  }

  /** Opens the view with the values of a link. */
  async open(values) {
    if (values.has("text") || !this.textarea.value) this.textarea.value = values.get("text") ?? EXAMPLES[0].text;
    if (values.has("details")) byId("details").open = true;
    this.editor.show(this.textarea.value, null);
    this.editor.resize();
    this.choice.request(values.get("model"));
    return this.classify();
  }

  /** Shows the examples only for sentiment models, because they are reviews. */
  showExamples() {
    const { labels } = this.choice.model;
    const isSentiment = ["negative", "positive"].every((label) => labels?.includes(label));
    for (const id of ["examples", "examples-or"]) byId(id).hidden = !isSentiment;
  }

  /** Offers the other mode for several short lines. */
  showSplit() {
    const lines = this.textarea.value.split("\n").filter((line) => line.trim());
    const areMessages = lines.length >= MIN_MESSAGES && lines.every(({ length }) => length <= MAX_MESSAGE_CHARACTERS);
    byId("split").hidden = !areMessages;
    if (areMessages) byId("split-count").textContent = `These are ${plural(lines.length, "line")}.`;
  }

  /** Explains another label, unless the answer is out of date. */
  selectLabel(label) {
    const { input, model } = this.request;
    if (input !== this.textarea.value || model !== this.choice.model.name) return;
    this.label = label;
    this.showAnswer(parseAnswer(this.answer.text, this.item, this.choice.model.readout, label));
  }

  /** Describes a wrong answer to an example; falsy if there is none. */
  describeKnownError() {
    const { text, label, labels, abstainReason } = this.answer;
    const example = EXAMPLES.find((other) => other.text === text);
    const isWrong = labels.includes(example?.label) && label !== example.label && !abstainReason;
    return isWrong && `The model gets this one wrong: the correct label is ${example.label}.`;
  }

  /** Shows an example, as if it had been typed. */
  setText(text) {
    this.textarea.value = text;
    const isTouchScreen = !matchMedia("(hover: hover)").matches;
    if (!isTouchScreen) this.textarea.focus({ preventScroll: true }); // would open the on-screen keyboard
    this.textarea.dispatchEvent(new Event("input"));
  }

  /** Shows a row of the table of messages. */
  showText(text) {
    this.textarea.value = text;
    return this.classify();
  }

  /** Moves the focus to the row whose explanation this is. */
  enter() {
    byId("row-name").focus();
  }

  /** Classifies the text after a pause in typing. */
  async classify() {
    const input = this.textarea.value;
    this.editor.resize();
    this.editor.show(input, null);
    this.showSplit();
    this.onChange();
    let model;
    try {
      model = await this.choice.load();
    } catch (error) {
      return this.showFailure(error);
    }
    this.showExamples();
    if (!input.trim()) return this.clear();
    const trajectory = input.length <= MAX_TRAJECTORY_CHARACTERS;
    const request = { input, model: model.name, explain: "full", trajectory };
    const timer = setTimeout(() => this.verdict.setState("pending"), TYPING_DELAY_MS + PENDING_DELAY_MS);
    try {
      const answer = await this.classification.run((signal) => this.api.post("/classify", request, signal));
      if (!answer) return undefined;
      this.request = { input, model: model.name };
      this.item = answer.data[0];
      showError(byId("review-error"), this.choice.notice);
      return this.showAnswer(parseAnswer(input, this.item, model.readout, this.label));
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
    this.removal.show(answer, this.request, this.choice.model.readout);
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
    return this.plot.answer?.trajectory ? `layer ${Number(t.toFixed(1))} of ${this.plot.layers}` : "start to end";
  }

  setTime(t) {
    this.plot.t = t;
    this.figure.redraw();
  }

  highlightWord(index) {
    this.highlight(index === null ? null : this.answer.words[index].cluster, this.plot, index);
  }

  /** Highlights a cluster, or one word of it, in all parts but `origin`, the part in which it was selected. */
  highlight(clusterId, origin, index = null) {
    if (clusterId === this.plot.clusterId && index === this.plot.index) return;
    this.plot.highlight(clusterId, index);
    this.figure.redraw();
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
    this.figure.redraw();
  }
}
