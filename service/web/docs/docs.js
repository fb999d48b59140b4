/* The API reference: the routes of this server's OpenAPI 3.1 document, each with a form that sends its example. */

import { Api, KEY_STORAGE, INVALID_KEY_MESSAGE, formatError, isValidKey } from "../shared/api.js";
import { byId, el, showError, readStorage } from "../shared/element.js";
import { formatCurl, copyButton } from "../shared/curl.js";

const METHODS = ["get", "post", "put", "delete", "patch"];
const MAX_SHOWN_CHARS = 20_000; // of a response

async function open() {
  const api = new Api(async () => null);
  try {
    const document = await api.get("/openapi.json");
    // Without a key the models cannot be listed; the examples then omit the model.
    const cards = await api.get("/models").then(
      ({ models }) => models,
      () => [],
    );
    showReference(new Specification(document, cards));
  } catch (error) {
    showError(byId("docs-error"), formatError(error));
  }
}

function showReference(spec) {
  const routes = spec.routes;
  const list = byId("docs-routes");
  const openIds = [...list.querySelectorAll("details[open]")].map((node) => node.id); // a new key redraws the list
  list.replaceChildren(...routes.map((route) => renderRoute(route, spec)));
  showErrorResponses(routes, spec);
  for (const id of [location.hash.slice(1), ...openIds]) document.getElementById(id)?.setAttribute("open", "");
}

/** An OpenAPI document with resolved references, and examples that name models of this server. */
class Specification {
  constructor(document, cards) {
    Object.assign(this, { document, cards });
  }

  get routes() {
    return Object.entries(this.document.paths).flatMap(([path, item]) =>
      METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })),
    );
  }

  /** Follows `$ref`. */
  resolve(schema) {
    if (!schema?.$ref) return schema;
    const keys = schema.$ref.replace("#/", "").split("/");
    return this.resolve(keys.reduce((node, key) => node?.[key], this.document));
  }

  /** Returns the example request body of a route, with the default model of this server. */
  exampleBody({ requestBody, path }) {
    const { schema, example, examples } = requestBody?.content?.["application/json"] ?? {};
    const documented = example ?? Object.values(examples ?? {})[0]?.value ?? this.resolve(schema)?.examples?.[0];
    const body = documented ?? this.exampleOfRequiredFields(schema);
    if (body && typeof body === "object" && "model" in body) {
      const model = this.findModel(path.startsWith("/sequences") ? "sequences" : "text-classification");
      return model ? { ...body, model } : body;
    }
    return body;
  }

  exampleOfRequiredFields(schema) {
    const { properties = {}, required = [] } = this.resolve(schema) ?? {};
    return Object.fromEntries(
      required.map((name) => [name, this.resolve(properties[name])?.examples?.[0] ?? null]),
    );
  }

  /** Returns the name of the default model of a kind, or else of the first one. */
  findModel(kind) {
    const cards = this.cards.filter((card) => card.kind === kind);
    return (cards.find((card) => card.default) ?? cards[0])?.name ?? null;
  }

  examplePathParameter(name) {
    return name === "name" ? (this.findModel("text-classification") ?? "") : name === "version" ? "1" : "";
  }
}

const routeId = ({ method, path }) => `${method}${path.replace(/\W+/g, "-").replace(/-$/, "")}`;

/** Renders a route as a collapsed element. Its details are rendered when it is first opened. */
function renderRoute(route, spec) {
  const { method, path, summary } = route;
  const head = el(
    "summary",
    {},
    el("h2", {}, el("b", {}, method.toUpperCase()), ` ${path}`),
    el("span", { class: "soft" }, summary),
  );
  const node = el("details", { class: "route", id: routeId(route) }, head);
  node.addEventListener(
    "toggle",
    () => node.open && node.children.length === 1 && node.append(...renderDetails(route, spec)),
  );
  return node;
}

