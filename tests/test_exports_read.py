"""Exports for reading (text, LaTeX, MathML, sympy), read again as arithmetic: they equal what the ledgers count."""

from __future__ import annotations

import json
import math
import os
import re
import xml.etree.ElementTree as ET
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import sympy
from exported import NODE, run

from blockcalc.exports import export

KATEX = Path(os.environ.get("BLOCKCALC_NODE_MODULES", "node_modules")) / "katex"

needs_katex = pytest.mark.skipif(NODE is None or not KATEX.exists(), reason="katex is not in $BLOCKCALC_NODE_MODULES")


def evaluated(code, sizes):
    """Python's reading of a formula over exact fractions."""
    scope = {name: Fraction(size) for name, size in sizes.items()}
    return eval(code, {"__builtins__": {}, "min": min, "max": max, "floor": math.floor, "ceil": math.ceil}, scope)


def test_text_reads_as_it_computes(distinct):
    small = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    for case in distinct:
        code = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda match: f"**{match[0].translate(small)}", export(case.formula, "text"))
        code = re.sub(r"\{(.+?) if (.+?)(?:; (.+?) if (.+?))?; (.+?) otherwise\}", _branches, code)
        for sign, call in (("⌊", "floor("), ("⌈", "ceil("), ("⌋", ")"), ("⌉", ")"), ("·", "*")):
            code = code.replace(sign, call)
        for sizes, value in case.draws:
            assert evaluated(code, sizes) == value, (code, sizes)


def _branches(match):
    first, when, second, then, otherwise = match.groups()
    inner = otherwise if second is None else f"(({second}) if {then} else ({otherwise}))"
    code = re.sub(r"Eq\((\w+), (\w+)\)", r"\1 == \2", f"(({first}) if {when} else {inner})")
    return code


def test_sympy_gives_back_the_same_expression(cases):
    scope = {}
    exec("from sympy import *", scope)
    for case in cases:
        assert eval(export(case.formula, "sympy"), scope) == case.formula.expr


# LaTeX, spelled out: a grammar of juxtaposition cannot tell T (D + 1) from a function T, so products get their sign.
_PRODUCT = re.compile(r"(?<=[\w})])(?<!\\lfloor)(?<!\\lceil)(?<!cdot) (?=[A-Z0-9(]|\\frac|\\min|\\max|\\lfloor|\\lceil)")


LATEX = {
    r"\cdot": "*", r"\min": "min", r"\max": "max",
    r"\lfloor{": "floor(", r"}\rfloor": ")", r"\lceil{": "ceil(", r"}\rceil": ")",
}  # fmt: skip


def spelled(latex):
    latex = re.sub(r"_\{\\text\{([^}]*)\}\}", lambda match: f"_{{{match[1].replace(' ', '')}}}", latex)
    return _PRODUCT.sub(r" \\cdot ", re.sub(r"\\left(?=[(\\])|\\right(?=[)\\])", "", latex))


def test_latex_reads_as_it_computes(distinct):
    for case in distinct:
        code = spelled(export(case.formula, "latex"))
        if "cases" in code:
            continue
        for sign, call in LATEX.items():
            code = code.replace(sign, call)
        code = re.sub(r"_\{(\w+)\}", r"_\1", re.sub(r"\^\{(\d+)\}", r"**\1", code))
        while r"\frac" in code:
            code = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", code)
        for sizes, value in case.draws:
            given = {letter.partition("_")[0] + letter.partition("_")[1] + letter.partition("_")[2].replace("_", ""): size
                     for letter, size in sizes.items()}  # fmt: skip
            assert evaluated(code, given) == value, (code, sizes)


