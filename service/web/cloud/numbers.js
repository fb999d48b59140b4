/* Points out of what people have: text with numbers, or a file that numpy.save wrote. Knows only rows of numbers. */

/** Rows of numbers of a text: a row a line, or in brackets as JSON, Python and numpy write them. A first line of names
    is passed over. Throws a sentence that names the line. */
export function readText(text) {
  const rows = [];
  const hasBrackets = /^\s*(array\s*)?[[(]/.test(text); // names in a first line may have some too
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
  if (!rows.length) throw new Error("there are no rows of numbers in it");
  const d = rows[0].row.length;
  const odd = rows.find(({ row }) => row.length !== d);
  if (odd) throw new Error(`line ${odd.line} has ${odd.row.length} numbers, expected ${d}`);
  return rows.map(({ row }) => row);
}

const KINDS = {
  f8: Float64Array,
  f4: Float32Array,
  i8: BigInt64Array,
  i4: Int32Array,
  i2: Int16Array,
  u1: Uint8Array,
};

/** Rows of numbers of an npy file (versions 1 to 3, little endian, one or two axes). */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.slice(1, 6)) !== "NUMPY") throw new Error("it is not an npy file");
  const [sizeAt, wide] = [8, bytes[6] > 1];
  const view = new DataView(buffer);
  const size = wide ? view.getUint32(sizeAt, true) : view.getUint16(sizeAt, true);
  const start = sizeAt + (wide ? 4 : 2);
  const header = new TextDecoder().decode(bytes.slice(start, start + size));
  const [, order, kind] = header.match(/'descr':\s*'([<>|=])(\w+)'/) ?? [];
  if (!KINDS[kind] || order === ">")
    throw new Error(`numbers of type ${order ?? ""}${kind ?? "?"} cannot be read here`);
  const shape = header
    .match(/'shape':\s*\(([^)]*)\)/)[1]
    .split(",")
    .filter((x) => x.trim())
    .map(Number);
  if (shape.length < 1 || shape.length > 2) throw new Error(`it has ${shape.length} axes, expected 2`);
  const [n, d = 1] = shape;
  const numbers = Array.from(new KINDS[kind](buffer.slice(start + size)), Number);
  if (numbers.length !== n * d) throw new Error(`it has ${numbers.length} numbers, expected ${n} times ${d}`);
  return rowsOf(numbers, n, d, header.includes("'fortran_order': True"));
}

function rowsOf(numbers, n, d, byColumn) {
  const at = byColumn ? (i, k) => numbers[k * n + i] : (i, k) => numbers[i * d + k];
  return Array.from({ length: n }, (_, i) => Array.from({ length: d }, (__, k) => at(i, k)));
}

/** Rows of numbers of a file somebody gave. */
export async function readFile(file) {
  return file.name.endsWith(".npy") ? readNpy(await file.arrayBuffer()) : readText(await file.text());
}
