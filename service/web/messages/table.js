/* Reads tables of texts from csv, tsv, jsonl, xlsx and plain lines, and writes csv in the format of the file that was
   read: its separator, decimal mark, line ends, encoding and byte order mark. The rules are those of the command line. */

import { openWorkbook } from "./xlsx.js";

const TEXT_COLUMN_NAMES = ["text", "review", "sentence", "content", "comment", "message", "tweet", "body", "feedback"];
const SAMPLE_ROWS = 200; // rows that are examined to detect a header, the column of texts and the decimal mark
const MAX_NAME_CHARACTERS = 64;
const UTF16 = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" };
const UTF8_MARK = "\ufeff";

/** Returns the csv format for spreadsheets in the language of this browser: for sources that have no format. */
export function localFormat(language = navigator.language) {
  const decimalComma = (1.5).toLocaleString(language).includes(",");
  const separator = decimalComma ? ";" : ",";
  return { separator, decimalComma, newline: "\r\n", encoding: "utf-8", mark: true };
}

/** Opens a file as {format, sheets, read(sheet)}; `read` resolves to a table {columns, rows, format}, where each row is
    an object of cells. `sheets` is empty unless the file is a workbook. Errors name the row or line. */
export async function openFile(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (/\.xlsx$/i.test(file.name)) {
    const { names, read } = await openWorkbook(bytes);
    return { sheets: names, read: async (name) => toTable(await read(name), localFormat()) };
  }
  const { text, ...encoding } = decodeText(bytes);
  const newline = text.includes("\r\n") ? "\r\n" : "\n";
  return { sheets: [], read: async () => parseTable(text, file.name, { newline, ...encoding }) };
}

/** Decodes UTF-8, UTF-16 with a byte order mark, and Windows-1252. Returns {text, encoding, mark}. */
export function decodeText(bytes) {
  const utf16 = UTF16[256 * bytes[0] + bytes[1]];
  const mark = Boolean(utf16) || [0xef, 0xbb, 0xbf].every((byte, k) => bytes[k] === byte);
  const decode = (encoding, fatal) => new TextDecoder(encoding, { fatal }).decode(bytes);
  const lenient = decode(utf16 ?? "utf-8", false);
  if (lenient.includes("\0")) throw new Error("it is not a text file; save it as csv or xlsx first");
  try {
    return { text: decode(utf16 ?? "utf-8", true), encoding: utf16 ?? "utf-8", mark };
  } catch {
    const count = (pattern) => lenient.match(pattern)?.length ?? 0;
    if (!mark && count(/\ufffd/g) > count(/[\u0080-\ufffc]/g))
      return { text: decode("windows-1252", false), encoding: "windows-1252", mark };
    const line = lenient.slice(0, lenient.indexOf("\ufffd")).split("\n").length;
    throw new Error(`line ${line} is not ${(utf16 ?? "utf-8").toUpperCase()}`);
  }
}

/** Encodes text in the encoding of a format. Text that Windows-1252 has no letters for becomes UTF-8 with a mark. */
export function encodeText(text, { encoding, mark }) {
  if (encoding === "windows-1252") {
    const bytes = Uint8Array.from({ length: 256 }, (_, k) => k);
    const codes = new Map([...new TextDecoder(encoding).decode(bytes)].map((letter, k) => [letter, k]));
    const encoded = Array.from(text, (letter) => codes.get(letter));
    return encoded.includes(undefined) ? encodeText(text, { encoding: "utf-8", mark: true }) : Uint8Array.from(encoded);
  }
  const marked = mark ? UTF8_MARK + text : text;
  if (encoding === "utf-8") return new TextEncoder().encode(marked);
  const data = new DataView(new ArrayBuffer(2 * marked.length));
  for (let k = 0; k < marked.length; k += 1) data.setUint16(2 * k, marked.charCodeAt(k), encoding === "utf-16le");
  return new Uint8Array(data.buffer);
}

/** Parses a text into a table, by the ending of the name. */
export function parseTable(text, filename, format = localFormat()) {
  if (/\.(jsonl|ndjson)$/i.test(filename)) return parseJsonLines(text, format);
  if (/\.(csv|tsv)$/i.test(filename)) return parseSeparated(text, /\.tsv$/i.test(filename) ? "\t" : null, format);
  const lines = text.split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return { columns: ["text"], rows: lines.map((line) => ({ text: line })), format };
}

/** Parses pasted text: cells of a spreadsheet, which have tabs in every line, or a message per line that is not blank. */
export function parsePasted(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const pasted = lines.join("\n");
  const { columns, rows } = parseTable(pasted, lines.every((line) => line.includes("\t")) ? "pasted.tsv" : "");
  return { columns, rows, format: localFormat() };
}

