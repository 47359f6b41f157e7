// The page: reads the inputs, puts the numbers where they stand, typesets the forms with the numbers put in.

const element = (id) => document.getElementById(id);

/** The words of the settings and the texts of the lengths, as they are chosen now. */
function chosen() {
  const [words, texts] = [{ ...DATA.words }, {}];
  for (const control of element("inputs").elements) {
    if (control.tagName === "SELECT") words[control.name] = control.value;
    if (control.tagName === "INPUT") texts[control.name] = control.value;
  }
  return { words, texts };
}

/** Say beside each field what is wrong with it, or what should be known of it. */
function remark(texts, refused) {
  for (const [field, text] of Object.entries(texts)) {
    const wrong = refused[field] ?? "";
    const past = !wrong && field !== "batch" && field !== "encoder" && DATA.positions && BigInt(text) > BigInt(DATA.positions);
    element(field).setAttribute("aria-invalid", String(Boolean(wrong)));
    element(`${field}-error`).textContent = wrong;
    element(`${field}-note`).textContent = past ? `The model has ${grouped(DATA.positions)} learned positions.` : "";
  }
}

/** One row of a table. */
function fillRow(place, found, total, unit) {
  const put = (name, text) => {
    const cell = place.querySelector(`.${name}`);
    if (cell) cell.textContent = text;
  };
  put("value", found ? grouped(found.value) : "—");
  put("rounded", found ? rounded(found.value, unit) : "");
  put("share", found && total ? share(found.value, total.value) : "");
}

/** One closed form, and the same with the numbers put in. */
function fillForm(place, found, sizes) {
  if (!found) return;
  const closed = place.querySelector(".closed");
  if (place.dataset.form !== String(found.form)) {
    closed.innerHTML = DATA.mathml[found.form];
    place.dataset.form = found.form;
  }
  const math = closed.firstElementChild.cloneNode(true);
  for (const sign of math.querySelectorAll("mo")) if (sign.textContent === "\u2062") sign.textContent = "·";
  for (const letter of math.querySelectorAll("msub, mi")) {
    const [base, scope] = letter.tagName === "msub" ? letter.children : [letter];
    const size = sizes[scope ? `${base.textContent}_${scope.textContent.replaceAll(" ", "_")}` : base.textContent];
    if (size === undefined) continue;
    const number = document.createElementNS(math.namespaceURI, "mn");
    number.textContent = String(size);
    letter.replaceWith(number);
  }
  place.querySelector(".put").replaceChildren(math);
}

/** Everything that belongs to one ledger; without an answer, dashes. */
function fill(ledger, found, sizes) {
  const rows = found?.rows ?? {};
  for (const place of document.querySelectorAll(`[data-ledger="${ledger.name}"][data-row]`)) {
    const row = rows[place.dataset.row];
    const dash = found?.refused && place.tagName === "TR" && place.dataset.row === "total";
    if (found) place.hidden = !row && !dash;
    if (place.tagName === "TR") fillRow(place, row, rows.total, ledger.unit);
    else fillForm(place, row, sizes);
  }
  const headline = document.querySelector(`output[data-ledger="${ledger.name}"]`);
  if (headline) headline.textContent = rows.total ? inWords(rows.total.value, ledger.unit).replace(" ≈", "\n≈") : "—";
  const refusal = element(`${ledger.name}-refusal`);
  if (refusal) refusal.textContent = found?.refused ? `Not defined: ${found.refused}.` : "";
}

function render() {
  const { words, texts } = chosen();
  const { sizes, refused } = lengths(texts, words);
  remark(texts, refused);
  const right = Object.keys(refused).length === 0;
  const found = right ? answers(words, sizes) : {};
  for (const ledger of DATA.ledgers) fill(ledger, found[ledger.name], { ...SIZES, ...sizes });
  element("results").classList.toggle("refused", !right);
  if (right) draw(words, sizes, found);
  scrollers();
}

/** What scrolls sideways can be reached and scrolled by the keyboard. */
function scrollers() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

function start() {
  const form = element("inputs");
  form.addEventListener("input", render);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(render));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", scrollers));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) render();
    width = innerWidth;
  });
  render();
}

if (typeof document !== "undefined") start();
