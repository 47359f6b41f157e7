"""The report in Chromium: it shows what the engine counts, for the eye, the ear and the keyboard; nothing leaves the page."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import reports
from click.testing import CliRunner

from blockcalc import Step, load, widths
from blockcalc.cli import main
from blockcalc.explain import Subject
from blockcalc.report.page import write

CHROMIUM = shutil.which("chromium")
AXE = Path(os.environ.get("BLOCKCALC_NODE_MODULES", "node_modules")) / "axe-core" / "axe.min.js"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not in $BLOCKCALC_NODE_MODULES")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Each model's page as a file."""
    return reports.Pages(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def browser():
    """Chromium with a fresh profile."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with driver.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, headless=True)
        yield found
        found.close()


@pytest.fixture
def visit(browser):
    """Opens a page; at the end nothing but its file was asked for and the console is silent."""
    asked, said, contexts = [], [], []

    def open_page(path, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.route("**/*", lambda route: (asked.append(route.request.url), route.continue_()))
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert len(asked) == len(contexts) and all(url.startswith("file:") for url in asked)


CHOOSE = """(settings) => settings.map(([texts, words]) => {
  for (const [name, value] of Object.entries({ ...texts, ...words })) {
    const control = document.getElementById(name);
    if (control) control.value = value;
  }
  document.getElementById("inputs").dispatchEvent(new Event("input"));
  const tables = {};
  for (const row of document.querySelectorAll("tr[data-row]:not([hidden])"))
    (tables[row.dataset.ledger] ??= {})[row.dataset.row] = row.querySelector(".value").textContent;
  for (const line of document.querySelectorAll("[id$=-refusal]"))
    if (line.textContent) tables[line.id.replace("-refusal", "")] = line.textContent.replace(/^Not defined: |[.]$/g, "");
  return tables;
})"""


@pytest.mark.parametrize("name", reports.MODELS)
def test_the_page_shows_the_engines_numbers(name, pages, visit):
    page = visit(pages[name])
    given = [reports.typed(name, draw) for draw in reports.draws(name)]
    for found, draw in zip(page.evaluate(CHOOSE, given), reports.draws(name), strict=True):
        assert reports.same({"kv": {}, "active": {}, **reports.whole(found)}, reports.counted(name, draw)), draw
    assert not page.evaluate("[...document.querySelectorAll('.form:not([hidden])')].some((one) => !one.textContent)")


def test_a_formula_with_its_numbers_put_in_is_the_number(pages, visit):
    """Each is read back from the page's MathML and computed."""
    page = visit(pages["gemma-2-9b"])
    prefills = (one for one in reports.draws("gemma-2-9b") if one.words["mode"] == "prefill")
    draw = next(one for one in prefills if one.words["attention"] == "math")
    page.evaluate(CHOOSE, [reports.typed("gemma-2-9b", draw)])
    expected = reports.counted("gemma-2-9b", draw)
    read = """() => [...document.querySelectorAll(".form:not([hidden])")].map((one) => {
      const put = one.querySelector(".put math");
      for (const [tag, sign] of [["msup", "**"], ["mfrac", "//"]])
        for (const pair of put.querySelectorAll(tag))
          pair.replaceWith([...pair.children].map((one) => `(${one.textContent})`).join(sign));
      return [one.dataset.ledger, one.dataset.row, put.textContent];
    })"""
    forms = page.evaluate(read)
    for ledger, row, text in forms:
        if isinstance(expected[ledger], dict) and row in expected[ledger]:
            code = text.replace("·", "*").replace("−", "-").replace("\u2061", "").replace("\u2009", "")
            assert re.fullmatch(r"[-+*/(), 0-9min]*", code)
            assert eval(code, {"__builtins__": {}, "min": min}) == expected[ledger][row], (ledger, row, code)
    assert len(forms) > 40


def test_the_keyboard_reaches_every_control_in_order_and_shows_where_it_is(pages, visit):
    page = visit(pages["t5-base"])
    controls = page.evaluate("[...document.getElementById('inputs').elements].map((one) => one.id || one.type)")
    assert controls[:4] == ["batch", "seq", "context", "encoder"] and len(controls) == 11
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for control in controls:
        page.keyboard.press("Tab")
        where = page.evaluate("""() => { const one = document.activeElement, look = getComputedStyle(one);
            return [one.id || one.type, look.outlineStyle, parseFloat(look.outlineWidth)]; }""")
        assert where[0] == control and where[1] != "none" and where[2] >= 2
    page.focus("#batch")
    page.keyboard.press("Control+A")
    page.keyboard.type("17")
    for _ in range(7):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "recompute"
    page.keyboard.press("ArrowDown")
    now = reports.FIRST._replace(
        lengths={**reports.FIRST.lengths, "batch": 17}, words={**reports.FIRST.words, "recompute": "selective"}
    )
    total = reports.counted("t5-base", now)["activations"]["total"]
    assert page.locator("output[data-ledger=activations]").inner_text().startswith(f"{total:,} bytes")
    for _ in range(4):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the first list of closed forms opens
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.locator("details").first.get_attribute("open") == ""


def test_everything_that_is_heard_has_a_name(pages, visit):
    page = visit(pages["deepseek-v3"])
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    named = {
        "textbox", "combobox", "button", "link", "status", "image", "form", "table", "region", "columnheader", "rowheader",
    }  # fmt: skip
    found = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
    roles = [role for role, _ in found]
    assert {"textbox", "combobox", "button", "image", "region", "rowheader", "MathMLMath"} <= set(roles)
    assert [role for role, name in found if role in named and not name.strip()] == []
    assert page.evaluate("[...document.querySelectorAll('[role=group]')].every((one) => one.ariaLabel)")
    assert [name for role, name in found if role == "textbox"] == [
        "Sequences in the batch, B", "New tokens a sequence, T", "Context: visible tokens, the new ones included, S",
    ]  # fmt: skip
    assert page.get_attribute("html", "lang") == "en" and page.locator("output[aria-live=polite]").count() == 4
    assert page.evaluate("[...document.querySelectorAll('th')].every((one) => ['row', 'col'].includes(one.scope))")


@needs_axe
@pytest.mark.parametrize("width,scheme", [(1280, "light"), (360, "dark")])
def test_axe_finds_nothing(width, scheme, pages, visit):
    """axe-core's rules, of WCAG 2.2 AA and best practice: contrast, names, landmarks, headings, tables."""
    page = visit(pages["gemma-2-9b"], width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.fill("#batch", "0")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes.map((n) => n.html)]))")
    assert found == []


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["gemma-2-9b", "deepseek-v3"])
def test_the_page_never_scrolls_sideways(width, name, pages, visit):
    page = visit(pages[name], width)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == width
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    largest = {field: str(2**40) for field in ("batch", "seq", "context")}
    page.evaluate(CHOOSE, [(largest, {"mode": "train", "convention": "exact"})])
    assert page.evaluate(wide) == width
    assert f"{2**40:,}" in page.locator("#picture-kv svg[role=img]").get_attribute("aria-label")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(wide) == width


