/* Parsers of points: text and NPY files. Each returns an array of rows of numbers. */

/** Parses one row per line, or bracketed rows as in JSON, Python and NumPy. Skips a header line. An error names the
    line. */
export function parseText(text) {
  const rows = [];
  const hasBrackets = /^\s*(array\s*)?[[(]/.test(text); // subtle: a header may contain brackets too
  const bracketed = hasBrackets ? [...text.matchAll(/[[(]([^[\]()]*)[\])]/g)].map(([, row]) => row) : [];
  const lines = bracketed.length ? bracketed : text.split(/\r?\n/);
  lines.forEach((line, k) => {
    const cells = line
      .trim()
      .split(/[\s,;]+/)
      .filter(Boolean);
    if (!cells.length || cells[0].startsWith("#")) return;
    const row = cells.map(Number);
    if (row.every(Number.isFinite)) rows.push({ row, line: k + 1 });
    else if (k || bracketed.length || row.some(Number.isFinite))
      throw new Error(`line ${k + 1} is not a row of numbers: ${line.trim().slice(0, 40)}`);
  });
  if (!rows.length) throw new Error("no rows of numbers found");
  const d = rows[0].row.length;
  const mismatch = rows.find(({ row }) => row.length !== d);
  if (mismatch) throw new Error(`line ${mismatch.line} has ${mismatch.row.length} numbers, expected ${d}`);
  return rows.map(({ row }) => row);
}

const ARRAY_TYPES = {
  f8: Float64Array,
  f4: Float32Array,
  i8: BigInt64Array,
  i4: Int32Array,
  i2: Int16Array,
  u1: Uint8Array,
};

/** Parses an NPY file: format versions 1 to 3, little-endian, one or two dimensions. */
export function parseNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.slice(1, 6)) !== "NUMPY") throw new Error("not an NPY file");
  const version1 = bytes[6] <= 1; // its header size has two bytes, later four
  const view = new DataView(buffer);
  const headerSize = version1 ? view.getUint16(8, true) : view.getUint32(8, true);
  const headerStart = version1 ? 10 : 12;
  const dataStart = headerStart + headerSize;
  const header = new TextDecoder().decode(bytes.slice(headerStart, dataStart));
  const [, byteOrder, type] = header.match(/'descr':\s*'([<>|=])(\w+)'/) ?? [];
  if (!ARRAY_TYPES[type] || byteOrder === ">")
    throw new Error(`unsupported dtype ${byteOrder ?? ""}${type ?? "?"}`);
  const shape = header
    .match(/'shape':\s*\(([^)]*)\)/)[1]
    .split(",")
    .filter((x) => x.trim())
    .map(Number);
  if (shape.length < 1 || shape.length > 2)
    throw new Error(`the array has ${shape.length} dimensions, expected 1 or 2`);
  const [n, d = 1] = shape;
  const numbers = Array.from(new ARRAY_TYPES[type](buffer.slice(dataStart)), Number);
  if (numbers.length !== n * d)
    throw new Error(`the array has ${numbers.length} numbers, expected ${n} \u00d7 ${d}`);
  return splitRows(numbers, n, d, header.includes("'fortran_order': True"));
}

function splitRows(numbers, n, d, columnMajor) {
  const at = columnMajor ? (i, k) => numbers[k * n + i] : (i, k) => numbers[i * d + k];
  return Array.from({ length: n }, (_, i) => Array.from({ length: d }, (__, k) => at(i, k)));
}

/** Parses a file by its extension. */
export async function parseFile(file) {
  return file.name.endsWith(".npy") ? parseNpy(await file.arrayBuffer()) : parseText(await file.text());
}
