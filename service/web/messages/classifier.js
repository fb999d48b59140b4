/* Classifies texts in batches: waits while the server is busy, and finds the texts that it refuses. */

const DEFAULT_RETRY_S = 2; // if a busy server sends no Retry-After
const MIN_LISTED_CONTRIBUTION = 0.05; // of a leader

export const BATCH_ROWS = 64;

export class BatchClassifier {
  constructor(api) {
    this.api = api;
  }

  /** Resolves to a result per text: {label, labels, score, abstain_reason, truncated, leaders, version} or
      {hardmax_error}. Blank texts are not sent. Nothing is returned for an aborted signal. */
  async classify(texts, model, signal) {
    const answered = await this.send(texts.filter(isNotBlank), model, signal);
    return signal.aborted
      ? []
      : texts.map((text) => (isNotBlank(text) ? answered.shift() : { abstain_reason: "empty" }));
  }

  /** A rejected batch is split in halves until the rejected text is alone. */
  async send(texts, model, signal) {
    if (!texts.length || signal.aborted) return [];
    try {
      const body = { input: texts.length === 1 ? texts[0] : texts, model, explain: "leaders" };
      const answer = await this.api.post("/classify", body, signal);
      return answer.data.map((item) => toResult(item, answer.model_version));
    } catch (error) {
      if ([429, 503].includes(error.status)) {
        await wait(1000 * (error.retryAfter ?? DEFAULT_RETRY_S), signal);
        return this.send(texts, model, signal);
      }
      if (![400, 413, 422].includes(error.status)) throw error;
      if (texts.length === 1) return [{ hardmax_error: error.message }];
      const half = texts.length >> 1;
      return [
        ...(await this.send(texts.slice(0, half), model, signal)),
        ...(await this.send(texts.slice(half), model, signal)),
      ];
    }
  }
}

const isNotBlank = (text) => text.trim() !== "";

/** Resolves after a delay, or when the signal is aborted. */
const wait = (delayMs, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, delayMs);
    signal.addEventListener("abort", resolve, { once: true });
  });

/** Converts an item of an answer. `leaders` are [word, contribution] to the label, without the smallest. */
function toResult({ label, labels, score, abstain_reason, truncated, leaders }, version) {
  const named = (leaders ?? []).map(({ word, contribution: x }) => [word, typeof x === "object" ? x[label] : x]);
  return {
    label,
    labels: labels ?? null, // of a multi-label model
    score: labels?.length === 0 ? null : score,
    abstain_reason,
    truncated,
    leaders: named.filter(([, x]) => Math.abs(x) >= MIN_LISTED_CONTRIBUTION),
    version,
  };
}
