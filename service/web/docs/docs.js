/* The API documents: this server's openapi.json with a form for every route, whose example is sent to the models served here.
   Knows OpenAPI 3.1. */

import { Api, KEY_STORAGE, INVALID_KEY_MESSAGE, formatError, isValidKey } from "../shared/api.js";
import { byId, el, showError, readStorage } from "../shared/element.js";
import { formatCurl, copyButton } from "../shared/curl.js";

const METHODS = ["get", "post", "put", "delete", "patch"];
const SHOWN_UP_TO = 20_000; // characters of an answer

async function open() {
  const api = new Api(async () => null);
  try {
    const document = await api.get("/openapi.json");
    // Without a key the models cannot be listed; the examples then name none.
    const cards = await api.get("/models").then(
      ({ models }) => models,
      () => [],
    );
    show(new Specification(document, cards));
  } catch (error) {
    showError(byId("docs-error"), formatError(error));
  }
}

function show(spec) {
  const routes = spec.routes;
  const list = byId("docs-routes");
  const opened = [...list.querySelectorAll("details[open]")].map((node) => node.id); // before a key was entered
  list.replaceChildren(...routes.map((route) => routeNode(route, spec)));
  showErrors(routes, spec);
  for (const id of [location.hash.slice(1), ...opened]) document.getElementById(id)?.setAttribute("open", "");
}

/** OpenAPI with its references followed, and examples that name models which are there. */
class Specification {
  constructor(document, cards) {
    Object.assign(this, { document, cards });
  }

  get routes() {
    return Object.entries(this.document.paths).flatMap(([path, item]) =>
      METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })),
    );
  }

  resolve(schema) {
    if (!schema?.$ref) return schema;
    const parts = schema.$ref.replace("#/", "").split("/");
    return this.resolve(parts.reduce((at, name) => at?.[name], this.document));
  }

  /** The body to begin with: the example of the document, with the model that this server would use. */
  exampleOf({ requestBody, path }) {
    const { schema, example, examples } = requestBody?.content?.["application/json"] ?? {};
    const found = example ?? Object.values(examples ?? {})[0]?.value ?? this.resolve(schema)?.examples?.[0];
    const body = found ?? this.least(schema);
    if (body && typeof body === "object" && "model" in body) {
      const kind = path.startsWith("/sequences") ? "sequences" : "text-classification";
      const model = this.modelOf(kind);
      return model ? { ...body, model } : body;
    }
    return body;
  }

  /** The required fields of a schema with their own examples. */
  least(schema) {
    const { properties = {}, required = [] } = this.resolve(schema) ?? {};
    return Object.fromEntries(
      required.map((name) => [name, this.resolve(properties[name])?.examples?.[0] ?? null]),
    );
  }

  modelOf(kind) {
    const fit = this.cards.filter((card) => card.kind === kind);
    return (fit.find((card) => card.default) ?? fit[0])?.name ?? null;
  }

  /** A value for a part of the path. */
  partOf(name) {
    return name === "name" ? (this.modelOf("text-classification") ?? "") : name === "version" ? "1" : "";
  }
}

const anchor = ({ method, path }) => `${method}${path.replace(/\W+/g, "-").replace(/-$/, "")}`;

function routeNode(route, spec) {
  const { method, path, summary } = route;
  const head = el(
    "summary",
    {},
    el("h2", {}, el("b", {}, method.toUpperCase()), ` ${path}`),
    el("span", { class: "soft" }, summary),
  );
  const node = el("details", { class: "route", id: anchor(route) }, head);
  node.addEventListener(
    "toggle",
    () => node.open && node.children.length === 1 && node.append(...insideOf(route, spec)),
  );
  return node;
}