function renderDetails(route, spec) {
  const { description, summary, parameters = [], requestBody, responses } = route;
  const queryParameters = parameters.map((p) => spec.resolve(p)).filter((p) => p.in === "query");
  const mediaTypes = Object.keys(requestBody?.content ?? {});
  const bodySchema = requestBody?.content?.["application/json"]?.schema;
  const [status, response] = Object.entries(responses ?? {}).find(([code]) => code.startsWith("2")) ?? [];
  const responseSchema = Object.values(spec.resolve(response)?.content ?? {})[0]?.schema;
  const queryFields = queryParameters.map((p) => renderField(p.name, p.schema, p.required, p.description, spec, []));
  const bodyTitle = mediaTypes.length > 1 ? `Request body (${mediaTypes.join(" or ")})` : "Request body";
  return [
    description && description !== summary ? el("div", { class: "description" }, renderParagraphs(description)) : "",
    el("div", { class: "two-columns" }, renderRequestForm(route, spec)),
    el(
      "div",
      { class: "two-columns" },
      el(
        "div",
        {},
        renderSection("Query parameters", queryFields),
        renderSection(bodyTitle, renderFields(bodySchema, spec)),
      ),
      el("div", {}, renderSection(`Response ${status}`, renderFields(responseSchema, spec))),
    ),
  ];
}

const renderSection = (title, items) =>
  items.length ? [el("h3", {}, title), el("ul", { class: "fields" }, items)] : [];

/** Renders path parameters, request body, curl command and response; sends the example immediately. */
function renderRequestForm({ method, path, requestBody }, spec) {
  const names = [...path.matchAll(/\{(\w+)/g)].map(([, name]) => name);
  const id = routeId({ method, path });
  const inputs = names.map((name) =>
    el("input", { id: `${id}-${name}`, value: spec.examplePathParameter(name), autocomplete: "off" }),
  );
  const example = spec.exampleBody({ requestBody, path });
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
            "aria-label": `Request body of ${method} ${path}`,
          },
          text,
        );
  const buildUrl = () =>
    names.reduce((at, name, k) => at.replace(`{${name}}`, encodeURIComponent(inputs[k].value)), path);
  const curl = el("pre", { class: "curl", tabindex: 0 });
  const response = el("div", { class: "response", role: "status" });
  const updateCurl = () => (curl.textContent = formatCurl(method, buildUrl(), body?.value ?? null));
  for (const field of [...inputs, body].filter(Boolean)) field.addEventListener("input", updateCurl);
  const send = () => sendRequest(method, buildUrl(), body?.value ?? null, response);
  updateCurl();
  send();
  const buttons = [
    el("button", { type: "button", onclick: send }, "Send"),
    copyButton("curl", () => curl.textContent),
  ];
  const labels = names.map((name, k) =>
    el("label", { class: "path-parameter", for: `${id}-${name}` }, `${name} `, inputs[k]),
  );
  return [
    el("div", { class: "request" }, labels, body ?? "", el("div", { class: "row" }, buttons), curl),
    response,
  ];
}

/** Sends a request and shows the response in `node`. */
async function sendRequest(method, url, body, node) {
  const key = readStorage(KEY_STORAGE, "sessionStorage");
  const headers = {
    ...(body !== null && { "content-type": "application/json" }),
    ...(key && { authorization: `Bearer ${key}` }),
  };
  const startMs = performance.now();
  try {
    const response = await fetch(url, {
      method: method.toUpperCase(),
      headers,
      ...(body !== null && { body }),
    });
    const text = await response.text();
    const durationMs = Math.max(1, Math.round(performance.now() - startMs));
    const line = el(
      "p",
      { class: response.ok ? "fine" : "fine neg" },
      `Response ${response.status} in ${durationMs} ms:`,
    );
    node.replaceChildren(line, el("pre", { tabindex: 0 }, formatBody(text)));
  } catch {
    node.replaceChildren(el("p", { class: "error" }, "The server does not answer. Is it still running?"));
  }
}

/** Formats JSON with one field per line and lists of numbers on one line. Other text stays as it is. */
function formatBody(text) {
  let formatted = text;
  try {
    formatted = JSON.stringify(JSON.parse(text), null, 2).replace(/\[[-\d.,\seE+]*\]/g, (list) =>
      list.replace(/\s+/g, " "),
    );
  } catch {
    /* not JSON, for example metrics */
  }
  return formatted.length > MAX_SHOWN_CHARS
    ? `${formatted.slice(0, MAX_SHOWN_CHARS)}\n\u2026`
    : formatted || "(empty)";
}

