/* The view as a link: which room, and what stands in it, in the part of the address after #.
   Knows only names and strings; the rooms say what they mean. */

export const ROOMS = ["review", "cloud", "model"];

/** {room, values} of an address such as "#cloud?alpha=0.5". */
export function readLink(hash = location.hash) {
  const [room, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { room: ROOMS.includes(room) ? room : ROOMS[0], values: new URLSearchParams(query) };
}

export function link(room, values) {
  const entries = Object.entries(values).filter(
    ([, value]) => value !== null && value !== undefined && value !== "",
  );
  const query = new URLSearchParams(entries).toString();
  return `#${room}${query && `?${query}`}`;
}

const WRITE_MS = 500; // browsers refuse to change the address a hundred times in half a minute
let pending = null; // {room, hash, timer} of a link that is not yet in the address

/** Keeps the address in step with the view, without a history entry for every keystroke. */
export function writeLink(room, values) {
  const timer = pending?.timer ?? setTimeout(flushLink, WRITE_MS);
  pending = { room, hash: link(room, values), timer };
}

/** Writes what `writeLink` still holds, unless another room was entered meanwhile. */
export function flushLink() {
  if (!pending) return;
  const { room, hash, timer } = pending;
  clearTimeout(timer);
  pending = null;
  if (room === readLink().room && location.hash !== hash) history.replaceState(null, "", hash);
}