function insideOf(route, spec) {
  const { description, summary, parameters = [], requestBody, responses } = route;
  const queries = parameters.map((p) => spec.resolve(p)).filter((p) => p.in === "query");
  const types = Object.keys(requestBody?.content ?? {});
  const sent = requestBody?.content?.["application/json"]?.schema;
  const [status, done] = Object.entries(responses ?? {}).find(([code]) => code.startsWith("2")) ?? [];
  const answered = Object.values(spec.resolve(done)?.content ?? {})[0]?.schema;
  return [
    description && description !== summary ? el("div", { class: "said" }, prose(description)) : "",
    el("div", { class: "halves" }, tryNodes(route, spec)),
    el(
      "div",
      { class: "halves" },
      el(
        "div",
        {},
        section(
          "In the address",
          queries.map((p) => itemOf(p.name, p.schema, p.required, p.description, spec, [])),
        ),
        section(types.length > 1 ? `Sent, as ${types.join(" or ")}` : "Sent", fieldsOf(sent, spec)),
      ),
      el("div", {}, section(`Answered, ${status}`, fieldsOf(answered, spec))),
    ),
  ];
}

const section = (title, items) =>
  items.length ? [el("h3", {}, title), el("ul", { class: "fields" }, items)] : [];

/** The form: the parts of the path, the body, and what this server answers. Its example is sent when it is opened. */
function tryNodes({ method, path, requestBody }, spec) {
  const names = [...path.matchAll(/\{(\w+)/g)].map(([, name]) => name);
  const id = anchor({ method, path });
  const parts = names.map((name) =>
    el("input", { id: `${id}-${name}`, value: spec.partOf(name), autocomplete: "off" }),
  );
  const example = spec.exampleOf({ requestBody, path });
  const text = requestBody ? JSON.stringify(example, null, 1).replace(/\n\s*(?=[-\d\]])/g, "") : null;
  const body =
    text === null
      ? null
      : el(
          "textarea",
          {
            class: "code",
            rows: Math.min(12, text.split("\n").length),
            spellcheck: "false",
            "aria-label": `Body of ${method} ${path}`,
          },
          text,
        );
  const address = () =>
    names.reduce((at, name, k) => at.replace(`{${name}}`, encodeURIComponent(parts[k].value)), path);
  const curl = el("pre", { class: "curl", tabindex: 0 });
  const answer = el("div", { class: "answer", role: "status" });
  const write = () => (curl.textContent = formatCurl(method, address(), body?.value ?? null));
  for (const field of [...parts, body].filter(Boolean)) field.addEventListener("input", write);
  const send = () => ask(method, address(), body?.value ?? null, answer);
  write();
  send();
  const buttons = [
    el("button", { type: "button", onclick: send }, "Send"),
    copyButton("curl", () => curl.textContent),
  ];
  const labelled = names.map((name, k) =>
    el("label", { class: "part", for: `${id}-${name}` }, `${name} `, parts[k]),
  );
  return [
    el("div", { class: "try" }, labelled, body ?? "", el("div", { class: "row" }, buttons), curl),
    answer,
  ];
}

async function ask(method, address, body, node) {
  const key = readStorage(KEY_STORAGE, "sessionStorage");
  const headers = {
    ...(body !== null && { "content-type": "application/json" }),
    ...(key && { authorization: `Bearer ${key}` }),
  };
  const start = performance.now();
  try {
    const response = await fetch(address, {
      method: method.toUpperCase(),
      headers,
      ...(body !== null && { body }),
    });
    const text = await response.text();
    const took = `${Math.max(1, Math.round(performance.now() - start))} ms`;
    const line = el(
      "p",
      { class: response.ok ? "fine" : "fine neg" },
      `This server answered ${response.status} in ${took}:`,
    );
    node.replaceChildren(line, el("pre", { tabindex: 0 }, readable(text)));
  } catch {
    node.replaceChildren(el("p", { class: "error" }, "The server does not answer. Is it still running?"));
  }
}

/** JSON with a line a field, lists of numbers on one line; anything else as it is. */
function readable(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2).replace(/\[[-\d.,\seE+]*\]/g, (list) =>
      list.replace(/\s+/g, " "),
    );
  } catch {
    /* not JSON: metrics, for example */
  }
  return shown.length > SHOWN_UP_TO ? `${shown.slice(0, SHOWN_UP_TO)}\n\u2026` : shown || "(nothing)";
}

