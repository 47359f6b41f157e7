"""Every comparison table in every form: the same numbers, whole, at any width; what `table` and `compare` do and refuse."""

import csv
import io
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from blockcalc.cli import main
from blockcalc.comparisons import TITLES, draw
from blockcalc.tables.markup import as_html, as_latex
from blockcalc.tables.table import Column, Table, as_csv, as_markdown, as_object, plain, print_table, texts

PAGES = Path(__file__).resolve().parent.parent / "docs" / "tables"


@cache
def drawn(name):
    return draw(name)


def run(*words, width=100):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(main, words, prog_name="blockcalc")


def ask(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr.strip()


def on_a_terminal(table, width, capsys):
    print_table(table, width=width)
    return capsys.readouterr().out


# -- the forms, read back ----------------------------------------------------------------------------------------------


def read_csv(text):
    return [list(row) for row in csv.reader(io.StringIO(text))]


def read_markdown(text):
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[each.strip().replace("\\|", "|") for each in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    assert all(re.fullmatch("-+:?", each) for each in cells[1])
    return [cells[0], *cells[2:]]


def read_html(text):
    root = ElementTree.fromstring(text)
    assert root.tag == "table"
    assert all(cell.attrib["scope"] in ("col", "row") for cell in root.iter("th"))
    rows = [*root.find("thead"), *root.find("tbody")]
    return [["".join(cell.itertext()) for cell in row] for row in rows]


LATEX = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\&": "&", r"\%": "%", r"\$": "$", r"\#": "#", r"\_": "_", r"\{": "{",
    r"\}": "}", r"$\cdot$": "·", r"$\times$": "×", "$-$": "−", "$^{2}$": "²", r"$\pm$": "±", "-{}": "-", "{[}": "[", "{*}": "*",
}  # fmt: skip


def read_latex(text):
    lines = text.splitlines()
    rules = [lines.index(rf"\{rule}") for rule in ("toprule", "midrule", "bottomrule")]
    assert rules == sorted(rules)
    assert sum(line.endswith("rule") for line in lines) == 3
    rows = [*lines[rules[0] + 1 : rules[1]], *lines[rules[1] + 1 : rules[2]]]
    assert all(row.endswith(r" \\") for row in rows)
    signs = re.compile("|".join(map(re.escape, LATEX)))
    cells = [re.split(r"(?<!\\) ?& ?", row[:-3]) for row in rows]
    assert not any(set(signs.sub("", cell)) & set("\\&%$#_{}~^") for row in cells for cell in row)
    return [[signs.sub(lambda sign: LATEX[sign[0]], cell) for cell in row] for row in cells]


def as_read(table):
    return [[column.name for column in table.columns], *(texts(table.columns, row) for row in table.rows)]


@pytest.mark.parametrize("name", TITLES)
def test_the_same_numbers_in_all_forms(name):
    for table in drawn(name):
        assert read_markdown(as_markdown(table)) == as_read(table)
        assert read_html(as_html(table)) == as_read(table)
        assert read_latex(as_latex(table)) == as_read(table)
        exact = [["" if value is None else str(plain(value)) for value in row] for row in table.rows]
        assert read_csv(as_csv(table))[1:] == exact
        rows = json.loads(json.dumps(as_object(table)))["rows"]
        assert [list(row.values()) for row in rows] == [list(map(plain, row)) for row in table.rows]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("name", TITLES)
def test_no_number_is_cut_or_folded_at_any_width(name, width, capsys):
    for table in drawn(name):
        lines = on_a_terminal(table, width, capsys).splitlines()
        assert not any("…" in line for line in lines)
        longest = max(len(word) for row in (*as_read(table), table.notes) for cell in row for word in cell.split())
        assert all(len(line) <= max(width, longest + 2) for line in lines)
        for row in table.rows:
            for value in texts(table.columns, row):
                if re.fullmatch(r"[\d,.]+", value):
                    whole = re.compile(rf"(?<![\d,.]){re.escape(value)}(?![\d,.])")
                    assert any(whole.search(line) for line in lines), (value, width)


def test_a_table_stands_as_rows_then_as_columns_then_as_records(capsys):
    names = (Column("model"), *(Column(f"quantity {number}", "count") for number in range(4)))
    table = Table("", names, (("this", *(10**9 + n for n in range(4))), ("that", *(10**6 + n for n in range(4)))))
    wide, middle, narrow = (on_a_terminal(table, width, capsys).splitlines() for width in (90, 50, 30))
    assert re.split("[│┃┡┩╇ ]+", wide[3])[1:6] == ["this", "1,000,000,000", "1,000,000,001", "1,000,000,002", "1,000,000,003"]
    assert re.split("[│┃ ]+", middle[1])[1:4] == ["model", "this", "that"]
    assert re.split("[│ ]+", middle[3])[1:5] == ["quantity", "0", "1,000,000,000", "1,000,000"]
    assert narrow[:2] == ["model       this", "quantity 0  1,000,000,000"]


def test_a_long_value_breaks_between_words_and_never_in_one(capsys):
    table = Table("", (Column("formula"), Column("n", "count")), (("12,345·(D + 678,901·N) + 234,567·(K + M)", 5),))
    for width in (24, 30, 34):
        lines = on_a_terminal(table, width, capsys).splitlines()
        assert all(len(line) <= width for line in lines)
        assert " ".join(" ".join(lines).split()) == "formula 12,345·(D + 678,901·N) + 234,567·(K + M) n 5"


def test_a_number_in_a_title_or_a_note_stays_whole_where_it_is_wider_than_the_terminal(capsys):
    table = Table("at 1,234,567,890", (Column("n", "count"),), ((5,),), ("of 9,876,543,210 tokens",))
    assert {"1,234,567,890", "9,876,543,210"} <= set(on_a_terminal(table, 9, capsys).splitlines())


def test_what_is_less_and_what_is_more_than_the_first_have_colours():
    from rich.console import Console

    from blockcalc.tables.table import _drawn, _grid

    table = Table("", (Column("model"), Column("n", "count")), (("a", 5), ("b", 4), ("c", 6), ("d", 5)), compared=True)
    console = Console(force_terminal=True, color_system="standard", width=40, file=io.StringIO())
    console.print(_drawn(_grid(table)))
    shown = console.file.getvalue()
    assert re.search(r"\x1b\[32m *4", shown)
    assert re.search(r"\x1b\[33m *6", shown)
    assert len(re.findall(r"\x1b\[3[23]m", shown)) == 2


NASTY = r"a&b <i>'x'</i> 50% $5 #1 {x_1}^2 ~ \par | -- * · D² − × \\"


@pytest.mark.parametrize("text", [NASTY, "[x]", "*", "x\ny", "a|b", "]]>", "&amp;", "---"])
def test_markup_in_a_value_is_text(text):
    table = Table(text, (Column(text), Column("n", "count")), ((text, 1234567), (None, None)), (text,))
    flat = text.replace("\n", " ")
    assert read_latex(as_latex(table)) == [[flat, "n"], [flat, "1,234,567"], ["", ""]]
    assert read_html(as_html(table)) == [[text, "n"], [text, "1,234,567"], ["", ""]]
    root = ElementTree.fromstring(as_html(table))
    assert root.findtext("caption") == root.findtext("tfoot/tr/td") == text
    assert read_markdown(as_markdown(table))[1] == [flat, "1,234,567"]


def test_latex_has_no_command_of_the_text_s_own():
    text = as_latex(Table("", (Column("n"),), ((NASTY,), ("[2em]",), ("*",))))
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    signs = {f"text{sign}" for sign in ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar")}
    assert set(re.findall(r"\\([a-zA-Z]+)", body)) == {*signs, "cdot", "times"}
    assert not re.search(r"\\\\\s*[\[*]", body)
    assert "--" not in body


def test_a_character_that_xml_has_not_is_replaced():
    assert read_html(as_html(Table("", (Column("\x00\x1bn"),), (("\x0b",),)))) == [["��n"], ["�"]]


# -- the commands ------------------------------------------------------------------------------------------------------

ROWS = [("params", "gpt2"), ("kv", "gpt2"), ("budget", "gpt2"), ("compare", "gpt2", "bert-base"), ("models",), ("blocks",),
        ("conventions",), ("table", "shapes", "--model", "gpt2"), ("table",)]  # fmt: skip


@pytest.mark.parametrize("words", ROWS, ids=" ".join)
def test_every_command_that_prints_tables_has_six_forms(words):
    assert json.loads(run(*words, "--json").stdout)
    assert ElementTree.fromstring(f"<div>{run(*words, '--html').stdout}</div>").find("table") is not None
    assert r"\toprule" in run(*words, "--latex").stdout
    assert read_csv(run(*words, "--csv").stdout)
    assert "|---" in run(*words, "--markdown").stdout
    assert run(*words).stdout


@pytest.mark.parametrize("name", TITLES)
def test_the_command_draws_what_the_library_draws(name):
    found = ask("table", name)
    assert found == {"table": name, "title": TITLES[name], "tables": json.loads(json.dumps([*map(as_object, drawn(name))]))}


def test_the_list_of_tables():
    assert ask("table") == {"tables": [{"name": name, "title": title} for name, title in TITLES.items()]}
    for width in (60, 80):
        assert "feed-forward" in run("table", width=width).stdout
    result = CliRunner().invoke(main, [], prog_name="blockcalc", env={
        "_BLOCKCALC_COMPLETE": "bash_complete", "COMP_WORDS": "blockcalc table mix", "COMP_CWORD": "2",
    })  # fmt: skip
    assert "mixtures" in result.stdout


def test_options_change_what_a_table_takes():
    (table,) = ask("table", "kv", "--model", "gpt2", "--context", "8", "--batch", "2", "--dtype", "fp8")["tables"]
    token = 12 * 2 * 768  # layers, keys and values, width, one byte
    assert table["rows"] == [{"model": "gpt2", "first token": token, "token after 8": token, "at 8": 2 * 8 * token}]
    norms = ask("table", "norms", "--set", "d=96", "--set", "n=4")["tables"][0]["rows"]
    assert [row["parameters"] for row in norms] == [2 * 96, 96, 96, 0]


def test_a_config_is_a_row_too(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}))
    (row,) = ask("table", "shapes", "--model", str(path))["tables"][0]["rows"]
    assert (row["width d"], row["layers l"], row["head width h"]) == (64, 2, 16)


