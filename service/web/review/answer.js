/* Parses an answer of /classify: offsets in UTF-16 code units, words referenced by index, and one contribution per
   word, for the explained label. Also builds the rows, lines and texts that several parts of the view share. */

const DECIMALS = 2;
const MIN_LISTED_CONTRIBUTION = 0.005; // smaller ones would be printed as 0.00

/** Parses an item of an answer. `label` is the label to explain if each has a logit; by default, the predicted one. */
export function parseAnswer(text, item, readout = null, label = null) {
  const labels = Object.keys(item.probs);
  const perLabel = Boolean(item.labels) || (labels.length > 2 && typeof item.logit !== "number");
  const scaleEnds = [labels[0], labels.at(-1)];
  const shownLabel = perLabel ? (labels.includes(label) ? label : item.label) : scaleEnds[1];
  const selectValue = (x) => (x !== null && typeof x === "object" ? x[shownLabel] : x);
  const words = parseWords(text, item, selectValue);
  return {
    text,
    label: item.label,
    applicableLabels: item.labels ?? null, // of a multi-label model
    labels,
    perLabel, // whether each label has a logit
    shownLabel,
    scaleEnds,
    oppositeLabel: perLabel ? `not ${shownLabel}` : scaleEnds[0],
    score: item.score,
    probs: item.probs,
    abstainReason: item.abstain_reason ?? null,
    wordCount: item.n_words,
    unknownCount: item.unknown ?? 0,
    truncated: item.truncated,
    bias: selectValue(item.bias),
    logit: selectValue(item.logit),
    words,
    clusters: item.clusters.map((cluster) => parseCluster(cluster, words, selectValue(cluster.contribution))),
    trajectory: item.trajectory ?? null,
    readoutVector: readout?.vector ?? readout?.vectors?.[shownLabel] ?? null,
  };
}

/** Parses the words. `spans` are in UTF-16 code units, `codePointSpans` as in the API. `read` has the indices of the
    words that a leader has read, in order; `attendsTo` has, per layer of the encoder, the indices of the words that the
    heads attend to. Both are null if the answer has no such field. */
function parseWords(text, { words, leaders }, selectValue) {
  const toUtf16 = createOffsetConverter(text);
  const leaderByStart = new Map(leaders.flatMap((leader) => leader.spans.map(([start]) => [start, leader])));
  const indexByStart = new Map(words.map(({ spans }, index) => [spans[0][0], index]));
  return words.map((word, index) => {
    const spans = word.spans.map((span) => span.map(toUtf16));
    const leader = word.leader ? leaderByStart.get(word.spans[0][0]) : null;
    const isFirstSpan = leader?.spans[0][0] === word.spans[0][0]; // `read` is the union over all spans; shown once
    const read = isFirstSpan ? leader.read?.map((other) => indexByStart.get(other.spans[0][0])) : null;
    return {
      word: word.word,
      text: text.slice(...spans[0]) || word.word,
      spans,
      codePointSpans: word.spans,
      cluster: word.cluster,
      leader: word.leader,
      leaderSince: word.leader ? (leader?.since_layer ?? 0) : null,
      read: read?.filter((other) => other !== undefined && other !== index) ?? null,
      attendsTo: word.attends_to ?? null,
      readAs: word.read_as ?? null,
      contribution: selectValue(word.contribution),
      position: word.position,
      finalPosition: word.final_position,
    };
  });
}

/** Returns a function that converts an offset in code points (Python) to one in UTF-16 code units (JavaScript). */
export function createOffsetConverter(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (offset) => offset;
  const starts = [0];
  for (const character of text) starts.push(starts.at(-1) + character.length);
  return (offset) => starts[Math.min(offset, starts.length - 1)];
}

/** `members` and `leaders` are indices of words; members are sorted by the size of their contribution. */
function parseCluster({ id, kind, leaders: names }, words, contribution) {
  const size = (index) => Math.abs(words[index].contribution);
  const indices = words.map((_, index) => index);
  const members = indices.filter((index) => words[index].cluster === id).sort((a, b) => size(b) - size(a));
  const isLeader = ({ cluster, word }) => (kind === "tie" ? names.includes(word) : cluster === id);
  const leaders = indices.filter((index) => words[index].leader && isLeader(words[index]));
  return { id, kind, members, leaders, contribution };
}

