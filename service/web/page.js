/* Entry point: three views, each with its own address, the theme, and the dialog for an API key. */

import { Api } from "./shared/api.js";
import { Cloud } from "./cloud/cloud.js";
import { clearColourCache } from "./shared/colour.js";
import { announce, byId, copyText, readStorage } from "./shared/element.js";
import { Model } from "./model/model.js";
import { Review } from "./review/review.js";
import { VIEWS, flushLink, readLink, writeLink } from "./shared/link.js";

const THEME = "hardmax-theme";

const api = new Api(askForKey);
const loadCards = once(() => api.get("/models").then(({ models }) => models));
const loadInfo = once(() => api.get("/info"));
const views = {
  review: new Review(api, loadCards, () => updateLink("review")),
  cloud: new Cloud(api, loadInfo, () => updateLink("cloud")),
};
views.model = new Model(loadCards, loadInfo, views);
const opened = new Set();
let current = null;

/** Memoizes a request. A failed request is sent again on the next call. */
function once(request) {
  let response = null;
  return () => {
    response ??= request();
    response.catch(() => (response = null));
    return response;
  };
}

/** Writes the state of a view into the address, unless another view has been chosen meanwhile. */
function updateLink(view) {
  const here = view === current && view === readLink().view;
  if (here && opened.has(view)) writeLink(view, views[view].values());
}

/** Shows the view that the address names; an address without parameters keeps the view's content. */
function showCurrentView() {
  const { view, values } = readLink();
  const changed = current !== null && current !== view;
  current = view;
  for (const name of VIEWS) {
    byId(`view-${name}`).hidden = name !== view;
    const tab = document.querySelector(`[data-view="${name}"]`);
    if (name === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector(`[data-view="${view}"]`).textContent} \u00b7 hardmax`;
  if (changed) {
    scrollTo(0, 0);
    byId("view-name").textContent = document.title;
  }
  if (!opened.has(view) || view === "model" || values.size) views[view].open(values);
  opened.add(view);
  updateLink(view);
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

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  clearColourCache();
  views.review.repaint();
  views.cloud.repaint();
}

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  applyTheme(next);
  localStorage.setItem(THEME, next);
}

async function copyLink() {
  flushLink();
  const done = await copyText(location.href);
  const missing = done && views[current].missing ? `, ${views[current].missing}` : "";
  byId("share").textContent = done ? `Copied${missing}` : "Not copied: the link stands in the address bar";
  announce(done ? `The link is copied${missing}` : byId("share").textContent);
  setTimeout(() => (byId("share").textContent = "Copy a link to this view"), 4000);
}

byId("theme").addEventListener("click", switchTheme);
byId("share").addEventListener("click", copyLink);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part of the address after # names the view
  byId("views").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(null));
addEventListener("hashchange", showCurrentView);
document.fonts.ready.then(() => {
  views.review.sheet.grow();
  views.review.repaint();
  views.cloud.repaint();
});
applyTheme(readStorage(THEME));
showCurrentView();
