/* The state of a view in the fragment of the address, as "#view?name=value". Each view interprets its own values. */

export const VIEWS = ["review", "cloud", "model"];

/** {view, values} of an address such as "#cloud?alpha=0.5". */
export function readLink(hash = location.hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view: VIEWS.includes(view) ? view : VIEWS[0], values: new URLSearchParams(query) };
}

export function formatLink(view, values) {
  const entries = Object.entries(values).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const query = new URLSearchParams(entries).toString();
  return `#${view}${query && `?${query}`}`;
}

const WRITE_MS = 500; // browsers refuse more than about a hundred changes of the address in half a minute
let pending = null; // {view, hash, timer} of a link that is not yet in the address

/** Updates the address at most every `WRITE_MS`, without a history entry. */
export function writeLink(view, values) {
  const timer = pending?.timer ?? setTimeout(flushLink, WRITE_MS);
  pending = { view, hash: formatLink(view, values), timer };
}

/** Writes a pending link at once, unless another view has been opened meanwhile. */
export function flushLink() {
  if (!pending) return;
  const { view, hash, timer } = pending;
  clearTimeout(timer);
  pending = null;
  if (view === readLink().view && location.hash !== hash) history.replaceState(null, "", hash);
}
