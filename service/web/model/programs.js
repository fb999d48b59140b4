/* What was just done in a room, as curl and as Python with the client. Knows the requests; not what came of them. */

import { copyButton, formatCurl, hasKey } from "../shared/curl.js";
import { el } from "../shared/element.js";

const INLINE_UP_TO = 60; // points; more of them are read from a file

const python = (value) =>
  Array.isArray(value) ? `[${value.map(python).join(", ")}]` : JSON.stringify(value);

/** A program with the client: `imports` it needs besides, and what it does. */
function programOf(imports, lines) {
  const key = hasKey() ? ', api_key=os.environ["HARDMAX_KEY"]' : "";
  const needs = [...(hasKey() ? ["import os\n"] : []), ...imports, "from hardmax import Client\n"];
  return [...needs, `client = Client("${location.origin}"${key})`, ...lines].join("\n");
}

export function reviewPrograms({ input, model }) {
  const lines = [
    `for answer in client.classify([${python(input)}], model=${python(model)}):`,
    "    print(answer.label, answer.score)",
    "    for leader in answer.leaders:",
    "        print(leader.word, leader.contribution)",
  ];
  return {
    curl: formatCurl("post", "/classify", JSON.stringify({ input, model })),
    python: programOf([], lines),
  };
}

/** A large cloud is a file, which curl sends as numpy saved it. */
export function cloudPrograms({ points, alpha, A }) {
  const large = points.length > INLINE_UP_TO;
  const file = `# cloud.npy: ${points.length} points, as numpy.save writes them`;
  const given = large ? 'np.load("cloud.npy")' : python(points);
  const lines = [
    ...(large ? [file] : []),
    `cloud = client.dynamics(${given}, alpha=${alpha}${A ? `, A=${python(A)}` : ""})`,
    "print(cloud.status, cloud.certified_layer)",
    "for leader in cloud.leaders:",
    "    print(leader.index, leader.point, leader.followers)",
  ];
  return {
    curl: large
      ? `${file}\n${npyCurl(alpha, A)}`
      : formatCurl("post", "/dynamics", JSON.stringify({ points, alpha, ...(A && { A }) })),
    python: programOf(large ? ["import numpy as np\n"] : [], lines),
  };
}

function npyCurl(alpha, A) {
  const query = new URLSearchParams({ alpha, ...(A && { A: JSON.stringify(A) }) });
  const key = hasKey() ? ' -H "Authorization: Bearer $HARDMAX_KEY"' : "";
  return `curl '${location.origin}/dynamics?${query}'${key} \\\n  -H 'content-type: application/x-npy' --data-binary @cloud.npy`;
}

/** Both languages, each with a button that copies it. */
export function showPrograms(host, programs) {
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
  host.replaceChildren(...Object.entries(programs).map(block));
}
