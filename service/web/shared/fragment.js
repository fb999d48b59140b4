/* The state of a view in the URL fragment, as "#view?name=value". Each view interprets its own values. */

export const VIEWS = ["review", "messages", "cloud", "model"];

/** Parses a fragment such as "#cloud?alpha=0.5" into {view, values}. */
export function parseFragment(hash = location.hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view: VIEWS.includes(view) ? view : VIEWS[0], values: new URLSearchParams(query) };
}

/** Formats a fragment. Empty values are left out. */
export function formatFragment(view, values) {
  const entries = Object.entries(values).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const query = new URLSearchParams(entries).toString();
  return `#${view}${query && `?${query}`}`;
}

const UPDATE_INTERVAL_MS = 500; // browsers limit history.replaceState to about 100 calls in 30 s
let pending = null; // {view, hash, timer} of an update that is not yet written

/** Updates the URL at most once per `UPDATE_INTERVAL_MS`, without a history entry. */
export function updateFragment(view, values) {
  const timer = pending?.timer ?? setTimeout(flushFragment, UPDATE_INTERVAL_MS);
  pending = { view, hash: formatFragment(view, values), timer };
}

/** Writes a pending update immediately, unless another view has been opened meanwhile. */
export function flushFragment() {
  if (!pending) return;
  const { view, hash, timer } = pending;
  clearTimeout(timer);
  pending = null;
  if (view === parseFragment().view && location.hash !== hash) history.replaceState(null, "", hash);
}
