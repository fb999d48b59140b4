/* The verdict in words: what, how sure, and when there is none. Knows one answer; asks nothing itself. */

import { percent } from "./answer.js";
import { announce, byId, el, plural, signed } from "../shared/element.js";

const MAX_SHOWN_LABELS = 8; // labels that are shown
const WHY = {
  no_known_words: "None of these words tells this model anything.",
  low_confidence: "This is too close to call: do not act upon it.",
  out_of_distribution: "This text is unlike the data that the model was trained on: do not act upon its label.",
};

/** {label, side, badge, score, fine} of an answer: what stands in large, its colour, why it should not be acted upon,
    and the sentences below. */
export function verdictOf(answer) {
  const { abstainReason, label, ends, several, applicable, score, shown, probs } = answer;
  const side = several || label === ends[1] ? "pos" : label === ends[0] ? "neg" : "none";
  const decided = { label, side, badge: null, score: `${percent(score)} sure` };
  if (applicable)
    Object.assign(decided, { label: applicable.join(", ") || "none of them", score: "Each label for itself" });
  if (abstainReason === "no_known_words")
    return {
      label: "I don\u2019t know",
      side: "none",
      badge: abstainReason?.replaceAll("_", " "),
      score: "",
      fine: [nothingKnown(answer)],
    };
  const nearest = several ? `${label} ${percent(score)}` : `${percent(probs[shown])} ${shown}`;
  const open = { label: "Abstains", side: "none", badge: abstainReason?.replaceAll("_", " "), score: nearest };
  const sum = several
    ? `The sum below is what speaks for \u201c${shown}\u201d.`
    : `The sum below, ${signed(answer.logit)}, means ${meaningOf(answer)}.`;
  const fine = [abstainReason && WHY[abstainReason], sum, ...countsOf(answer)].filter(Boolean);
  return { ...(abstainReason ? open : decided), fine };
}

/** "2.8 % positive", or each label where there are more than the two ends. */
function meaningOf({ probs, shown, labels }) {
  const named = labels.length > 2 ? labels : [shown];
  return named.map((name) => `${percent(probs[name])} ${name}`).join(", ");
}

/** Where the mark stands between the two ends: a neutral probability counts half for each. */
function placeOf({ probs, shown, ends }) {
  const between = Object.entries(probs).filter(([name]) => !ends.includes(name));
  return between.reduce((sum, [, p]) => sum + p / 2, probs[shown] ?? 0.5);
}

function nothingKnown({ text, tokens }) {
  if (!/\p{L}|\p{N}/u.test(text)) return "There is no word here, only signs and pictures.";
  if (tokens <= 1) return "This model does not know this word.";
  return WHY.no_known_words;
}

function countsOf({ tokens, unknown, clusters, truncated }) {
  const led = `${plural(tokens, "word")} ${tokens === 1 ? "follows" : "follow"} ${plural(clusters.length, "leader")}.`;
  const unknownWords =
    unknown && `${plural(unknown, "word")} ${unknown === 1 ? "is" : "are"} unknown to the model.`;
  const cut = truncated ? `Only the first ${tokens.toLocaleString("en")} words were read.` : null;
  return [led, unknownWords, cut].filter(Boolean);
}

const NOTHING = {
  label: "\u2026",
  side: "none",
  badge: null,
  score: "",
  fine: ["Write something, and the verdict follows."],
};

export class Verdict {
  /** `onLabel(label)` is called with the label whose sum is requested, when there are several. */
  constructor(onLabel) {
    Object.assign(this, { onLabel, node: byId("verdict") });
  }

  /** `answer` is null while there is no text; `confession` says what the model gets wrong. */
  show(answer, confession = null) {
    this.state("");
    const { label, side, badge, score, fine } = answer ? verdictOf(answer) : NOTHING;
    byId("verdict-label").textContent = label;
    byId("verdict-label").className = `label ${side}`;
    byId("verdict-badge").textContent = badge;
    byId("verdict-badge").hidden = !badge;
    byId("verdict-score").textContent = score || "\u00a0";
    byId("verdict-fine").textContent = [confession, ...fine].filter(Boolean).join(" ");
    this.showScale(answer);
    if (answer) announce([label, badge, score].filter(Boolean).join(", "));
  }

  /** A mark between two labels, or a bar for each of several, which chooses the sum that is shown. */
  showScale(answer) {
    const none = !answer || answer.abstainReason === "no_known_words";
    const several = Boolean(answer?.several) && !none;
    byId("verdict-scale").hidden = several || Boolean(answer?.several);
    byId("verdict-labels").hidden = !several;
    byId("verdict-scale").classList.toggle("none", none);
    byId("verdict-mark").style.setProperty("--at", none ? 0.5 : placeOf(answer));
    if (answer)
      byId("verdict-ends").replaceChildren(...answer.ends.map((name) => el("span", {}, name)));
    const host = byId("verdict-labels");
    const focused = host.contains(document.activeElement);
    host.replaceChildren(...(several ? this.labelNodes(answer) : []));
    if (focused) host.querySelector("[aria-pressed=true]")?.focus();
  }

  /** The likeliest labels, and the one that is looked at, in the model's order. */
  labelNodes({ labels, probs, shown, applicable }) {
    const likely = [...labels].sort((a, b) => probs[b] - probs[a]).slice(0, MAX_SHOWN_LABELS);
    const nodes = labels
      .filter((name) => likely.includes(name) || name === shown)
      .map((name) =>
        el(
          "button",
          {
            type: "button",
            class: `share${applicable?.includes(name) ? " holds" : ""}`,
            "aria-pressed": String(name === shown),
            onclick: () => this.onLabel(name),
          },
          el("span", {}, name),
          el("b", {}, percent(probs[name])),
          el("i", { vars: { "--share": probs[name] }, "aria-hidden": "true" }),
        ),
      );
    const more = labels.length - nodes.length;
    return more > 0
      ? [...nodes, el("p", { class: "fine" }, `and ${plural(more, "less likely label")}`)]
      : nodes;
  }

  /** "asking" and "old" dim what is shown and say why; "" is the verdict on the present text. */
  state(name) {
    this.node.dataset.state = name;
    byId("verdict-title").textContent =
      { asking: "Asking \u2026", old: "Verdict on an earlier text" }[name] ?? "Verdict";
  }
}