/** Paragraphs, with `code` as code. */
const prose = (text) => text.split(/\n\s*\n/).map((part) => el("p", {}, inline(part)));
const inline = (text) => text.split(/`([^`]*)`/).map((part, k) => (k % 2 ? el("code", {}, part) : part));

/** The fields of a schema; those of objects within stand below their field. */
function fieldsOf(schema, spec, above = []) {
  return objectsOf(schema, spec).flatMap((found) => {
    if (above.includes(found)) return [];
    const { properties = {}, required = [] } = found;
    return Object.entries(properties).map(([name, part]) =>
      itemOf(name, part, required.includes(name), part.description, spec, [...above, found]),
    );
  });
}

/** The object schemas in a schema: itself, those it may be, those of its items. */
function objectsOf(schema, spec) {
  const found = spec.resolve(schema);
  if (!found) return [];
  if (found.properties) return [found];
  return [...(found.anyOf ?? found.oneOf ?? found.allOf ?? []), found.items]
    .filter(Boolean)
    .flatMap((part) => objectsOf(part, spec));
}

function itemOf(name, schema, required, about, spec, above) {
  const fallback = schema?.default ?? null;
  const kind =
    kindOf(schema, spec) +
    (fallback === null ? "" : `, ${JSON.stringify(fallback)} if absent`) +
    (required && !above.length ? ", required" : "");
  const within = fieldsOf(schema, spec, above);
  return el(
    "li",
    {},
    el("code", {}, name),
    el("span", { class: "kind" }, ` ${kind} `),
    about ? el("span", {}, inline(about)) : "",
    within.length ? el("ul", { class: "fields" }, within) : "",
  );
}

function kindOf(schema, spec) {
  const found = spec.resolve(schema);
  if (!found) return "anything";
  if (found.enum) return found.enum.map((x) => JSON.stringify(x)).join(" or ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  const options = found.anyOf ?? found.oneOf ?? found.allOf;
  if (options) return [...new Set(options.map((part) => kindOf(part, spec)))].join(" or ");
  if (found.prefixItems) return `[${found.prefixItems.map((part) => kindOf(part, spec)).join(", ")}]`;
  if (found.type === "array") return `list of ${kindOf(found.items, spec)}`;
  const bounds = [
    ["minimum", "at least"],
    ["maximum", "at most"],
    ["exclusiveMinimum", "over"],
  ].filter(([key]) => found[key] !== undefined);
  return [found.type ?? "anything", ...bounds.map(([key, words]) => `${words} ${found[key]}`)].join(" ");
}

/** The statuses of all routes, once, with the shape they share. */
function showErrors(routes, spec) {
  const errors = new Map();
  let shape = null;
  for (const { responses = {}, path } of routes) {
    for (const [status, response] of Object.entries(responses)) {
      if (status.startsWith("2") || path.startsWith("/v2")) continue;
      const found = spec.resolve(response);
      errors.set(status, found.description);
      const example = found.content?.["application/json"]?.example;
      if (example?.error?.param) shape ??= example; // all that an error has
    }
  }
  const lines = [...errors]
    .sort()
    .map(([status, about]) => el("div", {}, el("dt", {}, status), el("dd", {}, inline(about))));
  byId("docs-statuses").replaceChildren(...lines);
  byId("docs-error-shape").textContent = shape ? JSON.stringify(shape, null, 2) : "";
  byId("docs-error-shape").hidden = !shape;
  byId("docs-errors").hidden = lines.length === 0;
}

function listenForKey() {
  const say = () =>
    (byId("docs-key-state").textContent = readStorage(KEY_STORAGE, "sessionStorage") ? "A key is in use in this tab." : "");
  byId("docs-key").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = byId("docs-key-value").value.trim();
    byId("docs-key-value").value = "";
    if (key && !isValidKey(key)) return void (byId("docs-key-state").textContent = INVALID_KEY_MESSAGE);
    if (key) sessionStorage.setItem(KEY_STORAGE, key);
    else sessionStorage.removeItem(KEY_STORAGE);
    say();
    open();
  });
  say();
}

const theme = readStorage("hardmax-theme");
if (theme) document.documentElement.dataset.theme = theme;
listenForKey();
open();
