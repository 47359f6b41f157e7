// Pictures of the chosen settings, drawn as SVG from the same forms. Colours: Okabe and Ito; "" is the text's own.

const HEIGHT = 300;

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const colour = (row) => DATA.colours[row] || "currentColor";
const log = (value) => Math.log2(Number(value));

/** Lengths from the shortest to the longest shown, an eighth of a doubling apart, and the chosen one. */
function spread(chosen) {
  const low = Math.min(7, Math.floor(log(chosen)));
  const high = Math.min(40, Math.max(17, Math.ceil(log(chosen)) + 1));
  const steps = Array.from({ length: 8 * (high - low) + 1 }, (_, step) => BigInt(Math.round(2 ** (low + step / 8))));
  return [...new Set([...steps, chosen])].sort((a, b) => (a < b ? -1 : 1));
}

/** Powers of two between two numbers, as many as have room. */
function powers(low, high, most) {
  const [first, last] = [Math.ceil(log(low) - 1e-9), Math.floor(log(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, index) => 2n ** BigInt(first + index * step));
}

/** A frame with a logarithmic axis of tokens below, the chosen length marked; gives what places a point in it. */
function frame(name, xs, chosen, ticks, place, text) {
  const box = element(`picture-${name}`).querySelector(".canvas");
  const width = Math.max(260, box.clientWidth);
  const [left, right, top, bottom] = [ticks.room, 30, 26, 42];
  const x = (length) => left + ((log(length) - log(xs[0])) / (log(xs.at(-1)) - log(xs[0]))) * (width - left - right);
  const y = (part) => HEIGHT - bottom - part * (HEIGHT - top - bottom);
  const picture = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": text });
  for (const { at, label } of ticks.all) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }));
    picture.append(svg("text", { x: left - 8, y: y(at) + 4, "text-anchor": "end" }, label));
  }
  for (const length of powers(xs[0], xs.at(-1), Math.floor((width - left) / 78))) {
    picture.append(svg("text", { x: x(length), y: HEIGHT - bottom + 18, "text-anchor": "middle" }, grouped(length)));
  }
  picture.append(svg("text", { x: (left + width - right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, place));
  const end = x(chosen) > width / 2 ? "end" : "start";
  const mark = [
    svg("line", { class: "mark", x1: x(chosen), x2: x(chosen), y1: y(0), y2: top - 6 }),
    svg("text", { class: "strong", x: x(chosen) + (end === "end" ? -6 : 6), y: top - 10, "text-anchor": end }, grouped(chosen)),
  ];
  return { picture, x, y, show: () => box.replaceChildren((picture.append(...mark), picture)) };
}

/** What the colours are: a swatch, the row's name, and what it is at the chosen length. */
function legend(name, entries) {
  element(`picture-${name}`).querySelector(".legend").replaceChildren(...entries.map(([row, text]) => {
    const swatch = svg("svg", { class: "swatch", width: 14, height: 14, "aria-hidden": "true" });
    swatch.append(svg("rect", { x: 1, y: 1, width: 12, height: 12, fill: colour(row), class: "edge" }));
    const item = document.createElement("li");
    item.append(swatch, ` ${row}: ${text}`);
    return item;
  }));
}

/** The picture's numbers at powers of two, as a table. */
function numbers(name, headings, rows) {
  const line = (cells, first) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text, index) => {
      const cell = document.createElement(first || index === 0 ? "th" : "td");
      if (cell.tagName === "TH") cell.scope = first ? "col" : "row";
      if (index > 0) cell.className = "number";
      cell.textContent = text;
      return cell;
    }));
    return row;
  };
  const table = element(`picture-${name}`).querySelector("table");
  table.tHead.replaceChildren(line(headings, true));
  table.tBodies[0].replaceChildren(...rows.map((cells) => line(cells, false)));
}

function drawCache(words, sizes, found) {
  const at = (S) => answer(LEDGERS.kv, words, { ...sizes, S }).rows;
  const xs = spread(sizes.S);
  const points = xs.map((S) => [S, at(S)]);
  const kinds = Object.keys(found.rows).filter((row) => row !== "total" && row !== DATA.more);
  const rows = kinds.length > 1 ? [...kinds, "total"] : ["total"];
  const values = points.flatMap(([, one]) => rows.map((row) => one[row]?.value ?? 0n)).filter((value) => value > 0n);
  const [low, high] = values.reduce(([a, b], v) => [v < a ? v : a, v > b ? v : b], [values[0], values[0]]);
  const [first, last] = [Math.floor(log(low)), Math.max(Math.ceil(log(high)), Math.floor(log(low)) + 1)];
  const height = (value) => (log(value) - first) / (last - first);
  const all = powers(2n ** BigInt(first), 2n ** BigInt(last), 7).map((v) => ({ at: height(v), label: rounded(v, "bytes") || `${v} B` }));
  const ends = [points[0], points.at(-1)].map(([S, one]) => `${inWords(one.total.value, "bytes")} at ${grouped(S)} tokens`);
  const text = `KV cache against the context: ${inWords(found.rows.total.value, "bytes")} at ${grouped(sizes.S)} tokens; from ${ends.join(" to ")}.`;
  const { picture, x, y, show } = frame("kv", xs, sizes.S, { room: 74, all }, "context S, in tokens", text);
  for (const row of rows) {
    const line = points.filter(([, one]) => one[row]?.value > 0n);
    const path = line.map(([S, one], index) => `${index ? "L" : "M"}${x(S).toFixed(1)} ${y(height(one[row].value)).toFixed(1)}`);
    const dash = row === "total" ? {} : { "stroke-dasharray": ["8 4", "2 4", "8 3 2 3"][kinds.indexOf(row) % 3] };
    picture.append(svg("path", { class: "line", d: path.join(""), stroke: colour(row), ...dash }));
  }
  picture.append(svg("circle", { class: "dot", cx: x(sizes.S), cy: y(height(found.rows.total.value)), r: 5 }));
  show();
  legend("kv", rows.map((row) => [row, found.rows[row] ? inWords(found.rows[row].value, "bytes") : "none"]));
  numbers("kv", ["context", ...rows], powers(xs[0], xs.at(-1), 11).map((S) => {
    const one = at(S);
    return [grouped(S), ...rows.map((row) => grouped(one[row]?.value ?? 0n))];
  }));
}