def test_sympy_s_own_reader_of_latex_agrees(distinct):
    """Its grammar knows no branches. It is slow, so that inner sums are read once, and some quantities stand for all."""
    from sympy.parsing.latex import parse_latex

    @cache
    def read(text):
        found = parse_latex(text, backend="lark")
        if isinstance(found, sympy.Expr):
            return found
        (only,) = set(found.children)  # of several ways to read it that mean the same
        return only

    counted = {"params", "train_flops", "kv", "activations"}
    checked = 0
    for case in distinct:
        text = spelled(export(case.formula, "latex"))
        if "cases" in text or (case.formula.quantity not in counted and "made-up" not in case.formula.subject):
            continue
        groups = []

        def held(match, groups=groups):
            groups.append(read(match[1]))
            return f"Z_{{{'abcdefghijklmnopqrstuvwxyz'[len(groups) - 1]}}}"

        before = None
        while before != text:
            before, text = text, re.sub(r"(?<!min)(?<!max)\(([^()]*)\)", held, text)
        found = read(text)
        assert isinstance(found, sympy.Expr), text
        for place in reversed(range(len(groups))):
            found = found.subs(sympy.Symbol(f"Z_{{{'abcdefghijklmnopqrstuvwxyz'[place]}}}"), groups[place])
        sizes, value = case.draws[0]
        by_name = {re.sub(r"\W", "", name): size for name, size in sizes.items()}
        put_in = {symbol: by_name[_plain(str(symbol), by_name)] for symbol in found.free_symbols}
        assert found.subs(put_in) == value, (text, sizes)
        checked += 1
    assert checked > 100


def _plain(name, by_name):
    bare = re.sub(r"[{}]", "", name)
    return next(known for known in by_name if known.replace("_", "") == bare.replace("_", ""))


@needs_katex
def test_katex_reads_all_of_it(cases):
    formulas = sorted({export(case.formula, "latex") for case in cases})
    program = f"""
    const katex = require({json.dumps(str(KATEX.resolve()))});
    const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const options = {{ throwOnError: true, strict: "error", displayMode: true }};
    console.log(formulas.map((one) => katex.renderToString(one, options)).filter((html) => html.includes("katex-html")).length);
    """
    assert int(run([NODE, "-e", program], json.dumps(formulas))) == len(formulas)


MATHML = "{http://www.w3.org/1998/Math/MathML}"
ARITY = {"mfrac": 2, "msup": 2, "msub": 2}
ROWS = {"math", "mrow", "mtable", "mtr", "mtd"}
LEAVES = {"mi", "mn", "mo", "mtext"}
SIGNS = {"\u2062": "*", "\u2061": "", "⌊": "floor(", "⌋": ")", "⌈": "ceil(", "⌉": ")", "≥": ">=", "=": "=="}


def python_of(node):
    """An element as Python code; its structure is checked on the way."""
    tag, children = node.tag.removeprefix(MATHML), list(node)
    if tag in LEAVES:
        assert node.text and not children, tag
        return SIGNS.get(node.text, node.text)
    assert not (node.text or "").strip(), (tag, node.text)
    assert len(children) == ARITY[tag] if tag in ARITY else tag in ROWS, tag
    if tag == "mfrac":
        return "(({})/({}))".format(*map(python_of, children))
    if tag == "msup":
        return "({})**({})".format(*map(python_of, children))
    if tag == "msub":
        return f"{python_of(children[0])}_{children[1].text.replace(' ', '_')}"
    if tag == "mrow" and children and children[0].text == "{":
        return branches_of(children[1])
    inner = "".join(map(python_of, children))
    return f"({inner})" if tag == "math" else inner


def branches_of(table):
    code = "None"
    for row in reversed(list(table)):
        branch, condition = row
        words = [python_of(part) for part in condition]
        code = f"({python_of(branch)})" if words == ["otherwise"] else f"(({python_of(branch)}) if {words[1]} else {code})"
    return code


def test_mathml_is_valid_and_reads_as_it_computes(distinct):
    for case in distinct:
        text = export(case.formula, "mathml")
        assert not re.search(r"&(?!lt;|gt;|amp;|#)", text)
        root = ET.fromstring(text)
        assert root.tag == f"{MATHML}math"
        assert root.attrib == {"display": "block"}
        code = python_of(root)
        for sizes, value in case.draws:
            assert evaluated(code, sizes) == value, (code, sizes)
