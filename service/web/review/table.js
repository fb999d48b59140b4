/* A file of rows, read and written: csv, tsv, jsonl, or a text a line. The rules are those of the command line.
   Knows columns and cells; nothing of what becomes of them. */

const NAMES = ["text", "review", "sentence", "content", "comment", "message", "tweet", "body", "feedback"];
const SAMPLE = 200; // rows looked at to guess what a column holds
const LONGEST_NAME = 64;

/** The text of a file: UTF-8, or UTF-16 where it begins so. Throws a sentence that names the line. */
export async function readText(file) {
  const bytes = await file.arrayBuffer();
  const [first, second] = new Uint8Array(bytes);
  const wide = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[256 * first + second];
  const decoded = (options) => new TextDecoder(wide ?? "utf-8", options).decode(bytes);
  const text = decoded();
  if (text.includes("\0")) throw new Error("it is no text; save it as csv first");
  try {
    return decoded({ fatal: true });
  } catch {
    const line = text.slice(0, text.indexOf("\ufffd")).split("\n").length;
    throw new Error(`line ${line} is not UTF-8 text; save it so`);
  }
}

/** {columns, rows} of a file's text, a row being an object of cells. Throws a sentence that names the line. */
export function readTable(text, filename) {
  if (/\.(jsonl|ndjson)$/i.test(filename)) return readJsonLines(text);
  if (/\.(csv|tsv)$/i.test(filename)) return readSeparated(text, /\.tsv$/i.test(filename) ? "\t" : null);
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return { columns: ["text"], rows: lines.map((line) => ({ text: line })) };
}

function readJsonLines(text) {
  const rows = [];
  text.split("\n").forEach((line, k) => {
    if (!line.trim()) return;
    try {
      const row = JSON.parse(line);
      rows.push(row !== null && typeof row === "object" ? row : { text: row });
    } catch {
      throw new Error(`line ${k + 1} is not JSON: ${line.slice(0, 40)}`);
    }
  });
  return { columns: [...new Set(rows.flatMap(Object.keys))], rows };
}

function readSeparated(text, given) {
  const first = text.replace(/^[\r\n]+/, "").split("\n", 1)[0];
  const often = (mark) => first.split(mark).length;
  const mark =
    given ?? [",", ";", "\t", "|"].reduce((best, next) => (often(next) > often(best) ? next : best));
  let cells = cellsOf(text, mark);
  const isBlank = (row) => row.length === 1 && row[0] === "";
  const width = (cells.find((row) => !isBlank(row)) ?? cells[0])?.length ?? 0;
  if (width > 1) cells = cells.filter((row) => !isBlank(row));
  else cells = cells.map((row) => [row.join(mark)]); // there is no other column that the rest could belong to
  const headed = cells.length > 0 && isHeader(cells);
  const columns = Array.from({ length: width }, (_, k) => (headed && cells[0][k]) || `column_${k + 1}`);
  const twice = columns.find((name, k) => columns.indexOf(name) < k);
  if (twice !== undefined) throw new Error(`it has two columns \u201c${twice}\u201d`);
  const rows = cells.slice(headed ? 1 : 0).map((row, k) => {
    if (row.length > width)
      throw new Error(
        `row ${k + 1 + headed} has ${row.length} cells, the first has ${width} (texts with “${mark}” need quotes)`,
      );
    return Object.fromEntries(columns.map((name, at) => [name, row[at] ?? ""]));
  });
  return { columns, rows };
}

/** Cells of separated text; quotes may hold marks, line ends and doubled quotes. */
function cellsOf(text, mark) {
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|(?!")([^${mark}\r\n]*))(\\${mark}|\r?\n|\r|$)`, "gy");
  const rows = [[]];
  for (let at = 0; at < text.length;) {
    cell.lastIndex = at;
    const found = cell.exec(text);
    if (!found) throw new Error(`row ${rows.length} has a quote that does not end`);
    const [whole, quoted, bare, end] = found;
    rows.at(-1).push(quoted?.replaceAll('""', '"') ?? bare);
    at += whole.length;
    if (end === mark && at === text.length) rows.at(-1).push("");
    if (end !== mark && at < text.length) rows.push([]);
  }
  return rows.filter((row) => row.length);
}

/** Names are short, none is a number or comes again below, and a name alone is one word. The first of several may be
    empty: tables with an index are written so. */
function isHeader([names, ...below]) {
  const comesAgain = (name, k) => below.slice(0, SAMPLE).some((row) => row[k] === name);
  const isIndex = (name, k) => name === "" && k === 0 && names.length > 1;
  const odd = (name) => !name.trim() || name.length > LONGEST_NAME || Number.isFinite(Number(name));
  return (
    !names.some((name, k) => (odd(name) && !isIndex(name, k)) || comesAgain(name, k)) &&
    (names.length > 1 || !names[0].trim().includes(" "))
  );
}

/** The column of texts: one with a usual name, or the one with the longest cells. */
export function columnOf({ columns, rows }) {
  const usual = columns.filter((name) => NAMES.includes(normal(name)));
  if (usual.length) return usual.reduce((a, b) => (rankOf(b) < rankOf(a) ? b : a));
  const length = (name) =>
    rows.slice(0, SAMPLE).reduce((sum, row) => sum + String(row[name] ?? "").length, 0);
  return columns.reduce((a, b) => (length(b) > length(a) ? b : a), columns[0]);
}

const rankOf = (name) => NAMES.indexOf(normal(name));

/** Small letters and digits alone: "Review Text" and "review_text" are "review". */
function normal(name) {
  const short = name.toLowerCase().replace(/[^a-z0-9]/g, "");
  return short.replace(/text$/, "") || short;
}

/** Rows as csv. */
export function csvOf(columns, rows) {
  const written = (value) => {
    const text =
      value === null || value === undefined
        ? ""
        : typeof value === "object"
          ? JSON.stringify(value)
          : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => columns.map((name) => written(row[name])).join(","));
  return `${[columns.map(written).join(","), ...lines].join("\n")}\n`;
}