function parseJsonLines(text, format) {
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
  return { columns: [...new Set(rows.flatMap(Object.keys))], rows, format };
}

/** Parses csv. If `delimiter` is null, it is the most frequent candidate in the first line. */
function parseSeparated(text, delimiter, format) {
  const firstLine = text.replace(/^[\r\n]+/, "").split("\n", 1)[0];
  const count = (candidate) => firstLine.split(candidate).length;
  const separator =
    delimiter ?? [",", ";", "\t", "|"].reduce((best, next) => (count(next) > count(best) ? next : best));
  let cells = parseCells(text, separator);
  const width = (cells.find((row) => !isBlank(row)) ?? cells[0])?.length ?? 0;
  if (width <= 1) cells = cells.map((row) => [row.join(separator)]); // in a single column, it is part of the text
  const wide = cells.findIndex((row) => row.length > width);
  if (wide >= 0)
    throw new Error(
      `row ${wide + 1} has ${cells[wide].length} cells, the first ${width} (quote cells with \u201c${separator}\u201d)`,
    );
  return toTable(cells, { separator, decimalComma: hasDecimalComma(cells, separator), ...format });
}

const isBlank = (row) => row.length === 1 && row[0] === "";

/** Whether numbers have a decimal comma: some do, or the separator is that of such languages and none has a point. */
function hasDecimalComma(cells, separator) {
  const sample = cells.slice(0, SAMPLE_ROWS).flat();
  const some = (pattern) => sample.some((cell) => pattern.test(cell));
  return separator !== "," && (some(/^-?\d+,\d+$/) || (separator === ";" && !some(/^-?\d+\.\d+$/)));
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
    rows.at(-1).push(unescapeFormula(quoted?.replaceAll('""', '"') ?? unquoted));
    offset += cell.length;
    if (end === separator && offset === text.length) rows.at(-1).push("");
    if (end !== separator && offset < text.length) rows.push([]);
  }
  return rows.filter((row) => row.length);
}

/** Converts rows of cells to a table; the first row is a header if it looks like one. */
function toTable(cells, format) {
  const width = cells.reduce((most, row) => Math.max(most, row.length), 0);
  const rows = width > 1 ? cells.filter((row) => row.some((cell) => cell !== "")) : cells;
  const hasHeader = rows.length > 0 && isHeader(rows);
  const columns = Array.from({ length: width }, (_, k) => (hasHeader && String(rows[0][k] ?? "")) || `column_${k + 1}`);
  const duplicate = columns.find((name, k) => columns.indexOf(name) < k);
  if (duplicate !== undefined) throw new Error(`it has two columns \u201c${duplicate}\u201d`);
  const toRow = (row) => Object.fromEntries(columns.map((name, k) => [name, row[k] ?? ""]));
  return { columns, rows: rows.slice(hasHeader ? 1 : 0).map(toRow), format };
}

/** Whether the first row is a header: its names are short, not numbers, and do not occur again in their columns. The
    first of several names may be empty (an index column); a single name must be one word. */
function isHeader([first, ...rows]) {
  const names = first.map(String);
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
  const length = (name) => rows.slice(0, SAMPLE_ROWS).reduce((sum, row) => sum + String(row[name] ?? "").length, 0);
  return columns.reduce((a, b) => (length(b) > length(a) ? b : a), columns[0]);
}

/** Reduces a name to lower-case letters and digits: "Review Text" and "review_text" become "review". */
function normalizeName(name) {
  const short = name.toLowerCase().replace(/[^a-z0-9]/g, "");
  return short.replace(/text$/, "") || short;
}

/** Formats csv. Cells that a spreadsheet would read as a formula get an apostrophe before them. */
export function formatCsv(columns, rows, { separator = ",", decimalComma = false, newline = "\n" } = {}) {
  const formatCell = (value) => {
    if (typeof value === "number") return decimalComma ? String(value).replace(".", ",") : String(value);
    const isObject = value !== null && typeof value === "object";
    const text = escapeFormula(isObject ? JSON.stringify(value) : String(value ?? ""));
    return /["\r\n]/.test(text) || text.includes(separator) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => columns.map((name) => formatCell(row[name])).join(separator));
  return [columns.map(formatCell).join(separator), ...lines, ""].join(newline);
}

// A number, an amount or a telephone number is no formula, though it may begin with a sign.
const isHarmless = (text) => /^[+-][\d.,'\s]*\d[\d.,'\s]*(e[+-]?\d+|[%\u20ac$\u00a3])?$/i.test(text);
const escapeFormula = (text) => (/^[=+\-@\t\r]/.test(text) && !isHarmless(text) ? `'${text}` : text);
const unescapeFormula = (text) => text.replace(/^'(?=[=+\-@\t\r])/, "");