def test_a_wrong_input_is_refused_beside_its_field_and_no_number_stands(pages, visit):
    page = visit(pages["mixtral-8x7b"])
    good = page.locator("main").inner_text()
    for field in ("batch", "seq", "context"):
        before = page.input_value(f"#{field}")
        for text in ("0", "-3", "1.5", "", "1e3", "abc", str(2**40 + 1), "9" * 3000):
            page.fill(f"#{field}", text)
            error = page.locator(f"#{field}-error")
            assert error.is_visible() and "expected a whole number from 1 to 2⁴⁰" in error.inner_text()
            assert page.get_attribute(f"#{field}", "aria-invalid") == "true"
            values = page.evaluate("[...document.querySelectorAll('td.value, main output')].map((one) => one.textContent)")
            assert set(values) == {"—"}
            assert not re.search(r"NaN|undefined|null|Infinity|\[object", page.locator("body").inner_text())
        page.fill(f"#{field}", before)
        assert page.get_attribute(f"#{field}", "aria-invalid") == "false" and page.locator(".error:visible").count() == 0
    assert page.locator("main").inner_text() == good
    page.select_option("#mode", "prefill")
    page.fill("#context", "9")
    assert page.locator("#context-error").inner_text() == "9 is fewer than the 640 new tokens, which it includes."
    page.click("button[type=reset]")
    page.wait_for_function("document.getElementById('context-error').textContent === ''")
    assert page.locator("main").inner_text() == good


