"""The tree of components: it adds up in every quantity, what is put in gives the value, and every line has its paper."""

import csv
import io
import math
import re
from fractions import Fraction

import pytest
from test_cli import ask, refused, run

from blockcalc import Kernels, Step, UndefinedError, load
from blockcalc.blocks.attention import Attention
from blockcalc.breakdown import How, budget_of, measure, step_of
from blockcalc.budget import widths
from blockcalc.catalogue import BLOCKS
from blockcalc.explain import RULES, Subject, explain, rule, select, source
from blockcalc.model import trace
from blockcalc.quantities import QUANTITIES
from blockcalc.tables import presets
from blockcalc.tables.tree import percent

MODELS = ["gpt2", "gemma-2-2b", "mixtral-8x7b", "deepseek-v3", "bert-base", "t5-v1.1-base", "whisper-tiny", "gpt-oss-20b"]


def every(node):
    yield node
    for child in node.children:
        yield from every(child)


def evaluated(text):
    """The number that a formula with numbers put in stands for."""
    for digit, power in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True):
        text = text.replace(digit, f"**{power}")
    for sign, words in {"·": "*", "^": "**", "⌊": "math.floor(", "⌈": "math.ceil(", "⌋": ")", "⌉": ")"}.items():
        text = text.replace(sign, words)
    text = re.sub(r"(?<![*]{2})\b\d+", r"Fraction(\g<0>)", text)
    return eval(text, {"math": math, "min": min, "max": max, "Fraction": Fraction})


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("model", MODELS)
def test_children_sum_to_their_parent_and_the_root_is_the_budget(model, quantity):
    subject = load(model)
    try:
        total = measure(budget_of(subject, step_of(quantity, 3, 40, 70), How(), None), quantity, How())
    except UndefinedError:
        with pytest.raises(UndefinedError):
            explain(Subject.of(model, subject), 3, 40, context=70, quantities=(quantity,))
        return
    root = explain(Subject.of(model, subject), 3, 40, context=70, quantities=(quantity,))
    assert root.amounts[quantity].value == total
    for node in every(root):
        amount = node.amounts[quantity]
        assert evaluated(amount.put_in) == amount.value, (node.path, amount)
        assert amount.share == Fraction(amount.value, total or 1)
        if node.children:
            assert sum(child.amounts[quantity].value for child in node.children) == amount.value
            assert sum(child.amounts[quantity].share for child in node.children) == amount.share


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_and_the_paper_of_each_of_its_lines(block):
    component, width = BLOCKS[block].build({})
    asked = ("params", "flops", "activations")
    root = explain(Subject.block(block, {}), 2, 24, quantities=asked)
    budget = trace(component, Step.train(2, 24), width)
    assert root.amounts["params"].value == budget.parameters().total
    assert root.amounts["flops"].value == 2 * budget.work().forward
    assert root.amounts["activations"].value == budget.activations(widths("bf16")).bytes
    for node in root.leaves():
        assert all(evaluated(amount.put_in) == amount.value for amount in node.amounts.values())
        if node.path != "buffers":
            assert node.rule.partition(": ")[2], node.path
            assert re.search(r"arXiv:\d{4}\.\d{5}|github\.com/", node.source), (node.path, node.source)


def test_every_line_of_every_preset_names_its_paper_or_says_that_it_has_none():
    for model in presets():
        for line in load(model).budget(Step.train(1, 8)).lines:
            assert re.search(r"arXiv:|github\.com/|No paper of its own", source(line.origin)), (model, line)
            if line.weights or line.forward or line.saved:
                assert rule(line), (model, line)


def test_the_rules_are_those_of_the_tape():
    for name, method in RULES.items():
        assert method.__doc__, name
    lines = {line.path: line for line in load("gpt2").budget(Step.train(1, 8), Kernels(attention="flash")).lines}
    assert rule(lines["decoder.layer.attention.q"]).startswith("linear: x times a weight")
    assert rule(lines["decoder.layer.attention_norm"]).startswith("layer norm: A gain and a bias")
    assert rule(lines["decoder.layer.attention.flash"]).startswith("flash: One kernel")
    assert "rms norm" in rule(load("llama-3-8b").budget(Step.forward(1, 1)).lines[1])


def test_the_papers_behind_the_first_paragraph_are_named():
    said = source(Attention)
    assert said.startswith("softmax(QKᵀ/√h + bias)V W_O with n query heads in k groups. Multi-head")
    assert "Vaswani et al. 2017, arXiv:1706.03762, section 3.2" in said
    assert "Parameters 2dnh" not in said
    assert source(None) == "No paper of its own."


def test_a_component_that_is_in_no_catalogue():
    root = explain(Subject.of("mine", Attention(n=6, k=2, h=5), 13), 1, 8)
    assert [child.amounts["params"].put_in for child in root.children if child.amounts["params"].value] == [
        "13·5·6", "13·5·2", "13·5·2", "13·5·6",
    ]  # fmt: skip


def test_a_line_with_lines_below_it_stands_among_them():
    """Whisper's first convolution is followed by an activation of the same name."""
    root = explain(Subject.of("whisper-tiny", load("whisper-tiny")), 1, 8, quantities=("activations",))
    (first,) = select(root, "encoder_embedding.first")
    assert [child.path for child in first.children] == ["encoder_embedding.first (itself)", "encoder_embedding.first.act"]