def test_a_model_beyond_its_positions_is_named():
    (table,) = ask("table", "kv", "--model", "gpt2", "--context", "2048")["tables"]
    assert any("gpt2 has 1,024 learned positions" in note for note in table["notes"])


@pytest.mark.parametrize(
    "suffix,form", [(".md", "--markdown"), (".csv", "--csv"), (".tex", "--latex"), (".html", "--html"), (".json", "--json")]
)
def test_a_file_takes_the_form_of_its_name(tmp_path, suffix, form):
    words, path = ("table", "shapes", "--model", "gpt2"), tmp_path / f"shapes{suffix}"
    result = run(*words, "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert path.read_text(encoding="utf-8") == run(*words, form).stdout
    assert "--force overwrites it" in refused(*words, "-o", str(path))
    path.write_text("old", encoding="utf-8")
    assert run(*words, "-o", str(path), "--force", "--csv").exit_code == 0
    assert path.read_text(encoding="utf-8") == run(*words, "--csv").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table", "positons"], "did you mean positions"),
        (["table", "--batch", "3"], "no table is named"),
        (["table", "kv", "--seq", "3"], "--seq: the table kv has no use for it; it takes --model, --context, --batch, --dtype"),
        (["table", "shapes", "--set", "d=3"], "--set: the table shapes has no use for it"),
        (["table", "norms", "--batch", "1", "--batch", "2"], "--batch: the table norms takes one, found 2"),
        (["table", "norms", "--set", "z=3"], "z: the table norms has no such letter; it has d, n, f, l"),
        (["table", "norms", "--set", "d=null"], "d: found null"),
        (["table", "norms", "--set", "d=7.5"], "d = 7.5"),
        (["table", "norms", "--set", "n=7"], "d = 768 is not divisible by n = 7"),
        (["table", "norms", "--seq", "0"], "seq = 0"),
        (["table", "kv", "--context", "0"], "context = 0"),
        (["table", "kv", "--dtype", "fp7"], "dtype 'fp7'"),
        (["table", "kv", "--model", "lama-3-8b"], "did you mean"),
        (["table", "mixtures", "--model", "gpt2"], "gpt2: no mixture of experts"),
        (["table", "mixtures", "--batch", "1000000"], "up to 65,536"),
        (["table", "kv", "-o", "/no/such/folder/kv.md"], "cannot be written"),
        (["table", "kv", "-o", "kv.txt"], "name a form"),
        (["compare", "gpt2", "--metric", "prams"], "did you mean params"),
        (["compare", "gpt2", "--metric", "watts"], "expected one of params"),
        (["compare", "mha", "gqa", "--set", "z=3"], "none of these blocks has the letter z"),
        (["compare", "mha", "--set", "n=5"], "d = 77 is not divisible by n = 5"),
        (["compare", "gpt2", "mha", "--set", "n_embdd=64"], "did you mean n_embd"),
        (["compare", "gpt2", "--metric", "activations", "--dtype", "fp8"], "activations are kept in"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_in_one_line(words, said):
    line = refused(*words)
    assert said in line
    assert "\n" not in line


@pytest.mark.parametrize("name", ["", *sorted(TITLES.keys() - {"attention", "feed-forward", "published-forms"})])
def test_a_table_of_numbers_loads_nothing_heavy(name):
    words = ["table", *name.split()]
    code = f"from blockcalc.cli import main\ntry:\n    main({[*words, '--json']!r})\nexcept SystemExit: pass\nimport sys"
    program = f"{code}\nprint(*sys.modules, sep='\\n')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "blockcalc.cli.table" in found
    assert not {"sympy", "numpy", "torch", "rich"} & set(found)


# -- compare -----------------------------------------------------------------------------------------------------------


def test_compare_has_all_ledgers_and_its_metrics():
    first, second = ask("compare", "gpt2", "llama-3-8b", "--relative")["models"]
    for one in (first, second):
        assert one["metrics"] == {
            "params": one["params"]["total"], "active": one["params"]["active"], "flops": one["flops"]["total"],
            "kv": one["kv_cache"]["bytes"], "kv_per_token": one["kv_cache"]["bytes_per_token"],
            "activations": one["activations"]["bytes"],
        }  # fmt: skip
    assert set(first["relative"].values()) == {1}
    assert second["relative"]["params"] == 8_030_261_248 / 124_439_808


def test_compare_only_counts_what_is_asked_for():
    words = ("compare", "llama-3.1-8b", "gemma-2-9b", "--metric", "kv", "--metric", "macs", "--context", "131072")
    for one, name in zip(ask(*words)["models"], ("llama-3.1-8b", "gemma-2-9b"), strict=True):
        cached = ask("kv", name, "--context", "131072")["kv_cache"]["bytes"]
        assert one == {"model": name, "metrics": {"kv": cached, "macs": ask("flops", name)["macs"]}}
    # flash is not defined for soft-capped scores, but a cache is
    assert run("compare", "gemma-2-9b", "--metric", "kv", "--attention", "flash").exit_code == 0


def test_compare_blocks_at_one_size():
    words = ("compare", "mha", "gqa", "mqa", "--set", "d=4096", "--set", "n=32", "--set", "h=128", "--set", "k=8")
    mha, gqa, mqa = (one["metrics"] for one in ask(*words, "--metric", "params", "--metric", "kv_per_token")["models"])
    assert [one["params"] for one in (mha, gqa, mqa)] == [4 * 4096**2, 2 * 4096 * 128 * 40, 2 * 4096 * 128 * 33]
    assert [one["kv_per_token"] for one in (mha, gqa, mqa)] == [2 * 2 * 128 * heads for heads in (32, 8, 1)]


def test_compare_changes_models_and_blocks_each_by_its_own_names():
    gpt2, mha = ask("compare", "gpt2", "mha", "--set", "n_layer=1", "--set", "d=14", "--metric", "params")["models"]
    assert gpt2["metrics"]["params"] == ask("params", "gpt2", "--set", "n_layer=1")["params"]["total"]
    assert mha["metrics"]["params"] == 4 * 14**2


def test_a_share_of_nothing_is_blank():
    first, second = ask("compare", "bert-base", "gpt2", "--metric", "kv", "--relative")["models"]
    assert (first["relative"], second["relative"]) == ({"kv": None}, {"kv": None})


# -- the pages ---------------------------------------------------------------------------------------------------------


def test_every_table_has_its_page_and_stands_in_their_index():
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    for name, title in TITLES.items():
        page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {title}\n")
        assert f"<!-- $ blockcalc table {name} --markdown -->" in page
        assert f"[{title}]({name}.md)" in index
