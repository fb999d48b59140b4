/* The verdict in words: what, how sure, and when there is none. Knows one answer; asks nothing itself. */

import { percent } from "./answer.js";
import { announce, byId, el, plural, signed } from "../shared/element.js";

/** {label, side, score, fine} of an answer: what stands in large, its colour, and the sentences below. */
export function verdictOf(answer) {
  const { undecided, label, labels, several, score, shown, probs } = answer;
  if (undecided === "nothing known")
    return { label: "I don\u2019t know", side: "none", score: "", fine: [nothingKnown(answer)] };
  const likely = several
    ? `The sum below is what speaks for \u201c${shown}\u201d.`
    : `The sum below, ${signed(answer.logit)}, means ${percent(probs[shown])} ${shown}.`;
  const fine = [likely, ...countsOf(answer)];
  if (undecided) {
    const close = several ? `${label}, but barely` : `${percent(probs[shown])} ${shown}`;
    return { label: "Undecided", side: "none", score: `${close}: too close to call`, fine };
  }
  const side = several || label === labels[1] ? "pos" : "neg";
  return { label, side, score: `${percent(score)} sure`, fine };
}

function nothingKnown({ text, tokens }) {
  if (!/\p{L}|\p{N}/u.test(text)) return "There is no word here, only signs and pictures.";
  if (tokens <= 1) return "This model does not know this word.";
  return `None of these ${tokens} words tells this model anything.`;
}

function countsOf({ tokens, unknown, clusters, truncated }) {
  const led = `${plural(tokens, "word")} ${tokens === 1 ? "follows" : "follow"} ${plural(clusters.length, "leader")}.`;
  const strange = unknown
    ? `${plural(unknown, "word")} ${unknown === 1 ? "is" : "are"} unknown to the model.`
    : null;
  const cut = truncated ? `Only the first ${tokens.toLocaleString("en")} words were read.` : null;
  return [led, strange, cut].filter(Boolean);
}

export class Verdict {
  /** `onLabel(label)` hears which label's sum is asked for, when there are several. */
  constructor(onLabel) {
    Object.assign(this, { onLabel, node: byId("verdict") });
  }

  /** `answer` is null while there is no text. */
  show(answer) {
    this.state("");
    const { label, side, score, fine } = answer
      ? verdictOf(answer)
      : { label: "\u2026", side: "none", score: "", fine: ["Write something, and the verdict follows."] };
    byId("verdict-label").textContent = label;
    byId("verdict-label").className = `label ${side}`;
    byId("verdict-score").textContent = score || "\u00a0";
    byId("verdict-fine").textContent = fine.join(" ");
    this.showScale(answer);
    if (answer) announce([label, score].filter(Boolean).join(", "));
  }

  /** A mark between two labels, or a bar for each of several, which chooses the sum that is shown. */
  showScale(answer) {
    const none = !answer || answer.undecided === "nothing known";
    const several = Boolean(answer?.several) && !none;
    byId("verdict-scale").hidden = several || Boolean(answer?.several);
    byId("verdict-labels").hidden = !several;
    byId("verdict-scale").classList.toggle("none", none);
    byId("verdict-mark").style.setProperty("--at", none ? 0.5 : (answer.probs[answer.shown] ?? 0.5));
    if (several)
      byId("verdict-labels").replaceChildren(...answer.labels.map((name) => this.labelNode(name, answer)));
  }

  labelNode(name, { probs, shown }) {
    const pressed = { "aria-pressed": String(name === shown), onclick: () => this.onLabel(name) };
    const share = el("i", { vars: { "--share": probs[name] }, "aria-hidden": "true" });
    return el(
      "button",
      { type: "button", class: "share", ...pressed },
      el("span", {}, name),
      el("b", {}, percent(probs[name])),
      share,
    );
  }

  /** "asking" and "old" dim what is shown and say why; "" is the verdict on the present text. */
  state(name) {
    this.node.dataset.state = name;
    byId("verdict-title").textContent =
      { asking: "Asking \u2026", old: "Verdict on an earlier text" }[name] ?? "Verdict";
  }
}
