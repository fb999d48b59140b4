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

/** Keeps the address in step with the view, without a history entry for every keystroke. */
export function writeLink(room, values) {
  const next = link(room, values);
  if (location.hash !== next) history.replaceState(null, "", next);
}
