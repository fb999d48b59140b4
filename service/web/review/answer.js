/* An answer of /classify as the page uses it: offsets in JavaScript's units, one number a word for the label that is
   looked at, and clusters with names. Knows the wire; nothing of how it is shown. */

const NAMED = 3; // a cluster is named by so many of its heaviest words ..
const TELLING = 0.05; // .. if they add at least this share of what the heaviest adds
const DIGITS = 2;
const LEAST = 0.005; // what adds less is printed as 0.00, and stands with the rest

/** `label` is the one whose sum is shown; the answer's own if there are several and none is given. */
export function readAnswer(text, item, readout = null, label = null) {
  const labels = Object.keys(item.probs);
  const several = labels.length !== 2;
  const shown = several ? (labels.includes(label) ? label : item.label) : labels[1];
  const number = (x) => (x !== null && typeof x === "object" ? x[shown] : x);
  const unit = unitsOf(text);
  const span = (range) => range?.map(unit) ?? null;
  const words = item.words.map((word) => ({
    name: word.text, // as the answer names it
    text: text.slice(...span(word.spans[0])) || word.text,
    spans: word.spans.map(span),
    cluster: word.cluster,
    leader: word.leader,
    contribution: number(word.contribution),
    context: surroundings(text, word.spans.map(span), span(word.context)),
    readAs: word.read_as ?? null,
    start: word.start,
    end: word.end,
  }));
  const since = new Map(item.leaders.map(({ spans, since_layer }) => [unit(spans[0][0]), since_layer]));
  words.forEach((word) => (word.since = word.leader ? (since.get(word.spans[0][0]) ?? 0) : null));
  return {
    text,
    label: item.label,
    labels,
    several,
    shown,
    against: several ? `not ${shown}` : labels[0],
    score: item.score,
    probs: item.probs,
    undecided: item.undecided ?? null,
    tokens: item.tokens,
    unknown: item.unknown ?? 0,
    truncated: item.truncated,
    bias: number(item.bias),
    logit: number(item.logit),
    words,
    clusters: item.clusters.map((cluster) => clusterOf(cluster, words, number(cluster.contribution))),
    trajectory: item.trajectory ?? null,
    vector: readout?.vector ?? readout?.vectors?.[shown] ?? null,
  };
}

/** From an offset in code points, which the service counts, to one in UTF-16 units, which JavaScript does. */
export function unitsOf(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (at) => at;
  const starts = [0];
  for (const sign of text) starts.push(starts.at(-1) + sign.length);
  return (at) => starts[Math.min(at, starts.length - 1)];
}

/** What a word was read together with, when that is more than the word. */
function surroundings(text, [[start, end]], context) {
  if (!context || (context[0] >= start && context[1] <= end)) return null;
  return text
    .slice(...context)
    .replace(/\s+/g, " ")
    .trim();
}

function clusterOf({ id, kind, leaders: names }, words, contribution) {
  const size = (token) => Math.abs(words[token].contribution);
  const members = words.map((_, token) => token).filter((token) => words[token].cluster === id);
  members.sort((a, b) => size(b) - size(a));
  const leaders = words
    .map((_, token) => token)
    .filter(
      (token) =>
        words[token].leader &&
        (kind === "tie" ? names.includes(words[token].name) : words[token].cluster === id),
    );
  return { id, kind, members, leaders, contribution, ...nameOf(members, leaders, words) };
}

/** The heaviest words, each once, as {text, leads}; and the leaders that are not among them. */
function nameOf(members, leaders, words) {
  const heaviest = new Map();
  const size = (token) => Math.abs(words[token].contribution);
  for (const token of members) {
    const key = words[token].text.toLowerCase();
    const more = heaviest.size < NAMED && size(token) >= TELLING * size(members[0]);
    if (!heaviest.has(key) && !more) continue;
    const leads = (heaviest.get(key)?.leads ?? false) || leaders.includes(token);
    heaviest.set(key, { text: words[token].text, leads });
  }
  const others = leaders.map((token) => words[token].text);
  const ledBy = [...new Set(others)].filter((text) => !heaviest.get(text.toLowerCase())?.leads);
  return { name: [...heaviest.values()], ledBy };
}

/** Numbers as they are printed: each running sum is rounded, and a step is what lies between two of them.
    So what is printed adds up to the last digit. Returns [{adds, from, to}]. */
export function stepsOf(numbers) {
  const round = (x) => Number(x.toFixed(DIGITS));
  let exact = 0;
  let at = 0;
  return numbers.map((x) => {
    const from = at;
    exact += x;
    at = round(exact);
    return { adds: round(at - from), from, to: at };
  });
}

/** The sum that is the decision, as rows {kind, cluster | count, adds, from, to}: the bias, then the clusters, largest first. */
export function rowsOf(answer, most) {
  const ordered = [...answer.clusters].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const printed = ordered.filter(({ contribution }) => most === Infinity || Math.abs(contribution) >= LEAST);
  const kept = printed.length > most + 1 ? printed.slice(0, most) : printed;
  const rest = ordered.slice(kept.length);
  const rows = [
    { kind: "bias", value: answer.bias },
    ...kept.map((cluster) => ({ kind: cluster.kind, cluster, value: cluster.contribution })),
  ];
  if (rest.length)
    rows.push({ kind: "rest", count: rest.length, value: rest.reduce((sum, c) => sum + c.contribution, 0) });
  const steps = stepsOf(rows.map(({ value }) => value));
  return rows.map((row, k) => ({ ...row, ...steps[k] }));
}

/** The stretch of the axis that all bars need, zero included. */
export function spanOf(rows) {
  const ends = rows.flatMap(({ from, to }) => [from, to]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const pad = 0.04 * (high - low || 1);
  return { low: low - pad, size: high - low + 2 * pad };
}

/** 0.9731 as "97.3 %", and never more certain than it is. */
export function percent(p) {
  if (p > 0.9995) return "over 99.9 %";
  if (p < 0.0005) return "under 0.1 %";
  return `${(100 * p).toFixed(1)} %`;
}