/** Lists what a leader has read: "not, bad + 3 more", "" for no other word, or null if unknown. Punctuation is listed
    only if the leader has read nothing else. */
export function formatRead(index, words, limit = 4) {
  const { read } = words[index];
  if (!read) return null;
  const texts = read.map((other) => words[other].text);
  const withoutMarks = texts.filter((text) => !/^\p{P}+$/u.test(text));
  const listed = withoutMarks.length ? withoutMarks : texts;
  const names = listed.slice(0, texts.length > limit + 1 ? limit : limit + 1);
  return names.join(", ") + (texts.length > names.length ? ` + ${texts.length - names.length} more` : "");
}

/** Lists what the heads of a word attend to, by layer: "a, music; then is". Returns null if unknown. */
export function formatAttention(index, words, limit = 3) {
  const { attendsTo } = words[index];
  if (!attendsTo) return null;
  return attendsTo
    .map((layer) => [...new Set(layer.map((other) => words[other].text))])
    .filter(({ length }) => length)
    .map((names) => names.slice(0, limit).join(", ") + (names.length > limit ? ", \u2026" : ""))
    .join("; then ");
}

/** Returns the lines {from, to, rank} of a cluster, or of one word of it. From a follower, lines lead to its leaders
    (rank null) and to the words that its heads attend to, in order; from a leader, to the words that it has read, in
    order. If these are unknown, lines lead from the followers to the leader. */
export function buildLines({ words, clusters }, clusterId, index) {
  const cluster = clusters.find(({ id }) => id === clusterId);
  if (!cluster) return [];
  const { leaders, members } = cluster;
  const rankLines = (from, targets) => targets.map((to, rank) => ({ from, to, rank }));
  const leaderLines = (from) => leaders.filter((to) => to !== from).map((to) => ({ from, to, rank: null }));
  if (index !== null && !leaders.includes(index)) {
    const attended = new Set(words[index].attendsTo?.flat().filter((to) => !leaders.includes(to)));
    return [...leaderLines(index), ...rankLines(index, [...attended])];
  }
  const shownLeaders = index === null ? leaders : [index];
  if (shownLeaders.every((leader) => words[leader].read === null)) return members.flatMap(leaderLines);
  return shownLeaders.flatMap((from) => rankLines(from, words[from].read ?? []));
}

/** Rounds numbers so that they add up as printed: each is the difference of two rounded running totals.
    Returns [{rounded, from, to}], with the totals before and after each number. */
export function roundSteps(numbers) {
  const round = (x) => Number(x.toFixed(DECIMALS));
  let exactTotal = 0;
  let total = 0;
  return numbers.map((x) => {
    const from = total;
    exactTotal += x;
    total = round(exactTotal);
    return { rounded: round(total - from), from, to: total };
  });
}

/** Returns the terms of the logit as rows {kind, cluster | count, value, rounded, from, to}: the bias, then up to
    `limit` + 1 clusters by size, then the sum of the others. */
export function buildContributionRows(answer, limit) {
  const sorted = [...answer.clusters].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const isListed = ({ contribution }) => limit === Infinity || Math.abs(contribution) >= MIN_LISTED_CONTRIBUTION;
  const candidates = sorted.filter(isListed);
  const listed = candidates.length > limit + 1 ? candidates.slice(0, limit) : candidates;
  const rest = sorted.slice(listed.length);
  const rows = [
    { kind: "bias", value: answer.bias },
    ...listed.map((cluster) => ({ kind: cluster.kind, cluster, value: cluster.contribution })),
  ];
  if (rest.length)
    rows.push({ kind: "rest", count: rest.length, value: rest.reduce((sum, c) => sum + c.contribution, 0) });
  const steps = roundSteps(rows.map(({ value }) => value));
  return rows.map((row, k) => ({ ...row, ...steps[k] }));
}

/** Returns the range {low, size} of the axis that the bars of all rows need, including zero. */
export function computeAxisRange(rows) {
  const ends = rows.flatMap(({ from, to }) => [from, to]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const padding = 0.04 * (high - low || 1);
  return { low: low - padding, size: high - low + 2 * padding };
}

/** Formats a probability: 0.9731 as "97.3 %", never rounded to 0 or 100 %. */
export function formatPercent(p) {
  if (p > 0.9995) return "over 99.9 %";
  if (p < 0.0005) return "under 0.1 %";
  return `${(100 * p).toFixed(1)} %`;
}
