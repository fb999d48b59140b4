/* The latest requests of the other views as code: curl commands and Python programs that use the client. */

import { SERVICE_URL } from "../shared/api.js";
import { copyButton, formatCurl, hasKey } from "../shared/curl.js";
import { el } from "../shared/element.js";

const MAX_INLINE_POINTS = 60; // more points are read from a file

const formatPython = (value) =>
  Array.isArray(value) ? `[${value.map(formatPython).join(", ")}]` : JSON.stringify(value);

/** Formats a Python program that uses the client, with additional imports. */
function formatProgram(imports, lines) {
  const key = hasKey() ? ', api_key=os.environ["HARDMAX_KEY"]' : "";
  const allImports = [...(hasKey() ? ["import os\n"] : []), ...imports, "from hardmax import Client\n"];
  return [...allImports, `client = Client("${SERVICE_URL}"${key})`, ...lines].join("\n");
}

/** Returns the code {curl, Python} of a request to /classify. */
export function classifySnippets({ input, model }) {
  const lines = [
    `for answer in client.classify([${formatPython(input)}], model=${formatPython(model)}):`,
    "    print(answer.label, answer.score)",
    "    for leader in answer.leaders:",
    "        print(leader.word, leader.contribution)",
  ];
  return {
    curl: formatCurl("post", "/classify", JSON.stringify({ input, model })),
    Python: formatProgram([], lines),
  };
}

/** Returns the code {curl, Python} of a request to /dynamics. A large cloud is read from a file in npy format. */
export function dynamicsSnippets({ points, alpha, A }) {
  const isLarge = points.length > MAX_INLINE_POINTS;
  const fileComment = `# cloud.npy: ${points.length} points, saved with numpy.save`;
  const pointsArgument = isLarge ? 'np.load("cloud.npy")' : formatPython(points);
  const lines = [
    ...(isLarge ? [fileComment] : []),
    `cloud = client.dynamics(${pointsArgument}, alpha=${alpha}${A ? `, A=${formatPython(A)}` : ""})`,
    "print(cloud.status, cloud.certified_layer)",
    "for leader in cloud.leaders:",
    "    print(leader.index, leader.point, leader.followers)",
  ];
  return {
    curl: isLarge
      ? `${fileComment}\n${formatNpyCurl(alpha, A)}`
      : formatCurl("post", "/dynamics", JSON.stringify({ points, alpha, ...(A && { A }) })),
    Python: formatProgram(isLarge ? ["import numpy as np\n"] : [], lines),
  };
}

function formatNpyCurl(alpha, A) {
  const query = new URLSearchParams({ alpha, ...(A && { A: JSON.stringify(A) }) });
  const key = hasKey() ? ' -H "Authorization: Bearer $HARDMAX_KEY"' : "";
  return `curl '${SERVICE_URL}/dynamics?${query}'${key} \\
  -H 'content-type: application/x-npy' --data-binary @cloud.npy`;
}

/** Shows code in each language, with a copy button. */
export function showSnippets(container, snippets) {
  const renderSnippet = ([language, code]) =>
    el(
      "div",
      { class: "snippet" },
      el("div", { class: "bar" }, el("h3", {}, language), copyButton(language, () => code)),
      el("pre", { tabindex: 0 }, code),
    );
  container.replaceChildren(...Object.entries(snippets).map(renderSnippet));
}
