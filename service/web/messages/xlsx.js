/* Reads the sheets of an xlsx workbook, which is a zip of XML: the browser inflates it (DecompressionStream) and parses it
   (DOMParser). Dates become ISO text, numbers and booleans stay what they are. */

const MAX_PART_BYTES = 100_000_000; // a part of a small file may unpack to gigabytes
const MAX_CELLS = 5_000_000;
const DAY_MS = 86_400_000;
const EPOCH_1900 = 25569; // the serial number of 1970-01-01
const EPOCH_1904 = 24107;
const isDateFormat = (id) => (id >= 14 && id <= 22) || (id >= 27 && id <= 36) || (id >= 45 && id <= 58);

/** Opens a workbook. Returns {names, read(name)}: the names of its sheets, and a sheet as rows of cells. */
export async function openWorkbook(bytes) {
  const zip = new Zip(bytes);
  const workbook = await zip.xml("xl/workbook.xml");
  const targets = new Map(all(await zip.xml("xl/_rels/workbook.xml.rels"), "Relationship").map(readTarget));
  const paths = new Map(
    all(workbook, "sheet")
      .map((sheet) => [sheet.getAttribute("name"), targets.get(relationId(sheet))])
      .filter(([, path]) => zip.entries.has(path)),
  );
  if (!paths.size) throw new Error("it has no sheet");
  const is1904 = ["1", "true"].includes(all(workbook, "workbookPr")[0]?.getAttribute("date1904"));
  const shared = {
    strings: zip.entries.has("xl/sharedStrings.xml")
      ? all(await zip.xml("xl/sharedStrings.xml"), "si").map(readText)
      : [],
    isDate: zip.entries.has("xl/styles.xml") ? readDateStyles(await zip.xml("xl/styles.xml")) : [],
    epoch: is1904 ? EPOCH_1904 : EPOCH_1900,
  };
  return { names: [...paths.keys()], read: async (name) => readSheet(await zip.xml(paths.get(name)), shared) };
}

class Zip {
  /** Reads the list of entries at the end of the file. */
  constructor(bytes) {
    this.bytes = bytes;
    this.data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.entries = new Map();
    let end = bytes.length - 22;
    while (end >= 0 && this.data.getUint32(end, true) !== 0x06054b50) end -= 1;
    if (end < 0) throw new Error("it is not an xlsx file");
    let at = this.data.getUint32(end + 16, true);
    for (let k = this.data.getUint16(end + 10, true); k > 0; k -= 1) {
      const [method, size] = [this.data.getUint16(at + 10, true), this.data.getUint32(at + 20, true)];
      const [nameSize, extra, comment] = [28, 30, 32].map((offset) => this.data.getUint16(at + offset, true));
      const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameSize));
      this.entries.set(name, { method, size, start: this.data.getUint32(at + 42, true) });
      at += 46 + nameSize + extra + comment;
    }
  }

  /** Returns an entry as an XML document. */
  async xml(name) {
    const entry = this.entries.get(name);
    if (!entry) throw new Error(`it is not an xlsx file (${name} is missing)`);
    const text = await this.inflate(entry);
    const document = new DOMParser().parseFromString(text, "application/xml");
    if (document.querySelector("parsererror")) throw new Error(`it is damaged (${name})`);
    return document;
  }

  async inflate({ method, size, start }) {
    const [nameSize, extra] = [26, 28].map((offset) => this.data.getUint16(start + offset, true));
    const packed = new Blob([this.bytes.subarray(start + 30 + nameSize + extra).subarray(0, size)]);
    if (method === 0) return packed.text();
    const reader = packed.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const chunks = [];
    for (let left = MAX_PART_BYTES; ;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(chunks).text();
      chunks.push(value);
      left -= value.length;
      if (left < 0) throw new Error("a sheet is larger than 100 MB; save it as csv");
    }
  }
}

const all = (node, name) => [...node.getElementsByTagNameNS("*", name)];
const relationId = (sheet) =>
  [...sheet.attributes].find(({ localName, prefix }) => prefix && localName === "id")?.value;

/** Returns the id and the path of a part; a target is relative to xl/ or starts with a slash. */
function readTarget(relation) {
  const target = relation.getAttribute("Target");
  return [relation.getAttribute("Id"), target.startsWith("/") ? target.slice(1) : `xl/${target}`];
}

/** Returns the text of a shared or inline string, without its phonetic guide. */
function readText(node) {
  const parts = all(node, "t").filter(({ parentNode }) => parentNode.localName !== "rPh");
  const text = parts.map(({ textContent }) => textContent).join("");
  return text.replace(/_x([0-9A-Fa-f]{4})_/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
}

/** Returns for each cell style whether its numbers are dates. */
function readDateStyles(styles) {
  const codes = new Map(
    all(styles, "numFmt").map((node) => [node.getAttribute("numFmtId"), node.getAttribute("formatCode")]),
  );
  const isDate = (id) =>
    /[ymdhs]/i.test((codes.get(id) ?? "").replace(/"[^"]*"|\[[^\]]*\]|\\./g, "")) || isDateFormat(Number(id));
  const formats = all(styles, "cellXfs")[0];
  return formats ? all(formats, "xf").map((node) => isDate(node.getAttribute("numFmtId"))) : [];
}

function readSheet(sheet, shared) {
  let [width, cells] = [0, []];
  for (const row of all(sheet, "row")) {
    const values = [];
    for (const cell of all(row, "c")) {
      const column = columnIndex(cell.getAttribute("r")) ?? values.length;
      const value = readCell(cell, shared);
      if (value !== "") values[column] = value;
    }
    cells.push(values);
    width = Math.max(width, values.length);
    if (width * cells.length > MAX_CELLS) throw new Error("the sheet has over 5 million cells; save it as csv");
  }
  return cells.map((values) => Array.from({ length: width }, (_, k) => values[k] ?? ""));
}

/** Returns the index of the column of a reference such as "AB12", or null. */
function columnIndex(reference) {
  const letters = reference?.match(/^[A-Z]+/)?.[0];
  return letters ? [...letters].reduce((sum, letter) => 26 * sum + letter.charCodeAt(0) - 64, 0) - 1 : null;
}

function readCell(cell, { strings, isDate, epoch }) {
  const type = cell.getAttribute("t");
  if (type === "inlineStr") return readText(cell);
  const text = all(cell, "v")[0]?.textContent ?? "";
  if (text === "" || ["str", "e", "d"].includes(type)) return text;
  if (type === "s") return strings[Number(text)] ?? "";
  if (type === "b") return text === "1";
  return isDate[Number(cell.getAttribute("s") ?? 0)] ? formatDate(Number(text), epoch) : Number(text);
}

/** Formats a serial number of days as "2026-11-28", "2026-11-28 10:30:00" or, below one day, "10:30:00". */
function formatDate(serial, epoch) {
  const moment = new Date(Math.round(((serial - epoch) * DAY_MS) / 1000) * 1000);
  if (Number.isNaN(moment.getTime())) return serial;
  const [date, time] = moment.toISOString().slice(0, 19).split("T");
  if (serial < 1) return time;
  return time === "00:00:00" ? date : `${date} ${time}`;
}
