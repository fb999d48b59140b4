/* The ways points come in: typed, pasted, opened, dropped. Knows where to listen; not what becomes of them. */

import { byId } from "../shared/element.js";
import { readFile, readText } from "./numbers.js";

/** `onRows(read)` hears of every new cloud; `read()` resolves to its rows, or fails with a sentence. */
export function listenForPoints(onRows) {
  byId("points-use").addEventListener("click", () => onRows(async () => readText(byId("points").value)));
  byId("points-file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    target.value = ""; // the same file may be opened again
    if (file) onRows(() => readFile(file));
  });
  byId("cloud-clear").addEventListener("click", () => onRows(async () => []));
  const stage = byId("cloud-stage");
  for (const [name, on] of [
    ["dragover", true],
    ["dragleave", false],
    ["drop", false],
  ]) {
    stage.addEventListener(name, (event) => {
      event.preventDefault();
      stage.classList.toggle("dropping", on);
      if (name === "drop" && event.dataTransfer.files[0]) onRows(() => readFile(event.dataTransfer.files[0]));
    });
  }
  byId("cloud").addEventListener("paste", (event) =>
    onRows(async () => readText(event.clipboardData.getData("text"))),
  );
}
