/* What was just done in a room, as curl and as Python. Knows the requests; not what came of them. */

import { KEY } from "./api.js";
import { announce, el } from "./element.js";

const INLINE_UP_TO = 60; // points; more of them are read from a file

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

const python = (value) => {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([k, v]) => `"${k}": ${python(v)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
};

const keyed = () => sessionStorage.getItem(KEY) !== null;

/** A request as a curl command; `body` is JSON text, or null. */
export function curlOf(method, path, body, origin = location.origin) {
  const lines = [`curl ${origin}${path}`];
  if (method !== "get" && (method !== "post" || body === null))
    lines[0] = `curl -X ${method.toUpperCase()} ${origin}${path}`;
  if (keyed()) lines.push('-H "Authorization: Bearer $HARDMAX_KEY"');
  if (body !== null) lines.push("-H 'content-type: application/json'", `-d ${shell(body)}`);
  return lines.join(" \\\n  ");
}

/** The same POST in two languages: {curl, python}. */
export function snippetsOf(path, body, show, origin = location.origin) {
  const headers = keyed() ? '\nheaders = {"Authorization": f"Bearer {os.environ[\'HARDMAX_KEY\']}"}' : "";
  const use = keyed() ? ", headers=headers" : "";
  const lines = Object.entries(body).map(([name, value]) => `    "${name}": ${python(value)},`);
  const call = `body = {\n${lines.join("\n")}\n}\nanswer = httpx.post("${origin}${path}", json=body${use}).raise_for_status().json()`;
  const program = `import httpx${keyed() ? "\nimport os" : ""}${headers}\n\n${call}\n${show}`;
  return { curl: curlOf("post", path, JSON.stringify(body), origin), python: program };
}

export function reviewSnippets({ input, model }) {
  const show =
    'review = answer["data"][0]\nprint(review["label"], review["score"])\nfor leader in review["leaders"]:\n    print(leader["word"], leader["contribution"])';
  return snippetsOf("/classify", { input, model }, show);
}

/** A large cloud is written to a file by the first line and sent as numpy saves it. */
export function cloudSnippets(request, origin = location.origin) {
  const { points, alpha, A } = request;
  const show = 'print(answer["status"], answer["certified_layer"], answer["leaders"])';
  if (points.length <= INLINE_UP_TO)
    return snippetsOf("/dynamics", A ? { points, alpha, A } : { points, alpha }, show, origin);
  const header = keyed() ? ' -H "Authorization: Bearer $HARDMAX_KEY"' : "";
  const curl = `# cloud.npy: ${points.length} points, as numpy.save writes them\ncurl '${origin}/dynamics?alpha=${alpha}'${header} \\\n  -H 'content-type: application/x-npy' --data-binary @cloud.npy`;
  const body = `points = np.load("cloud.npy")  # ${points.length} points\nbody = {"points": points.tolist(), "alpha": ${alpha}, "A": ${python(A)}}`;
  const headers = keyed() ? ', headers={"Authorization": f"Bearer {os.environ[\'HARDMAX_KEY\']}"}' : "";
  const call = `answer = httpx.post("${origin}/dynamics", json=body${headers}).raise_for_status().json()`;
  return {
    curl,
    python: `${keyed() ? "import os\n\n" : ""}import httpx\nimport numpy as np\n\n${body}\n${call}\n${show}`,
  };
}

/** A button that copies what `text()` gives. */
export function copyButton(name, text) {
  const copy = async () => {
    await navigator.clipboard.writeText(text());
    announce(`${name} copied`);
  };
  return el(
    "button",
    { type: "button", class: "quiet small", "aria-label": `Copy the ${name} lines`, onclick: copy },
    name === "curl" ? "Copy curl" : "Copy",
  );
}

/** Both languages, each with a button that copies it. */
export function showSnippets(host, snippets) {
  const block = ([name, code]) =>
    el(
      "div",
      { class: "snippet" },
      el(
        "div",
        { class: "bar" },
        el("h3", {}, { curl: "curl", python: "Python" }[name]),
        copyButton(name, () => code),
      ),
      el("pre", { tabindex: 0 }, code),
    );
  host.replaceChildren(...Object.entries(snippets).map(block));
}