def test_paths_prefixes_and_globs():
    root = explain(Subject.of("deepseek-v3", load("deepseek-v3")), 1, 8)
    assert [node.path for node in select(root, None)] == ["deepseek-v3"]
    assert [node.path for node in select(root, "decoder.moe")] == ["decoder.moe"]
    assert [node.path for node in select(root, "decoder.*.attention")] == ["decoder.dense.attention", "decoder.moe.attention"]
    assert [node.path for node in select(root, "*.k_?p")] == ["decoder.dense.attention.k_up", "decoder.moe.attention.k_up"]
    assert select(root, "decoder.m") == ()
    assert [child.children for child in root.pruned(1).children] == [()] * len(root.children)
    assert root.pruned(0).children == ()


def test_the_tree_as_json():
    found = ask("explain", "llama-3.1-8b", "decoder.layer.mlp", "--seq", "8")
    (mlp,) = found["tree"]
    assert mlp["path"] == "decoder.layer.mlp"
    assert [child["path"] for child in mlp["children"]] == [f"decoder.layer.mlp.{name}" for name in ("gate", "up", "down")]
    assert [one["path"] for one in found["explained"]] == [child["path"] for child in mlp["children"]]
    first = found["explained"][0]
    assert list(first)[:5] == ["path", "params", "params_put_in", "params_value", "params_share"]
    assert Fraction(first["params_share"]) == Fraction(32 * 4096 * 14336, 8_030_261_248)
    assert (first["component"], first["params"], first["params_put_in"]) == ("GatedMLP", "D·F·L", "4096·14336·32")
    assert "arXiv:2002.05202" in first["source"] and first["rule"].startswith("linear: ")


def test_quantities_and_depth():
    found = ask("explain", "gemma-2-9b", "--quantity", "kv", "--context", "32768", "--depth", "1", "--dtype", "fp8")
    assert found["tree"][0]["kv_value"] == ask("kv", "gemma-2-9b", "--context", "32768", "--dtype", "fp8")["kv_cache"]["bytes"]
    assert [(child["path"], child["children"]) for child in found["tree"][0]["children"]] == [("decoder", [])]
    assert {leaf["path"].rpartition(".")[2] for leaf in found["explained"]} == {"k_cache", "v_cache"}


def test_as_csv_shares_are_exact_and_as_markdown_it_is_one_table():
    rows = list(csv.DictReader(io.StringIO(run("explain", "gpt2", "--csv").stdout)))
    assert sum(Fraction(row["share"]) for row in rows if row["of"] == "params" and row["rule"]) == 1
    assert sum(int(row["value"]) for row in rows if row["of"] == "params" and row["rule"]) == 124_439_808
    assert run("explain", "gpt2", "--markdown").stdout.count("|---") == 8


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("words", [["gpt2"], ["deepseek-v3", "--depth", "3"], ["gpt2", "head.output"]])
def test_every_number_is_whole_at_any_width(words, width):
    lines = run("explain", *words, width=width).stdout
    for row in csv.DictReader(io.StringIO(run("explain", *words, "--csv").stdout)):
        assert f"{int(row['value']):,}" in lines, row


def test_the_tree_for_people():
    lines = run("explain", "llama-3.1-8b", "--quantity", "params").stdout.splitlines()
    assert lines[1].split() == ["llama-3.1-8b", "8,030,261,248", "8.030", "G", "100.0%"]
    assert "│   │   ├── attention       1,342,177,280  1.342 G     16.7%" in [line.rstrip() for line in lines]
    assert any(line.startswith("    └── output ") for line in lines)
    assert "  linear: x times a weight over the axes" in "\n".join(lines)


def test_a_quantity_that_is_nothing_says_so():
    assert "in bytes: 0\n" in run("explain", "bert-base", "--quantity", "kv", "--seq", "512").stdout
    of_the_head = run("explain", "bert-base", "head", "--quantity", "kv", "--quantity", "params", "--seq", "512").stdout
    assert "in bytes: 0\n" in of_the_head and "622,650" in of_the_head


@pytest.mark.parametrize(("words", "warned"), [
    ([], True), (["--seq", "1024"], False), (["--quantity", "params"], False),
    (["--quantity", "kv", "--context", "1024"], False), (["--quantity", "kv", "--context", "1025"], True),
])  # fmt: skip
def test_positions_that_are_not_there_are_warned_of(words, warned):
    assert ("gpt2 has 1024 learned positions" in run("explain", "gpt2", *words).stderr) == warned


@pytest.mark.parametrize(("share", "text"), [
    (Fraction(1), "100.0%"), (Fraction(1, 3), "33.3%"), (Fraction(1, 1000), "0.1%"), (Fraction(1, 30000), "0.003%"),
    (Fraction(0), "0.0%"), (Fraction(999, 1000), "99.9%"), (Fraction(1, 1999), "0.05%"),
])  # fmt: skip
def test_percentages(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(("words", "said"), [
    (["gpt2", "decoder.nothing"], "has no such path"),
    (["gpt2", "head", "--quantity", "kv", "--quantity", "params"], "no such path that adds to kv or params"),
    (["gpt2", "--quantity", "watts"], "quantity 'watts' is not one of"),
    (["gpt2", "--convention", "palm"], "convention palm: a formula of the whole"),
    (["gpt2", "--quantity", "params", "--convention", "pam"], "convention 'pam' is not one of"),
    (["gpt2", "--quantity", "activations", "--dtype", "fp8"], "activations are kept in"),
    (["gpt2", "--seq", "0"], "seq = 0"),
    (["gpt2", "--quantity", "kv", "--context", "0"], "= 0"),
])  # fmt: skip
def test_what_is_refused(words, said):
    line = refused("explain", *words)
    assert said in line
    assert "\n" not in line