/** What the FLOPs are drawn against: its symbol, its name, and the sizes at another length. A prefill keeps what was cached. */
function against(words, sizes) {
  if (words.mode === "decode") return ["S", "context S, in tokens", (S) => ({ ...sizes, S })];
  const cached = words.mode === "prefill" ? sizes.S - sizes.T : null;
  return ["T", "new tokens T", (T) => ({ ...sizes, T, ...(cached === null ? {} : { S: T + cached }) })];
}

function drawFlops(words, sizes, found) {
  const [symbol, place, sized] = against(words, sizes);
  const at = (length) => answer(LEDGERS.flops, words, sized(length)).rows;
  const xs = spread(sizes[symbol]);
  const points = xs.map((length) => [length, at(length)]);
  const rows = DATA.work.filter((row) => points.some(([, one]) => one[row]));
  const part = (one, row) => (one[row] ? Number(one[row].value) / Number(one.total.value) : 0);
  const shares = rows.map((row) => [row, share(found.rows[row]?.value ?? 0n, found.rows.total.value)]);
  const text = `Shares of the FLOPs at ${grouped(sizes[symbol])} tokens: ${shares.map((pair) => pair.join(" ")).join(", ")}.`;
  const all = [0, 0.25, 0.5, 0.75, 1].map((at) => ({ at, label: `${100 * at}%` }));
  const { picture, x, y, show } = frame("flops", xs, sizes[symbol], { room: 48, all }, place, text);
  let floor = points.map(() => 0);
  for (const row of rows) {
    const ceiling = floor.map((below, index) => below + part(points[index][1], row));
    const corner = (heights) => (index) => `${x(xs[index]).toFixed(1)} ${y(heights[index]).toFixed(1)}`;
    const order = [...xs.keys()];
    const path = [...order.map(corner(ceiling)), ...order.reverse().map(corner(floor))];
    picture.append(svg("path", { class: "edge", d: `M${path.join("L")}Z`, fill: colour(row) }));
    floor = ceiling;
  }
  show();
  legend("flops", shares);
  numbers("flops", ["tokens", ...rows], powers(xs[0], xs.at(-1), 11).map((length) => {
    const one = at(length);
    return [grouped(length), ...rows.map((row) => share(one[row]?.value ?? 0n, one.total.value))];
  }));
}

function drawParts(found) {
  const rows = Object.keys(found.rows).filter((row) => row !== "total");
  const total = found.rows.total.value;
  const box = element("picture-parts").querySelector(".canvas");
  const [width, tall] = [Math.max(260, box.clientWidth), 34];
  const longest = Math.max(...rows.map((row) => Number(found.rows[row].value)));
  const text = `Parameters by part: ${rows.map((row) => `${row} ${share(found.rows[row].value, total)}`).join(", ")}.`;
  const picture = svg("svg", { width, height: tall * rows.length, role: "img", "aria-label": text });
  rows.forEach((row, index) => {
    const { value } = found.rows[row];
    const [top, long] = [tall * index, Math.max(1, ((width - 112 - 150) * Number(value)) / longest)];
    const label = `${rounded(value, "count") || grouped(value)} · ${share(value, total)}`;
    picture.append(
      svg("text", { x: 104, y: top + 21, "text-anchor": "end" }, row),
      svg("rect", { class: "edge", x: 112, y: top + 5, width: long, height: tall - 10, fill: colour(row) }),
      svg("text", { x: 112 + long + 8, y: top + 21 }, label),
    );
  });
  box.replaceChildren(picture);
}

function draw(words, sizes, found) {
  if (element("picture-parts")) drawParts(found.parts);
  if (element("picture-kv")) drawCache(words, sizes, found.kv);
  const shares = element("picture-flops");
  if (!shares) return;
  shares.hidden = Boolean(found.flops.refused);
  if (!shares.hidden) drawFlops(words, sizes, found.flops);
}
