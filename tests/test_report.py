"""The report without a browser: its script in node gives what the engine counts, its text holds it from the start."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import reports
from click.testing import CliRunner

from blockcalc.cli import main
from blockcalc.tables.table import rounded

NODE = shutil.which("node")

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Each model's page as a file."""
    return reports.Pages(tmp_path_factory.mktemp("reports"))


def script(page):
    """The page's script."""
    return re.search(r"<script>(.*)</script>", page.read_text(encoding="utf-8"), re.DOTALL)[1]


def in_node(code, given):
    """What the code prints, with *given* as GIVEN."""
    text = f"const GIVEN = {json.dumps(given)};\n{code}"
    done = subprocess.run([NODE, "-"], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


ALL = """
const found = GIVEN.map(([texts, words]) => {
  const { sizes, refused } = lengths(texts, words);
  if (Object.keys(refused).length) return refused;
  return Object.fromEntries(Object.entries(answers(words, sizes)).map(([name, one]) => [name,
    one.refused || Object.fromEntries(Object.entries(one.rows).map(([row, { value }]) => [row, String(value)]))]));
});
console.log(JSON.stringify(found));
"""


@needs_node
@pytest.mark.parametrize("name", reports.MODELS)
def test_the_script_alone_gives_the_engines_numbers(name, pages):
    given = [reports.typed(name, draw) for draw in reports.draws(name)]
    for found, draw in zip(in_node(script(pages[name]) + ALL, given), reports.draws(name), strict=True):
        assert reports.same(reports.whole(found), reports.counted(name, draw)), draw


class Rows(HTMLParser):
    """The rows that a page shows before its script runs."""

    def __init__(self):
        super().__init__()
        self.tables, self.place, self.cell = {}, None, ""

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "tr":
            shown = "data-row" in given and "hidden" not in given
            self.place = (given["data-ledger"], given["data-row"]) if shown else None
        self.cell = given.get("class", "") if tag == "td" else ""

    def handle_data(self, text):
        if self.place and self.cell == "number value":
            self.tables.setdefault(self.place[0], {})[self.place[1]] = int(text.replace(",", ""))


@pytest.mark.parametrize("name", reports.MODELS)
def test_a_page_without_javascript_shows_the_first_settings(name, pages):
    parser = Rows()
    parser.feed(pages[name].read_text(encoding="utf-8"))
    expected = reports.counted(name, reports.FIRST)
    assert reports.same({"kv": {}, "active": {}, **parser.tables}, expected)


@needs_node
def test_numbers_are_rounded_as_the_tables_of_the_command_line_are(pages):
    rng = random.Random(7)
    drawn = [rng.randint(1, 10 ** rng.randint(1, 33)) for _ in range(300)]
    edges = [base**power + more for base in (1000, 1024) for power in range(1, 9) for more in (-1, 0, 1)]
    for unit in ("bytes", "count"):
        apart = [value for value in drawn if rounded(value - 1, unit) == rounded(value + 1, unit)]  # no ties, which floats move
        assert len(apart) > 200
        code = f"console.log(JSON.stringify(GIVEN.map((one) => rounded(BigInt(one), '{unit}'))));"
        found = in_node(f"{script(pages['bert-base'])}\n{code}", list(map(str, [*apart, *edges])))
        assert found == [rounded(value, unit) for value in [*apart, *edges]]


@needs_node
def test_what_is_no_size_is_refused_before_it_is_computed(pages):
    bad = ["", " ", "0", "00", "-1", "+1", "1.5", "1e3", "0x10", "1,024", "1_0", "²", "٣", "NaN", "Infinity", "9" * 99]
    code = script(pages["llama-3.1-8b"]) + "\nconsole.log(JSON.stringify(GIVEN.map(whole).map((one) => one.refused ?? null)));"
    for line in in_node(code, [*bad, str(2**40 + 1)]):
        assert line and "expected a whole number from 1 to 2⁴⁰" in line and "\n" not in line and len(line) < 100
    assert in_node(code, ["1", " 7 ", "0012", str(2**40)]) == [None] * 4


def test_a_page_names_no_other_place(pages):
    for name in reports.MODELS:
        text = pages[name].read_text(encoding="utf-8")
        assert set(re.findall(r"""(?:src|href|action|poster|data)="([^"]*)\"""", text)) == {"data:,", "#results"}
        assert set(re.findall(r"https?://[^\s\"'<)\\]*", text)) <= {
            "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/2000/svg",
        }  # fmt: skip
        assert "@import" not in text and "url(" not in text


# -- the command -------------------------------------------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="blockcalc")


def test_the_command_writes_a_page_and_never_over_a_file_unasked(tmp_path):
    page = tmp_path / "report.html"
    assert run("report", "gated-mlp", "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "<h1>gated-mlp</h1>" in text
    again = run("report", "gated-mlp", "-o", page, "--seq", "7")
    assert again.exit_code == 2 and "--force" in again.stderr and page.read_text(encoding="utf-8") == text
    assert run("report", "gated-mlp", "-o", page, "--seq", "7", "--force").exit_code == 0
    assert 'value="7"' in page.read_text(encoding="utf-8")
    assert run("report", "gated-mlp", "-o", page, "--force").exit_code == 0
    assert page.read_text(encoding="utf-8") == text  # the same bytes for the same question


@pytest.mark.parametrize("words,said", [
    (["bert-base", "--dtype", "int8"], "dtype 'int8' is not one of bf16, fp16, fp32"),
    (["llama-3.1-8b", "--batch", "0"], "batch = 0"),
    (["llama-3.1-8b", "--mode", "prefill", "--context", "5", "--seq", "9"], "context 5 is shorter than the 9 new tokens"),
    (["llama-3.1-8b", "--encoder-seq", "9"], "has no encoder"),
    (["bert-base", "--mode", "decode"], "mode decode: bert-base keeps no cache"),
])  # fmt: skip
def test_the_command_refuses_in_one_line(words, said, tmp_path):
    found = run("report", *words, "-o", tmp_path / "report.html")
    assert found.exit_code == 2 and said in found.stderr and len(found.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
    missing = run("report", "gated-mlp", "-o", tmp_path / "none" / "report.html")
    assert missing.exit_code == 2 and "No such file" in missing.stderr
