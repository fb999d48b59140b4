/* An answer of /classify as the page uses it: offsets in JavaScript's units, words that name each other by their number,
   one number a word for the label that is looked at. Knows the wire; nothing of how it is shown. */

const DIGITS = 2;
const LEAST = 0.005; // what adds less is printed as 0.00, and stands with the rest

/** `label` is the one whose sum is shown; the answer's own if there are several and none is given. */
export function readAnswer(text, item, readout = null, label = null) {
  const labels = Object.keys(item.probs);
  const several = Boolean(item.labels) || (labels.length > 2 && typeof item.logit !== "number");
  const ends = [labels[0], labels.at(-1)];
  const shown = several ? (labels.includes(label) ? label : item.label) : ends[1];
  const number = (x) => (x !== null && typeof x === "object" ? x[shown] : x);
  const words = wordsOf(text, item, number);
  return {
    text,
    label: item.label,
    applicable: item.labels ?? null, // of labels that do not exclude each other, those that hold
    labels,
    several,
    shown,
    ends,
    against: several ? `not ${shown}` : ends[0],
    score: item.score,
    probs: item.probs,
    abstainReason: item.abstain_reason ?? null,
    tokens: item.n_words,
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

/** `spans` count in JavaScript's units, `sentSpans` as the service does. `read` numbers the words that a leader has read,
    first read first; null of others, and where the service does not say. `follows` numbers, for each layer of the
    encoder, the words that its heads attended to; null where the service does not say. */
function wordsOf(text, { words, leaders }, number) {
  const unit = unitsOf(text);
  const leading = new Map(leaders.flatMap((leader) => leader.spans.map(([start]) => [start, leader])));
  const numbers = new Map(words.map(({ spans }, token) => [spans[0][0], token]));
  return words.map((word, token) => {
    const spans = word.spans.map((span) => span.map(unit));
    const led = word.leader ? leading.get(word.spans[0][0]) : null;
    const isLeader = led?.spans[0][0] === word.spans[0][0]; // equal words may have read others
    const read = isLeader ? led.read?.map((other) => numbers.get(other.spans[0][0])) : null;
    return {
      name: word.word, // as the answer names it
      text: text.slice(...spans[0]) || word.word,
      spans,
      sentSpans: word.spans,
      cluster: word.cluster,
      leader: word.leader,
      since: word.leader ? (led?.since_layer ?? 0) : null,
      read: read?.filter((other) => other !== undefined && other !== token) ?? null,
      follows: word.attends_to ?? null,
      readAs: word.read_as ?? null,
      contribution: number(word.contribution),
      start: word.position,
      end: word.final_position,
    };
  });
}

/** From an offset in code points, which the service counts, to one in UTF-16 units, which JavaScript does. */
export function unitsOf(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (at) => at;
  const starts = [0];
  for (const sign of text) starts.push(starts.at(-1) + sign.length);
  return (at) => starts[Math.min(at, starts.length - 1)];
}

/** Words are named by their number, members by weight. */
function clusterOf({ id, kind, leaders: names }, words, contribution) {
  const size = (token) => Math.abs(words[token].contribution);
  const tokens = words.map((_, token) => token);
  const members = tokens.filter((token) => words[token].cluster === id).sort((a, b) => size(b) - size(a));
  const leads = ({ cluster, name }) => (kind === "tie" ? names.includes(name) : cluster === id);
  const leaders = tokens.filter((token) => words[token].leader && leads(words[token]));
  return { id, kind, members, leaders, contribution };
}

/** What a leader has read, in few words: "not, bad + 3 more"; "" where it read no other, null where that is not known. Marks
    are named only where there is nothing else. */
export function readBy(token, words, most = 4) {
  const { read } = words[token];
  if (!read) return null;
  const texts = read.map((other) => words[other].text);
  const spoken = texts.filter((text) => !/^\p{P}+$/u.test(text));
  const names = (spoken.length ? spoken : texts).slice(0, texts.length > most + 1 ? most : most + 1);
  return names.join(", ") + (texts.length > names.length ? ` + ${texts.length - names.length} more` : "");
}

/** Lines {from, to, rank} of the cluster that is looked at, or of one word of it: from a follower to those it follows
    in the plane (rank null), and to those that its heads attended to in the encoder, the first followed first; from a leader
    to what it has read, the first read first. A leader that does not say what it has read shows who follows it. */
export function linesOf({ words, clusters }, cluster, token) {
  const group = clusters.find(({ id }) => id === cluster);
  if (!group) return [];
  const { leaders, members } = group;
  const ranked = (from, others) => others.map((to, rank) => ({ from, to, rank }));
  const follow = (from) => leaders.filter((to) => to !== from).map((to) => ({ from, to, rank: null }));
  if (token !== null && !leaders.includes(token)) {
    const followed = new Set(words[token].follows?.flat().filter((to) => !leaders.includes(to)));
    return [...follow(token), ...ranked(token, [...followed])];
  }
  const shown = token === null ? leaders : [token];
  if (shown.every((leader) => words[leader].read === null)) return members.flatMap(follow);
  return shown.flatMap((from) => ranked(from, words[from].read ?? []));
}

/** Whom the heads of a word followed, layer by layer, in few words: "a, music and story, then is"; null where that is not known. */
export function followedBy(token, words, most = 3) {
  const { follows } = words[token];
  if (!follows) return null;
  const named = follows.map((layer) => [...new Set(layer.map((other) => words[other].text))]);
  const some = ({ length }, names) => names.join(", ") + (length > names.length ? ", \u2026" : "");
  return named
    .filter(({ length }) => length)
    .map((names) => some(names, names.slice(0, most)))
    .join("; then ");
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
  const listed = printed.length > most + 1 ? printed.slice(0, most) : printed;
  const rest = ordered.slice(listed.length);
  const rows = [
    { kind: "bias", value: answer.bias },
    ...listed.map((cluster) => ({ kind: cluster.kind, cluster, value: cluster.contribution })),
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
