/* The page: three rooms, one address each, the theme, and the key a server may ask for. */

import { Api } from "./shared/api.js";
import { Cloud } from "./cloud/cloud.js";
import { forgetColours } from "./shared/colour.js";
import { announce, byId, copyText, stored } from "./shared/element.js";
import { Model } from "./model/model.js";
import { Review } from "./review/review.js";
import { ROOMS, flushLink, readLink, writeLink } from "./shared/state.js";

const THEME = "hardmax-theme";

const api = new Api(askForKey);
const loadCards = once(() => api.get("/models").then(({ models }) => models));
const loadInfo = once(() => api.get("/info"));
const rooms = {
  review: new Review(api, loadCards, () => writeState("review")),
  cloud: new Cloud(api, loadInfo, () => writeState("cloud")),
};
rooms.model = new Model(loadCards, loadInfo, rooms);
const opened = new Set();
let present = null;

/** A request that is sent once; after a failure it is sent again on the next call. */
function once(ask) {
  let answer = null;
  return () => {
    answer ??= ask();
    answer.catch(() => (answer = null));
    return answer;
  };
}

/** Unless somebody left: their link is the address already, and `enter` is still to come. */
function writeState(room) {
  const here = room === present && room === readLink().room;
  if (here && opened.has(room)) writeLink(room, rooms[room].values());
}

/** Shows the room of the address; a bare name keeps what stands in the room. */
function enter() {
  const { room, values } = readLink();
  const moved = present !== null && present !== room;
  present = room;
  for (const name of ROOMS) {
    byId(`room-${name}`).hidden = name !== room;
    const door = document.querySelector(`[data-room="${name}"]`);
    if (name === room) door.setAttribute("aria-current", "page");
    else door.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector(`[data-room="${room}"]`).textContent} \u00b7 hardmax`;
  if (moved) {
    scrollTo(0, 0);
    announce(document.title);
  }
  if (!opened.has(room) || room === "model" || values.size) rooms[room].open(values);
  opened.add(room);
  writeState(room);
}

function askForKey(reason) {
  const dialog = byId("key");
  byId("key-reason").textContent = reason;
  byId("key-value").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener(
      "close",
      () => resolve(dialog.returnValue === "use" ? byId("key-value").value : null),
      { once: true },
    ),
  );
}

function useTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  forgetColours();
  rooms.review.repaint();
  rooms.cloud.repaint();
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  useTheme(next);
  localStorage.setItem(THEME, next);
}

async function copyLink() {
  flushLink();
  const done = await copyText(location.href);
  const missing = done && rooms[present].missing ? `, ${rooms[present].missing}` : "";
  byId("share").textContent = done ? `Copied${missing}` : "Not copied: the link stands in the address bar";
  announce(done ? `The link is copied${missing}` : byId("share").textContent);
  setTimeout(() => (byId("share").textContent = "Copy a link to this view"), 4000);
}

byId("theme").addEventListener("click", switchTheme);
byId("share").addEventListener("click", copyLink);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # names the room
  byId("rooms").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => useTheme(null));
addEventListener("hashchange", enter);
document.fonts.ready.then(() => {
  rooms.review.sheet.grow();
  rooms.review.repaint();
  rooms.cloud.repaint();
});
useTheme(stored(THEME));
enter();
