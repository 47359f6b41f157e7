// Sizes and settings in, exact numbers out. DATA and FORMS stand above; nothing here knows the page.

const LARGEST = 2n ** 40n;
const BINARY = ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];
const SIZES = Object.fromEntries(Object.entries(DATA.sizes).map(([name, size]) => [name, BigInt(size)]));
const LEDGERS = Object.fromEntries(DATA.ledgers.map((ledger) => [ledger.name, ledger]));

/** A whole number from 1 to 2⁴⁰, or the line that refuses the text. */
function whole(text) {
  const typed = text.trim();
  const digits = typed.replace(/^0+(?=[0-9])/, "");
  if (/^[1-9][0-9]{0,12}$/.test(digits) && BigInt(digits) <= LARGEST) return { value: BigInt(digits) };
  const found = typed === "" ? "Nothing here" : `Found ${typed.length > 20 ? `${typed.slice(0, 20)}…` : typed}`;
  return { refused: `${found}; expected a whole number from 1 to 2⁴⁰, in digits.` };
}

/** The lengths by symbol, from the texts by field; or the line that refuses each field that is wrong. */
function lengths(texts, words) {
  const sizes = {};
  const refused = {};
  for (const [field, text] of Object.entries(texts)) {
    const found = whole(text);
    if (found.refused) refused[field] = found.refused;
    else sizes[DATA.fields[field]] = found.value;
  }
  const { T, S } = sizes;
  if (words.mode === "prefill" && T !== undefined && S !== undefined && S < T) {
    refused.context = `${grouped(S)} is fewer than the ${grouped(T)} new tokens, which it includes.`;
  }
  return { sizes, refused };
}

/** The rows of a ledger at these words and sizes, each with the number of its form; or why there are none. */
function answer(ledger, words, sizes) {
  const found = ledger.cases[ledger.depends.map((setting) => words[setting]).join("|")];
  if (typeof found === "string") return { refused: found, rows: {} };
  const all = { ...SIZES, ...sizes };
  const rows = Object.entries(found).map(([row, form]) => [row, { form, value: FORMS[form](all) }]);
  return { refused: "", rows: Object.fromEntries(rows) };
}

/** Every ledger's answer, by its name. */
function answers(words, sizes) {
  return Object.fromEntries(DATA.ledgers.map((ledger) => [ledger.name, answer(ledger, words, sizes)]));
}

/** 8030261248n as 8,030,261,248. */
function grouped(value) {
  return String(value).replace(/\B(?=([0-9]{3})+$)/g, ",");
}

/** Four significant digits, to the nearest and of two to the even one: SI letters, or binary units of bytes. */
function rounded(value, unit) {
  const [step, letters] = unit === "bytes" ? [1024n, BINARY] : [1000n, DECIMAL];
  let power = 0;
  while (power + 1 < letters.length && value >= step ** BigInt(power + 1)) power += 1;
  if (power === 0) return "";
  const scale = step ** BigInt(power);
  if (value % scale === 0n) return `${grouped(value / scale)} ${letters[power]}`;
  const places = Math.max(0, 4 - String(value / scale).length);
  const scaled = value * 10n ** BigInt(places);
  const [down, twice] = [scaled / scale, (scaled % scale) * 2n];
  const digits = String(down + (twice > scale || (twice === scale && down % 2n === 1n) ? 1n : 0n));
  if (unit !== "bytes" && digits.length > 4 && places > 0 && power + 1 < letters.length) return `1.000 ${letters[power + 1]}`;
  const point = digits.length - places;
  return `${grouped(digits.slice(0, point))}${places ? `.${digits.slice(point)}` : ""} ${letters[power]}`;
}

/** A part of a whole, 12.3%. */
function share(part, total) {
  return total === 0n ? "" : `${((100 * Number(part)) / Number(total)).toFixed(1)}%`;
}

/** A number with its unit and, where that is shorter, rounded: 1,073,741,824 bytes ≈ 1 GiB. */
function inWords(value, unit) {
  const names = { bytes: "bytes", flops: "FLOPs", count: "parameters" };
  const near = rounded(value, unit);
  return `${grouped(value)} ${names[unit]}${near && ` ≈ ${near}`}`;
}
