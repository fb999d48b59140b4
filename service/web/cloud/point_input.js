/* Input of a new cloud: typed text, an opened or dropped file, and pasted text. */

import { byId } from "../shared/element.js";
import { parseFile, parseText } from "./point_parser.js";

/** Calls `onInput(read)` for each new cloud. `read()` resolves to its points and rejects if they cannot be parsed. */
export function listenForPoints(onInput) {
  byId("points-use").addEventListener("click", () => onInput(async () => parseText(byId("points").value)));
  byId("points-file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = ""; // opening the same file again is a change
    if (file) onInput(() => parseFile(file));
  });
  byId("cloud-clear").addEventListener("click", () => onInput(async () => []));
  const stage = byId("cloud-stage");
  for (const type of ["dragover", "dragleave", "drop"]) {
    stage.addEventListener(type, (event) => {
      event.preventDefault();
      stage.classList.toggle("dropping", type === "dragover");
      if (type === "drop" && event.dataTransfer.files[0]) onInput(() => parseFile(event.dataTransfer.files[0]));
    });
  }
  byId("cloud-canvas").addEventListener("paste", (event) =>
    onInput(async () => parseText(event.clipboardData.getData("text"))),
  );
}
