/* The verdict: the predicted label and its score, or the reason why the model abstains. */

import { formatPercent } from "./answer.js";
import { announce, byId, el, plural, signed } from "../shared/element.js";

const MAX_SHOWN_LABELS = 8;
const UNKNOWN_WORDS = "The model knows none of these words.";
const EMPTY_VERDICT = {
  label: "\u2026",
  side: "none",
  score: "",
  notes: ["Write a text to see its verdict."],
  details: "",
};

/** Why the model abstains, as it follows "unsure:". */
export const UNSURE_REASONS = {
  no_known_words: "no known words",
  low_confidence: "too close to call",
  out_of_distribution: "unlike the training texts",
  empty: "no text",
};

/** Describes an answer as {label, side, badge, score, notes, details}: the heading, its colour, why the model is unsure,
    how sure it is, the sentences below, and those for readers who know the model. */
export function describeVerdict(answer) {
  const { abstainReason, label, scaleEnds, perLabel, applicableLabels, score, shownLabel, probs } = answer;
  const badge = abstainReason && (UNSURE_REASONS[abstainReason] ?? abstainReason.replaceAll("_", " "));
  if (abstainReason === "no_known_words")
    return { ...EMPTY_VERDICT, label: "I don\u2019t know", badge, notes: [describeUnknownText(answer)] };
  const side = perLabel || label === scaleEnds[1] ? "pos" : label === scaleEnds[0] ? "neg" : "none";
  const logit = perLabel
    ? `The contributions add up to the logit of \u201c${shownLabel}\u201d.`
    : `The contributions add up to the logit, ${signed(answer.logit)}, which means ${formatProbabilities(answer)}.`;
  const described = { badge, side, notes: describeLimits(answer), details: `${describeLeaders(answer)} ${logit}` };
  if (abstainReason) {
    // subtle: far from the training texts a probability says nothing, so none is shown
    const isClose = abstainReason === "low_confidence";
    const nearest = perLabel ? `${label} ${formatPercent(score)}` : `${formatPercent(probs[shownLabel])} ${shownLabel}`;
    const warning = `Do not act on it: the nearest label would be ${label}.`;
    const notes = [warning, ...described.notes];
    return { ...described, label: "Unsure", side: "none", score: isClose ? nearest : "", notes };
  }
  if (applicableLabels) {
    const list = applicableLabels.join(", ") || "no label";
    return { ...described, label: list, score: "labels are independent" };
  }
  return { ...described, label, score: `${formatPercent(score)} sure` };
}

/** "2.8 % positive", or all labels if there are more than two. */
function formatProbabilities({ probs, shownLabel, labels }) {
  const named = labels.length > 2 ? labels : [shownLabel];
  return named.map((name) => `${formatPercent(probs[name])} ${name}`).join(", ");
}

/** Returns the position on the scale from 0 to 1. A label between the ends counts half for each. */
function computeScalePosition({ probs, shownLabel, scaleEnds }) {
  const between = Object.entries(probs).filter(([name]) => !scaleEnds.includes(name));
  return between.reduce((sum, [, p]) => sum + p / 2, probs[shownLabel] ?? 0.5);
}

function describeUnknownText({ text, wordCount }) {
  if (!/\p{L}|\p{N}/u.test(text)) return "This text contains no words, only symbols.";
  if (wordCount <= 1) return "The model does not know this word.";
  return UNKNOWN_WORDS;
}

function describeLeaders({ wordCount, clusters }) {
  return `${plural(wordCount, "word")} ${wordCount === 1 ? "follows" : "follow"} ${plural(clusters.length, "leader")}.`;
}

/** Says what the model has not read. */
function describeLimits({ wordCount, unknownCount, truncated }) {
  const unknown =
    unknownCount && `${plural(unknownCount, "word")} ${unknownCount === 1 ? "is" : "are"} unknown to the model.`;
  const cut = truncated ? `Only the first ${wordCount.toLocaleString("en")} words were read.` : null;
  return [unknown, cut].filter(Boolean);
}

export class Verdict {
  /** `onLabel(label)` is called when a label is selected, where each label has a logit. */
  constructor(onLabel) {
    Object.assign(this, { onLabel, node: byId("verdict") });
  }

  /** Shows an answer, or null if there is no text. `errorNote` describes a known error of the model. */
  show(answer, errorNote = null) {
    this.setState("");
    const { label, side, badge, score, notes, details } = answer ? describeVerdict(answer) : EMPTY_VERDICT;
    byId("verdict-label").textContent = label;
    byId("verdict-label").className = `label ${side}`;
    byId("verdict-badge").textContent = badge;
    byId("verdict-badge").hidden = !badge;
    byId("verdict-score").textContent = score || "\u00a0";
    byId("verdict-fine").textContent = [errorNote, ...notes].filter(Boolean).join(" ");
    byId("details-summary").textContent = details;
    this.showScale(answer);
    if (answer) announce([label, badge, score].filter(Boolean).join(", "));
  }

  /** Shows a marker between two labels, or one button with a bar per label, which selects the label to explain. */
  showScale(answer) {
    const isEmpty = !answer || answer.abstainReason === "no_known_words";
    const hasButtons = Boolean(answer?.perLabel) && !isEmpty;
    byId("verdict-scale").hidden = Boolean(answer?.perLabel);
    byId("verdict-labels").hidden = !hasButtons;
    byId("verdict-scale").classList.toggle("none", isEmpty);
    byId("verdict-mark").style.setProperty("--at", isEmpty ? 0.5 : computeScalePosition(answer));
    if (answer) byId("verdict-ends").replaceChildren(...answer.scaleEnds.map((name) => el("span", {}, name)));
    const group = byId("verdict-labels");
    const hadFocus = group.contains(document.activeElement);
    group.replaceChildren(...(hasButtons ? this.createLabelButtons(answer) : []));
    if (hadFocus) group.querySelector("[aria-pressed=true]")?.focus();
  }

  /** Returns buttons for the most likely labels and the shown one, in the model's order. */
  createLabelButtons({ labels, probs, shownLabel, applicableLabels }) {
    const likely = [...labels].sort((a, b) => probs[b] - probs[a]).slice(0, MAX_SHOWN_LABELS);
    const buttons = labels
      .filter((name) => likely.includes(name) || name === shownLabel)
      .map((name) =>
        el(
          "button",
          {
            type: "button",
            class: `label-button${applicableLabels?.includes(name) ? " applicable" : ""}`,
            "aria-pressed": String(name === shownLabel),
            onclick: () => this.onLabel(name),
          },
          el("span", {}, name),
          el("b", {}, formatPercent(probs[name])),
          el("i", { vars: { "--probability": probs[name] }, "aria-hidden": "true" }),
        ),
      );
    const hidden = labels.length - buttons.length;
    return hidden > 0
      ? [...buttons, el("p", { class: "fine" }, `and ${plural(hidden, "less likely label")}`)]
      : buttons;
  }

  /** "pending" and "stale" dim the verdict and change the title; "" means that it is up to date. */
  setState(state) {
    this.node.dataset.state = state;
    byId("verdict-title").textContent =
      { pending: "Classifying \u2026", stale: "Verdict on an earlier text" }[state] ?? "Verdict";
  }
}