/** Renders Markdown paragraphs with inline code. */
const renderParagraphs = (text) => text.split(/\n\s*\n/).map((part) => el("p", {}, renderInlineCode(part)));
const renderInlineCode = (text) => text.split(/`([^`]*)`/).map((part, k) => (k % 2 ? el("code", {}, part) : part));

/** Renders the fields of a schema, with nested fields below their parent. `ancestors` stops recursive schemas. */
function renderFields(schema, spec, ancestors = []) {
  return findObjectSchemas(schema, spec).flatMap((object) => {
    if (ancestors.includes(object)) return [];
    const { properties = {}, required = [] } = object;
    return Object.entries(properties).map(([name, field]) =>
      renderField(name, field, required.includes(name), field.description, spec, [...ancestors, object]),
    );
  });
}

/** Returns the object schemas within a schema: itself, its alternatives, or its items. */
function findObjectSchemas(schema, spec) {
  const resolved = spec.resolve(schema);
  if (!resolved) return [];
  if (resolved.properties) return [resolved];
  return [...(resolved.anyOf ?? resolved.oneOf ?? resolved.allOf ?? []), resolved.items]
    .filter(Boolean)
    .flatMap((part) => findObjectSchemas(part, spec));
}

function renderField(name, schema, required, description, spec, ancestors) {
  const defaultValue = schema?.default ?? null;
  const type =
    describeType(schema, spec) +
    (defaultValue === null ? "" : `, default ${JSON.stringify(defaultValue)}`) +
    (required && !ancestors.length ? ", required" : "");
  const children = renderFields(schema, spec, ancestors);
  return el(
    "li",
    {},
    el("code", {}, name),
    el("span", { class: "type" }, ` ${type} `),
    description ? el("span", {}, renderInlineCode(description)) : "",
    children.length ? el("ul", { class: "fields" }, children) : "",
  );
}

/** Describes the type of a schema in words, for example "array of number" or "integer at least 1". */
function describeType(schema, spec) {
  const resolved = spec.resolve(schema);
  if (!resolved) return "any";
  if (resolved.enum) return resolved.enum.map((x) => JSON.stringify(x)).join(" or ");
  if (resolved.const !== undefined) return JSON.stringify(resolved.const);
  const options = resolved.anyOf ?? resolved.oneOf ?? resolved.allOf;
  if (options) return [...new Set(options.map((part) => describeType(part, spec)))].join(" or ");
  if (resolved.prefixItems) return `[${resolved.prefixItems.map((part) => describeType(part, spec)).join(", ")}]`;
  if (resolved.type === "array") return `array of ${describeType(resolved.items, spec)}`;
  const bounds = [
    ["minimum", "at least"],
    ["maximum", "at most"],
    ["exclusiveMinimum", "greater than"],
  ].filter(([key]) => resolved[key] !== undefined);
  return [resolved.type ?? "any", ...bounds.map(([key, words]) => `${words} ${resolved[key]}`)].join(" ");
}

/** Lists the error statuses of all routes, and the format of an error. */
function showErrorResponses(routes, spec) {
  const descriptions = new Map();
  let errorExample = null;
  for (const { responses = {}, path } of routes) {
    for (const [status, reference] of Object.entries(responses)) {
      if (status.startsWith("2") || path.startsWith("/v2")) continue;
      const response = spec.resolve(reference);
      descriptions.set(status, response.description);
      const example = response.content?.["application/json"]?.example;
      if (example?.error?.param) errorExample ??= example; // an example with all fields
    }
  }
  const entries = [...descriptions]
    .sort()
    .map(([status, text]) => el("div", {}, el("dt", {}, status), el("dd", {}, renderInlineCode(text))));
  byId("docs-statuses").replaceChildren(...entries);
  byId("docs-error-example").textContent = errorExample ? JSON.stringify(errorExample, null, 2) : "";
  byId("docs-error-example").hidden = !errorExample;
  byId("docs-errors").hidden = entries.length === 0;
}

function initKeyForm() {
  const state = byId("docs-key-state");
  const showState = () =>
    (state.textContent = readStorage(KEY_STORAGE, "sessionStorage") ? "This tab uses an API key." : "");
  byId("docs-key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = byId("docs-key-input").value.trim();
    byId("docs-key-input").value = "";
    if (key && !isValidKey(key)) return void (state.textContent = INVALID_KEY_MESSAGE);
    if (key) sessionStorage.setItem(KEY_STORAGE, key);
    else sessionStorage.removeItem(KEY_STORAGE);
    showState();
    open();
  });
  showState();
}

const theme = readStorage("hardmax-theme");
if (theme) document.documentElement.dataset.theme = theme;
initKeyForm();
open();
