/* Entry point: opens the view that the URL names; theme, API key dialog and the button that copies a link. */

import { Api } from "./shared/api.js";
import { Cloud } from "./cloud/cloud.js";
import { clearColourCache } from "./shared/colour.js";
import { announce, byId, copyText, readStorage } from "./shared/element.js";
import { VIEWS, formatFragment, parseFragment, updateFragment } from "./shared/fragment.js";
import { Messages } from "./messages/messages.js";
import { Model } from "./model/model.js";
import { ModelChoice } from "./shared/model_choice.js";
import { Review } from "./review/review.js";

const THEME_STORAGE = "hardmax-theme";

const api = new Api(promptForKey);
const loadCards = memoize(() => api.get("/models").then(({ models }) => models));
const loadInfo = memoize(() => api.get("/info"));
const choice = new ModelChoice(loadCards, [byId("review-model"), byId("messages-model")]);
const views = {
  review: new Review(api, choice, {
    split: (text) => views.messages.paste(text),
    onChange: () => updateAddress("review"),
  }),
  messages: new Messages(api, choice, { explain, onChange: () => updateAddress("messages") }),
  cloud: new Cloud(api, loadInfo, () => updateAddress("cloud")),
};
views.model = new Model(loadCards, loadInfo, views);
const openedViews = new Set();
let currentView = null;
let copyTimer = null; // while the button says that a link was copied
choice.listeners.push(() => updateAddress(currentView));

/** Caches the response of a request. A failed request is sent again on the next call. */
function memoize(request) {
  let response = null;
  return () => {
    response ??= request();
    response.catch(() => (response = null));
    return response;
  };
}

/** Writes the state of a view to the URL, unless another view is open or about to open. */
function updateAddress(view) {
  const isCurrent = view === currentView && view === parseFragment().view;
  if (!isCurrent || !openedViews.has(view)) return;
  const { values, note } = views[view].link?.() ?? {};
  updateFragment(view, values ?? {});
  if (copyTimer === null) byId("share").textContent = `Copy a link ${note ?? "to this view"}`;
}

/** Shows the explanation of a message in the mode for one text. */
function explain(text) {
  location.hash = "#review";
  views.review.showText(text);
}

/** Shows the view that the URL names. Without parameters in the URL, an opened view keeps its content. */
function showCurrentView() {
  const { view, values } = parseFragment();
  const changed = currentView !== null && currentView !== view;
  currentView = view;
  for (const name of VIEWS) {
    byId(`view-${name}`).hidden = name !== view;
    const link = document.querySelector(`[data-view="${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector(`[data-view="${view}"]`).textContent} \u00b7 hardmax`;
  if (changed) {
    scrollTo(0, 0);
    byId("view-name").textContent = document.title;
  }
  if (!openedViews.has(view) || view === "model" || values.size) views[view].open(values);
  openedViews.add(view);
  updateAddress(view);
  if (changed) views[view].enter?.();
}

/** Opens the API key dialog. Resolves to the key, or to null if the user cancels. */
function promptForKey(reason) {
  const dialog = byId("key-dialog");
  byId("key-reason").textContent = reason;
  byId("key-input").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "use" ? byId("key-input").value : null), {
      once: true,
    }),
  );
}

/** Applies "light" or "dark"; null keeps the theme of the document. */
function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  clearColourCache();
  views.review.repaint();
  views.cloud.repaint();
}

/** Prints with the colours of the light theme, and with the details of the verdict. */
function preparePrint() {
  const { dataset } = document.documentElement;
  const [theme, isOpen] = [dataset.theme, byId("details").open];
  byId("details").open = true;
  applyTheme("light");
  for (const { figure } of [views.review, views.cloud]) figure.paint(); // not in the next frame, as on the screen
  const restore = () => {
    byId("details").open = isOpen;
    delete dataset.theme;
    applyTheme(theme);
  };
  addEventListener("afterprint", restore, { once: true });
}

function toggleTheme() {
  const systemTheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const currentTheme = document.documentElement.dataset.theme ?? systemTheme;
  const theme = currentTheme === "dark" ? "light" : "dark";
  applyTheme(theme);
  localStorage.setItem(THEME_STORAGE, theme);
}

async function copyLink() {
  const { values, copied: extra, note } = views[currentView].link?.() ?? {};
  const copied = await copyText(new URL(formatFragment(currentView, { ...extra, ...values }), location.href).href);
  const outcome = copied ? ["Link copied", note].filter(Boolean).join(" ") : "The browser does not allow copying";
  byId("share").textContent = outcome;
  announce(outcome);
  clearTimeout(copyTimer);
  copyTimer = setTimeout(() => {
    copyTimer = null;
    updateAddress(currentView);
  }, 4000);
}

byId("theme").addEventListener("click", toggleTheme);
byId("share").addEventListener("click", copyLink);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment of the URL names the view
  byId("views").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(null));
addEventListener("hashchange", showCurrentView);
addEventListener("beforeprint", preparePrint);
document.fonts.ready.then(() => {
  views.review.editor.resize();
  views.review.repaint();
  views.cloud.repaint();
});
applyTheme(readStorage(THEME_STORAGE));
showCurrentView();
