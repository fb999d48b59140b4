/* What was just done in a room, as curl and as Python. Knows the requests; not what came of them. */

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

const keyed = () => sessionStorage.getItem("hardmax-key") !== null;

/** The same POST in two languages: {curl, python}. */
export function snippetsOf(path, body, show, origin = location.origin) {
  const header = keyed() ? ' \\\n  -H "Authorization: Bearer $HARDMAX_KEY"' : "";
  const curl = `curl ${origin}${path} \\\n  -H 'content-type: application/json'${header} \\\n  -d ${shell(JSON.stringify(body))}`;
  const headers = keyed() ? '\nheaders = {"Authorization": f"Bearer {os.environ[\'HARDMAX_KEY\']}"}' : "";
  const use = keyed() ? ", headers=headers" : "";
  const lines = Object.entries(body).map(([name, value]) => `    "${name}": ${python(value)},`);
  const call = `body = {\n${lines.join("\n")}\n}\nanswer = httpx.post("${origin}${path}", json=body${use}).raise_for_status().json()`;
  return { curl, python: `import httpx${keyed() ? "\nimport os" : ""}${headers}\n\n${call}\n${show}` };
}

export function reviewSnippets(request) {
  const { input, model, explain } = request;
  const show =
    'review = answer["data"][0]\nprint(review["label"], review["score"])\nfor leader in review["leaders"]:\n    print(leader["word"], leader["contribution"])';
  return snippetsOf("/classify", { input, model, explain }, show);
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

/** Both languages, each with a button that copies it. */
export function showSnippets(host, snippets) {
  const block = ([name, code]) => {
    const copy = async () => {
      await navigator.clipboard.writeText(code);
      announce(`${name} copied`);
    };
    const title = el("h3", {}, { curl: "curl", python: "Python" }[name]);
    const button = el(
      "button",
      { type: "button", class: "quiet small", "aria-label": `Copy the ${name} lines`, onclick: copy },
      "Copy",
    );
    return el(
      "div",
      { class: "snippet" },
      el("div", { class: "bar" }, title, button),
      el("pre", { tabindex: 0 }, code),
    );
  };
  host.replaceChildren(...Object.entries(snippets).map(block));
}
