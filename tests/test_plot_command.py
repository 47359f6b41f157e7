"""``blockcalc plot``: every target shows all the numbers of a picture, and what cannot be drawn is refused."""

import csv
import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console
from test_plots import MODELS, budgets

from blockcalc import Step
from blockcalc.cli import main
from blockcalc.plots import pictures, scale, terminal
from blockcalc.tables import presets

RATES = ("--flops-per-second", "989T", "--bytes-per-second", "3.35T")
WORDS = {
    "params": ("params", "gpt2", "mixtral-8x7b"),
    "kv": ("kv", "llama-3.1-8b", "gemma-2-9b", "deepseek-v3"),
    "flops": ("flops", "llama-3.1-8b", "mixtral-8x7b", "--to", "4096"),
    "activations": ("activations", "llama-3.1-8b", "gemma-2-9b", "--seq", "256"),
    "roofline": ("roofline", "llama-3.1-8b", "mixtral-8x7b", "--mode", "decode", *RATES),
    "layers": ("layers", "gemma-3-12b", "deepseek-v3"),
}


def run(*words, width=100):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(main, ("plot", *map(str, words)), prog_name="blockcalc")


def refused(*words):
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr.strip()


# -- the targets --------------------------------------------------------------------------------------------------------


def figures(name):
    """The picture's JSON object, which has the legend and the axes."""
    return json.loads(run(*WORDS[name], "--json").stdout)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_an_svg_holds_every_label_and_unit(name, tmp_path):
    path = tmp_path / "picture.svg"
    result = run(*WORDS[name], "-o", path)
    assert (result.exit_code, result.output) == (0, "")
    texts = [text.strip() for element in ElementTree.parse(path).iter() if (text := element.text)]
    found = figures(name)
    columns = {"params": ["component", "model"], "kv": ["model"], "flops": ["part", "model"], "activations": ["part", "mode"],
               "roofline": ["operation", "model"], "layers": ["kind", "model"]}[name]  # fmt: skip
    for column in columns:
        for row in found["rows"]:
            assert row[column] in texts
    units = {"params": "parameters (G)", "kv": "KV cache (GiB)", "flops": "% of the FLOPs",
             "activations": "kept for backward (GiB)", "roofline": "attainable (TFLOP/s)",
             "layers": "parameters (G)"}  # fmt: skip
    assert units[name] in texts
    assert found["title"] in texts


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_png_is_at_least_1200_by_800(name, tmp_path):
    path = tmp_path / "picture.PNG"
    assert run(*WORDS[name], "-o", path).exit_code == 0
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(head[16:20]) == 1200
    assert int.from_bytes(head[20:24]) >= 800


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_same_numbers_are_the_same_bytes(ending, tmp_path):
    paths = [tmp_path / f"{which}.{ending}" for which in "ab"]
    for path in paths:
        run(*WORDS["kv"], "-o", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_terminal_is_never_too_narrow(name, width):
    result = run(*WORDS[name], width=width)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "\x1b" not in result.stdout
    for row in figures(name)["rows"]:
        for column in {"component", "model", "part", "mode", "operation", "kind"} & set(row):
            assert any(row[column] in line for line in lines), row[column]


def test_the_bars_of_the_terminal_are_in_proportion():
    figure = pictures.params(budgets(Step.forward(1, 1), "llama-3.1-8b", "llama-2-13b"))
    lines = [line.plain for line in terminal.lines(figure, 120)]
    found = {line.split()[0]: sum(line.count(fill) for fill in terminal.FILLS) for line in lines if " G" in line}
    assert abs(found["llama-3.1-8b"] / found["llama-2-13b"] - 8_030_261_248 / 13_015_864_320) < 0.01


def test_in_colour_where_there_is_colour(monkeypatch, capsys):
    def drawn_with(system):
        monkeypatch.setattr(Console, "color_system", system)
        terminal.show(figure, 80)
        return capsys.readouterr().out

    figure = pictures.params(budgets(Step.forward(1, 1), "gpt2"))
    plain, coloured = ("\n".join(line.plain for line in terminal.lines(figure, 80, plain=plain)) for plain in (True, False))
    assert "░" in plain and "░" not in coloured
    assert "░" in drawn_with("standard") and "░" not in drawn_with("truecolor")
    styles = {str(span.style) for line in terminal.lines(figure, 80, plain=False) for span in line.spans}
    assert styles >= set(scale.OKABE_ITO[:3])


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_numbers_are_whole_and_the_same_in_every_form(name):
    rows = figures(name)["rows"]
    exact = [value for row in rows for key, value in row.items() if key not in ("flops_per_byte", "attainable")]
    assert all(type(value) in (int, str) for value in exact)
    listed = list(csv.DictReader(io.StringIO(run(*WORDS[name], "--csv").stdout)))
    assert listed == [{key: str(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize("folder", ["$a_b^{c$", "模型\x07<&>", "很长的模型" * 12, "long-" * 30])
def test_long_names_and_odd_ones(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 10, "n_positions": 2048}
    Path(folder).mkdir()
    Path(folder, "config.json").write_text(json.dumps(config))
    for words in (("params", f"{folder}/config.json", "gpt2"), ("kv", f"./{folder}"), ("layers", f"{folder}/config.json")):
        assert run(*words, "-o", f"{words[0]}.svg").exit_code == 0
        ElementTree.parse(f"{words[0]}.svg")
        shown = run(*words, width=60).stdout
        assert max(map(cell_len, shown.splitlines())) <= 60
        assert "\x07" not in shown


def test_twelve_models_at_once(tmp_path):
    names = [name for name in presets() if name.startswith("qwen2")][:8] + list(MODELS[:4])
    assert run("kv", *names, "-o", tmp_path / "kv.svg").exit_code == 0
    texts = {element.text for element in ElementTree.parse(tmp_path / "kv.svg").iter()}
    assert set(names) <= texts
    assert "at most 12" in refused("kv", *names, "gpt2-xl")


# -- what is refused ----------------------------------------------------------------------------------------------------


def test_the_list_of_pictures():
    assert [one["name"] for one in json.loads(run("--json").stdout)["pictures"]] == list(pictures.PICTURES)
    assert all(name in run().stdout for name in pictures.PICTURES)


def test_a_file_is_not_written_over(tmp_path):
    path = tmp_path / "picture.svg"
    path.write_text("mine")
    assert "--force" in refused("params", "gpt2", "-o", path)
    assert path.read_text() == "mine"
    assert run("params", "gpt2", "-o", path, "--force").exit_code == 0
    assert path.read_text() != "mine"


@pytest.mark.parametrize("words,said", [
    (("pie", "gpt2"), "the pictures are params, kv"),
    (("params", "gpt2", "-o", "picture.pdf"), ".png or .svg"),
    (("params", "gpt2", "-o", "picture"), ".png or .svg"),
    (("params", "gpt2", "gpt2"), "named twice"),
    (("params", "gpt-17"), "gpt-17"),
    (("flops", "vit-base"), "always runs 197 positions"),
    (("kv", "gated-mlp"), "keeps no cache"),
    (("kv", "bert-base"), "keeps no cache"),  # and nothing of its 512 positions
    (("flops", "gpt2", "vit-base"), "always runs 197 positions"),
    (("kv", "gpt2", "-o", "no-such-folder/kv.svg"), "no-such-folder/kv.svg: cannot be written: No such file"),
    (("kv", "llama-3.1-8b", "--from", "9", "--to", "9"), "below the last"),
    (("activations", "llama-3.1-8b", "--dtype", "fp8"), "fp32, bf16 or fp16"),
    (("layers", "gated-mlp"), "no layers"),
    (("layers", "albert-base", "--seq", "64"), "share their weights"),
    (("roofline", "gpt2"), "--flops-per-second 989T"),
    (("roofline", "gpt2", "--flops-per-second", "1T"), "--bytes-per-second 3.35T"),
    (("roofline", "rmsnorm", *RATES), "nothing here multiplies"),
    (("--json", "params", "gpt2"), "behind the picture's name"),
])  # fmt: skip
def test_refusals(words, said):
    assert said in refused(*words)


def test_without_matplotlib_only_files_are_refused(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "blockcalc.plots.image", raising=False)
    monkeypatch.delitem(sys.modules, "blockcalc.plots.panel", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert refused("params", "gpt2", "-o", tmp_path / "a.png") == (
        "blockcalc: plot -o needs matplotlib: pip install 'blockcalc[plot]'"
    )
    assert run("params", "gpt2").exit_code == 0


@pytest.mark.parametrize("words", [["params", "gpt2"], ["plot"], ["plot", "kv", "gpt2"], ["plot", "kv", "gpt2", "--json"]])
def test_only_a_file_loads_matplotlib(words):
    code = (
        f"import sys\nfrom blockcalc.cli import main\ntry:\n    main({words!r})\nexcept SystemExit: pass\n"
        "assert not {'matplotlib', 'sympy', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