def test_past_the_learned_positions_it_warns(pages, visit):
    page = visit(pages["bert-base"])
    assert page.locator("#seq-note").inner_text() == "The model has 512 learned positions."
    page.fill("#seq", "512")
    assert page.locator("#seq-note").inner_text() == ""
    assert page.locator("#context, #encoder, #kv_dtype").count() == 0
    assert page.locator("#mode option").all_inner_texts() == ["forward", "train"]


def test_pictures_follow_the_inputs_and_say_what_they_show(pages, visit):
    page = visit(pages["gemma-2-9b"])
    page.fill("#context", "9000")
    model, kept = load("gemma-2-9b"), widths("fp8")
    sizes = {s: sum(model.budget(Step.prefill(2, s)).cache(kept).values()) for s in (128, 4096, 8192, 9000, 131072)}
    said = page.locator("#picture-kv svg[role=img]").get_attribute("aria-label")
    assert f"{sizes[9000]:,} bytes" in said and f"{sizes[128]:,} bytes" in said and f"{sizes[131072]:,} bytes" in said
    assert page.locator("#picture-kv .strong").inner_html() == "9,000"
    page.locator("#picture-kv summary").click()
    shown = page.locator("#picture-kv tbody tr").all_inner_texts()
    for length in (4096, 8192):
        assert any(row.split()[0] == f"{length:,}" and row.split()[-1] == f"{sizes[length]:,}" for row in shown)
    page.select_option("#mode", "decode")
    assert "9,000 tokens" in page.locator("#picture-flops svg[role=img]").get_attribute("aria-label")
    assert page.locator("#picture-flops text", has_text="context S").count() == 1
    assert "feed-forward 70." in page.locator("#picture-parts svg").get_attribute("aria-label")


HOSTILE = """</script><script>alert(1)</script><!--<img src=x onerror="alert(2)">&amp;*/'`${alert(3)}\\u003c</title>"""


def test_a_hostile_name_or_config_stays_text(tmp_path, visit):
    """A model's name is what its user calls it, or the path that it was read from."""
    config = {"model_type": "gpt2", "_name_or_path": HOSTILE, "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 9}
    folder = tmp_path / HOSTILE.replace("/", "∕")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    asked = ["report", str(folder), "-o", str(tmp_path / "path.html")]
    assert CliRunner().invoke(main, asked, prog_name="blockcalc").exit_code == 0
    settings = reports.FIRST._replace(words={**reports.FIRST.words, "note": HOSTILE})  # into the script's data
    (tmp_path / "name.html").write_text(write(Subject.of(HOSTILE, load(config)), settings, [HOSTILE]), encoding="utf-8")
    total = load(config).budget(Step.forward(1, 1)).parameters().total
    for file, name in (("path.html", str(folder)), ("name.html", HOSTILE)):
        page = visit(tmp_path / file)
        assert page.locator("h1").text_content() == name and page.title() == f"{name} · blockcalc"
        assert page.locator("img").count() == 0 and page.locator("script").count() == 1
        assert page.locator("output[data-ledger=params]").inner_text().startswith(f"{total:,} ")
