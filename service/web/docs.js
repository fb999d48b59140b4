/* The API documents: this server's openapi.json, readable, without anything from elsewhere. Knows OpenAPI 3.1. */

import { inWords, Api } from "./api.js";
import { byId, el, showProblem } from "./element.js";

const METHODS = ["get", "post", "put", "delete", "patch"];
const DEEPEST = 4;

async function open() {
  try {
    show(await new Api(async () => null).get("/openapi.json"));
  } catch (error) {
    showProblem(byId("docs-problem"), inWords(error));
  }
}

function show(document) {
  const routes = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })),
  );
  byId("docs-about").textContent =
    document.info.description?.split("\n")[0] || `${document.info.title} ${document.info.version}`;
  byId("docs-routes").replaceChildren(...routes.map((route) => routeNode(route, document)));
  byId("docs-index").replaceChildren(
    el(
      "ul",
      {},
      routes.map((route) => el("li", {}, el("a", { href: `#${anchor(route)}` }, label(route)))),
    ),
  );
}

const anchor = ({ method, path }) => `${method}${path.replace(/\W+/g, "-")}`;
const label = ({ method, path }) => [el("b", {}, method.toUpperCase()), ` ${path}`];

function routeNode(route, document) {
  return el(
    "section",
    { class: "card route", id: anchor(route) },
    el("h2", {}, label(route)),
    el("p", { class: "about" }, paragraphs(route.description ?? route.summary ?? "")),
    route.parameters?.length
      ? [
          el("h3", {}, "In the address"),
          table(route.parameters.map((p) => fieldOf(p.name, p.schema, p.required, p.description, document))),
        ]
      : [],
    ...bodies("Sent", route.requestBody?.content, document),
    ...Object.entries(route.responses ?? {}).flatMap(([status, response]) =>
      responseNodes(status, response, document),
    ),
  );
}

const paragraphs = (text) =>
  text.split(/\n\s*\n/).flatMap((part, k) => (k ? [el("br"), el("br"), part] : [part]));

function responseNodes(status, response, document) {
  const resolved = resolve(response, document);
  if (!status.startsWith("2"))
    return [el("p", { class: "fine" }, el("b", {}, status), ` ${resolved.description}`)];
  const shown = bodies(`Answered, ${status}`, resolved.content, document);
  return shown.length ? shown : [el("p", { class: "fine" }, el("b", {}, status), ` ${resolved.description}`)];
}

function bodies(title, content = {}, document) {
  return Object.entries(content).flatMap(([type, { schema, example, examples }]) => {
    const sample =
      example ?? Object.values(examples ?? {})[0]?.value ?? resolve(schema, document)?.examples?.[0];
    const fields = fieldsOf(schema, document);
    return [
      el("h3", {}, title, " ", el("small", {}, type)),
      fields.length ? table(fields) : "",
      sample !== undefined ? el("pre", { tabindex: 0 }, JSON.stringify(sample, null, 2)) : "",
    ];
  });
}

function table(fields) {
  const rows = fields.map(({ name, kind, about, required }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, el("code", {}, name), required ? el("i", { title: "required" }, "*") : ""),
      el("td", {}, el("span", { class: "soft" }, kind), about ? ` ${about}` : ""),
    ),
  );
  return el("table", { class: "fields" }, el("tbody", {}, rows));
}

/** The fields of a schema, those of objects within it indented by their path: "leaders[].word". */
function fieldsOf(schema, document, before = "", depth = 0) {
  const { properties, required = [], items } = resolve(schema, document) ?? {};
  if (items && depth < DEEPEST) return fieldsOf(items, document, `${before}[]`, depth + 1);
  if (!properties || depth >= DEEPEST) return [];
  return Object.entries(properties).flatMap(([name, part]) => {
    const path = before ? `${before}.${name}` : name;
    const field = fieldOf(path, part, required.includes(name), part.description, document);
    return [field, ...options(part, document).flatMap((option) => fieldsOf(option, document, path, depth + 1))];
  });
}

function fieldOf(name, schema, required, about, document) {
  const fallback =
    schema?.default !== undefined && schema.default !== null
      ? `, default ${JSON.stringify(schema.default)}`
      : "";
  return { name, required, about: about ?? "", kind: kindOf(schema, document) + fallback };
}

const options = (schema, document) => {
  const found = resolve(schema, document) ?? {};
  return found.anyOf ?? found.oneOf ?? [found];
};

function kindOf(schema, document, depth = 0) {
  const found = resolve(schema, document);
  if (!found || depth > 5) return "any";
  if (found.enum) return found.enum.map((x) => JSON.stringify(x)).join(" | ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.anyOf ?? found.oneOf)
    return options(found, document)
      .map((part) => kindOf(part, document, depth + 1))
      .join(" | ");
  if (found.type === "array") return `[${kindOf(found.items, document, depth + 1)}, \u2026]`;
  return found.type ?? "object";
}

function resolve(schema, document) {
  if (!schema?.$ref) return schema;
  return resolve(
    schema.$ref
      .replace("#/", "")
      .split("/")
      .reduce((at, name) => at?.[name], document),
    document,
  );
}

const theme = localStorage.getItem("hardmax-theme");
if (theme) document.documentElement.dataset.theme = theme;
open();
