/* Reads texts from csv, tsv, jsonl and plain text files, and writes csv. The rules are those of the command line. */

const TEXT_COLUMN_NAMES = ["text", "review", "sentence", "content", "comment", "message", "tweet", "body", "feedback"];
const SAMPLE_ROWS = 200; // rows that are examined to detect a header and the column of texts
const MAX_NAME_CHARACTERS = 64;

/** Decodes a file as UTF-8, or as UTF-16 if it has such a byte order mark. Errors name the line. */
export async function decodeFile(file) {
  const bytes = await file.arrayBuffer();
  const [first, second] = new Uint8Array(bytes);
  const utf16 = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[256 * first + second];
  const decode = (options) => new TextDecoder(utf16 ?? "utf-8", options).decode(bytes);
  const text = decode();
  if (text.includes("\0")) throw new Error("it is not a text file; save it as csv first");
  try {
    return decode({ fatal: true });
  } catch {
    const line = text.slice(0, text.indexOf("\ufffd")).split("\n").length;
    throw new Error(`line ${line} is not UTF-8; save the file as UTF-8`);
  }
}

/** Parses a file into {columns, rows}, where each row is an object of cells. Errors name the row or line. */
export function parseTable(text, filename) {
  if (/\.(jsonl|ndjson)$/i.test(filename)) return parseJsonLines(text);
  if (/\.(csv|tsv)$/i.test(filename)) return parseSeparated(text, /\.tsv$/i.test(filename) ? "\t" : null);
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return { columns: ["text"], rows: lines.map((line) => ({ text: line })) };
}

function parseJsonLines(text) {
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

/** Parses csv. If `delimiter` is null, it is the most frequent candidate in the first line. */
function parseSeparated(text, delimiter) {
  const firstLine = text.replace(/^[\r\n]+/, "").split("\n", 1)[0];
  const count = (candidate) => firstLine.split(candidate).length;
  const separator =
    delimiter ?? [",", ";", "\t", "|"].reduce((best, next) => (count(next) > count(best) ? next : best));
  let cells = parseCells(text, separator);
  const isBlank = (row) => row.length === 1 && row[0] === "";
  const width = (cells.find((row) => !isBlank(row)) ?? cells[0])?.length ?? 0;
  if (width > 1) cells = cells.filter((row) => !isBlank(row));
  else cells = cells.map((row) => [row.join(separator)]); // in a single column, the separator is part of the text
  const hasHeader = cells.length > 0 && isHeader(cells);
  const columns = Array.from({ length: width }, (_, k) => (hasHeader && cells[0][k]) || `column_${k + 1}`);
  const duplicate = columns.find((name, k) => columns.indexOf(name) < k);
  if (duplicate !== undefined) throw new Error(`it has two columns \u201c${duplicate}\u201d`);
  const rows = cells.slice(hasHeader ? 1 : 0).map((row, k) => {
    if (row.length > width)
      throw new Error(
        `row ${k + 1 + hasHeader} has ${row.length} cells, the first ${width} (quote cells with “${separator}”)`,
      );
    return Object.fromEntries(columns.map((name, column) => [name, row[column] ?? ""]));
  });
  return { columns, rows };
}

/** Splits csv into rows of cells. Quoted cells may contain separators, line breaks and doubled quotes. */
function parseCells(text, separator) {
  const pattern = new RegExp(`(?:"((?:[^"]|"")*)"|(?!")([^${separator}\r\n]*))(\\${separator}|\r?\n|\r|$)`, "gy");
  const rows = [[]];
  for (let offset = 0; offset < text.length;) {
    pattern.lastIndex = offset;
    const match = pattern.exec(text);
    if (!match) throw new Error(`row ${rows.length} has an unclosed quote`);
    const [cell, quoted, unquoted, end] = match;
    rows.at(-1).push(quoted?.replaceAll('""', '"') ?? unquoted);
    offset += cell.length;
    if (end === separator && offset === text.length) rows.at(-1).push("");
    if (end !== separator && offset < text.length) rows.push([]);
  }
  return rows.filter((row) => row.length);
}

/** Whether the first row is a header: its names are short, not numbers, and do not occur again in their columns. The
    first of several names may be empty (an index column); a single name must be one word. */
function isHeader([names, ...rows]) {
  const recurs = (name, k) => rows.slice(0, SAMPLE_ROWS).some((row) => row[k] === name);
  const isIndex = (name, k) => name === "" && k === 0 && names.length > 1;
  const isNoName = (name) => !name.trim() || name.length > MAX_NAME_CHARACTERS || Number.isFinite(Number(name));
  return (
    !names.some((name, k) => (isNoName(name) && !isIndex(name, k)) || recurs(name, k)) &&
    (names.length > 1 || !names[0].trim().includes(" "))
  );
}

/** Returns the column of texts: the one with the most common name, or else the one with the longest cells. */
export function findTextColumn({ columns, rows }) {
  const rank = (name) => TEXT_COLUMN_NAMES.indexOf(normalizeName(name));
  const candidates = columns.filter((name) => rank(name) >= 0);
  if (candidates.length) return candidates.reduce((a, b) => (rank(b) < rank(a) ? b : a));
  const length = (name) =>
    rows.slice(0, SAMPLE_ROWS).reduce((sum, row) => sum + String(row[name] ?? "").length, 0);
  return columns.reduce((a, b) => (length(b) > length(a) ? b : a), columns[0]);
}

/** Reduces a name to lower-case letters and digits: "Review Text" and "review_text" become "review". */
function normalizeName(name) {
  const short = name.toLowerCase().replace(/[^a-z0-9]/g, "");
  return short.replace(/text$/, "") || short;
}

export function formatCsv(columns, rows) {
  const formatCell = (value) => {
    const isObject = value !== null && typeof value === "object";
    const text = isObject ? JSON.stringify(value) : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => columns.map((name) => formatCell(row[name])).join(","));
  return `${[columns.map(formatCell).join(","), ...lines].join("\n")}\n`;
}
