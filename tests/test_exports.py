"""Each export is run in its own language, at every block and a dozen families, and equals what the ledgers count."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from fractions import Fraction
from functools import cache
from pathlib import Path

import exported
import numpy
import pytest
import sympy
from exported import largest

from blockcalc import InputError, formula
from blockcalc.catalogue import BLOCKS
from blockcalc.exports import FORMATS, export, python
from blockcalc.exports.about import identifier, names
from blockcalc.exports.excel import cell_names
from blockcalc.symbolic import QUANTITIES
from blockcalc.whole import Quotient, bounds, divides, fraction

NODE = shutil.which("node")
GCC = shutil.which("gcc")
KATEX = Path(os.environ.get("BLOCKCALC_NODE_MODULES", "node_modules")) / "katex"

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
needs_katex = pytest.mark.skipif(NODE is None or not KATEX.exists(), reason="katex is not in $BLOCKCALC_NODE_MODULES")


@pytest.fixture(scope="module")
def cases():
    return exported.cases()


@pytest.fixture(scope="module")
def distinct(cases):
    """One case of each expression: a reading of the expression alone needs no more."""
    return list({case.formula.expr: case for case in cases}.values())


def test_there_is_a_case_for_every_block_and_quantity_and_results_leave_53_63_and_127_bits(cases):
    found = {(case.formula.subject, case.formula.quantity) for case in cases}
    assert {name for name, _ in found} >= {*BLOCKS, *exported.FAMILIES}
    assert {quantity for _, quantity in found} == set(QUANTITIES)
    assert len({identifier(case.formula) for case in cases}) == len(cases)
    values = [value for case in cases for _, value in case.draws]
    for low, high in ((1, 53), (53, 63), (63, 127), (127, 999)):
        assert sum(2**low <= value < 2**high for value in values) > 50


def calls(cases):
    """Each export's name with the symbols it takes, the sizes, and the value."""
    for case in cases:
        for sizes, value in case.draws:
            yield case, {name: sizes[name] for name in names(case.formula)}, value


# -- functions ---------------------------------------------------------------------------------------------------------

BARE = {"min": min, "max": max, "divmod": divmod, "ValueError": ValueError}


def defined(text, scope):
    exec(text, scope)
    (function,) = (value for key, value in scope.items() if callable(value) and key not in ("numpy", "__builtins__"))
    return function


def test_python(cases):
    """In a namespace with four names and no import."""
    for case in cases:
        function = defined(export(case.formula, "python"), {"__builtins__": BARE})
        assert function.__name__ == identifier(case.formula)
        assert function.__doc__.splitlines()[0].startswith(f"{case.formula.quantity} of {case.formula.subject}, in")
        for sizes, value in case.draws:
            given = [sizes[name] for name in names(case.formula)]
            found = function(*given)
            assert type(found) is int and found == value, (case.formula, sizes)


def test_numpy_is_exact_or_raises(cases):
    raised = 0
    for case in cases:
        function = defined(export(case.formula, "numpy"), {})
        for sizes, value in case.draws:
            arrays = {name: numpy.array([sizes[name], sizes[name]]) for name in names(case.formula)}
            if largest(case, sizes) >= 2**63:
                with pytest.raises(OverflowError, match="past the 2\\*\\*63"):
                    function(**arrays)
                raised += 1
            else:
                found = numpy.asarray(function(**arrays))
                assert found.dtype == numpy.int64 and (found == value).all(), (case.formula, sizes)
    assert raised > 100


def test_numpy_refuses_what_is_no_size():
    function = defined(export(formula("gqa", "kv"), "numpy"), {})
    sizes = dict(B=1, H=2, K=3, S=numpy.arange(1, 9))
    assert function(**sizes).tolist() == [24 * s for s in range(1, 9)]
    assert function(**{**sizes, "S": numpy.zeros(0, dtype=int)}).shape == (0,)
    assert function(B=1, H=2, K=numpy.arange(1, 4)[:, None], S=numpy.arange(1, 9)).shape == (3, 8)
    with pytest.raises(TypeError, match="S: an array of float64"):
        function(**{**sizes, "S": numpy.array([1.0])})
    with pytest.raises(ValueError, match="S: from 0"):
        function(**{**sizes, "S": numpy.array([0])})
    with pytest.raises(OverflowError):
        function(**{**sizes, "S": numpy.array([2**63], dtype=numpy.uint64)})


def run(words, text=None):
    """What a program prints; it must end well."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@needs_node
def test_javascript(cases, tmp_path):
    asked = [(identifier(case.formula), sizes, value) for case, sizes, value in calls(cases)]
    lines = [export(case.formula, "javascript") for case in cases]
    lines.append("const found = [];")
    for name, sizes, _ in asked:
        given = ", ".join(f"{symbol}: {size}n" for symbol, size in sizes.items())
        lines.append(f"found.push({name}({f'{{ {given} }}' if given else ''}));")
    lines.append('const whole = found.every((one) => typeof one === "bigint");')
    lines.append("console.log(JSON.stringify([whole, found.map(String)]));")
    file = tmp_path / "all.js"
    file.write_text('"use strict";\n' + "\n".join(lines), encoding="utf-8")
    whole, found = json.loads(run([NODE, str(file)]))
    assert whole
    for (name, sizes, value), text in zip(asked, found, strict=True):
        assert int(text) == value, (name, sizes)


MAIN = """
#include <stdio.h>
static void show(bool fits, __int128 result) {
    const unsigned __int128 bits = (unsigned __int128) result;
    printf("%d %016llx%016llx\\n", fits, (unsigned long long) (bits >> 64), (unsigned long long) bits);
}
int main(void) {
    bool fits;
    __int128 result;
"""


@needs_gcc
def test_c_is_exact_or_says_that_it_does_not_fit(cases, tmp_path):
    asked = list(calls(cases))
    lines = [export(case.formula, "c") for case in cases] + [MAIN]
    for case, sizes, _ in asked:
        given = ", ".join([*(f"{size}LL" for size in sizes.values()), "&result"])
        lines.append(f"    fits = {identifier(case.formula)}({given}); show(fits, fits ? result : 0);")
    file, program = tmp_path / "all.c", tmp_path / "all"
    file.write_text("\n".join([*lines, "    return 0;", "}"]), encoding="utf-8")
    run([GCC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O0", "-o", str(program), str(file)])
    refused = 0
    for (case, sizes, value), line in zip(asked, run([str(program)]).splitlines(), strict=True):
        fits, bits = line.split()
        if fits == "1":
            result = int(bits, 16)
            assert (result - 2**128 if result >= 2**127 else result) == value, (case.formula, sizes)
        else:
            refused += 1
            assert largest(case, {**dict.fromkeys(sizes, 1), **sizes}) >= 2**127, (case.formula, sizes)
        assert fits == "0" or -(2**127) <= value < 2**127
    assert refused > 100


UNDIVIDED = formula("relative-keys", "params")
"""2·D·(2·D·N + M)/N, which is no whole number at D = 3, M = 1, N = 4."""


def test_a_size_that_does_not_divide_is_refused_in_python_and_numpy():
    with pytest.raises(ValueError, match="not a whole number"):
        defined(export(UNDIVIDED, "python"), {})(D=3, M=1, N=4)
    with pytest.raises(ValueError, match="not a whole number"):
        defined(export(UNDIVIDED, "numpy"), {})(D=3, M=1, N=4)


@needs_node
def test_a_size_that_does_not_divide_is_refused_in_javascript_as_is_a_missing_one():
    text = export(UNDIVIDED, "javascript") + """
    const said = [{ D: 3n, M: 1n, N: 4n }, { D: 3n, M: 1n }, { D: 3, M: 1, N: 4 }].map((sizes) => {
      try { return String(relative_keys_params(sizes)); } catch (error) { return error.name; }
    });
    console.log(said.join());
    """
    assert run([NODE, "-"], text).strip() == "RangeError,TypeError,TypeError"


@needs_gcc
def test_a_size_that_does_not_divide_is_refused_in_c(tmp_path):
    main = "\n#include <stdio.h>\nint main(void) { __int128 r; printf(\"%d\", relative_keys_params(3, 1, 4, &r)); return 0; }"
    file, program = tmp_path / "one.c", tmp_path / "one"
    file.write_text(export(UNDIVIDED, "c") + main, encoding="utf-8")
    run([GCC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(file)])
    assert run([str(program)]) == "0"


# -- a spreadsheet -----------------------------------------------------------------------------------------------------


@cache
def cell(text):
    """A cell's formula as a function of its names in alphabetical order."""
    import formulas

    return formulas.Parser().ast(text)[1].compile()


def shown(text, sizes):
    """What the cell shows: a number, or an error's name."""
    function = cell(text)
    found = numpy.ravel(numpy.asarray(function(*(float(sizes[name]) for name in function.inputs)), dtype=object))[0]
    return found if isinstance(found, float | int) else str(found)


def test_excel_is_exact_below_2_to_the_53_and_not_available_from_there(cases, distinct):
    heads = {}
    for case in cases:
        text = export(case.formula, "excel")
        assert len(text) <= 8192
        assert all(len(note) <= 255 for note in re.findall(r'N\("([^"]*)"\)', text))
        assert heads.setdefault(case.formula.expr, text.partition("+N(")[0]) == text.partition("+N(")[0]
    blank = 0
    for case in distinct:
        cells = cell_names(case.formula)
        for sizes, value in case.draws:
            found = shown(heads[case.formula.expr], {cells[name].upper(): sizes[name] for name in cells})
            if cells and largest(case, sizes) >= 2**53:
                assert found == "#N/A", (case.formula, sizes)
                blank += 1
            else:
                assert found == value == int(found), (case.formula, sizes)
    assert blank > 100


def test_the_notes_of_a_cell_add_nothing_and_say_where_it_is_exact():
    text = export(formula("gqa", "params"), "excel")
    assert "exact below 2^53" in text
    assert shown(text, dict(D=1, H=2, K=3, N=4)) == 2 * 1 * 2 * 7


def test_a_name_that_excel_reads_as_a_cell_is_renamed_and_said():
    symbols = [sympy.Symbol(name, integer=True, positive=True) for name in ("R", "C", "L1", "T2", "R1C1", "L_1", "B", "R_")]
    made = formula("gqa")._replace(expr=sympy.Add(*symbols), meanings={}, units={})
    assert cell_names(made) == {
        "B": "B", "C": "C_", "L1": "L1_", "L_1": "L_1", "R": "R__", "R1C1": "R1C1_", "R_": "R_", "T2": "T2_",
    }  # fmt: skip
    assert "L1_ is L1" in export(made, "excel")
    assert shown(export(made, "excel"), {name.upper(): 3 for name in cell_names(made).values()}) == 24


# -- for reading -------------------------------------------------------------------------------------------------------


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

    read = cache(lambda text: parse_latex(text, backend="lark"))
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


# -- what they say, and what they refuse -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["python", "numpy", "javascript", "c", "excel"])
def test_an_export_says_whose_quantity_it_is_and_what_its_symbols_mean(form):
    flops = export(formula("gqa", "flops", convention="exact"), form)
    parts = "flops of gqa, in FLOPs: a forward pass", "D: model width, in elements", "convention exact: 2 × multiply-adds"
    assert all(part in flops for part in parts)
    assert "dtype bf16" not in flops
    kept = export(formula("gqa", "activations", dtype="fp32"), form)
    assert "activations of gqa, in bytes" in kept and "dtype fp32" in kept and "convention" not in kept


NAMES = ['a"""b', "x*/ int y; /*", "back\\slash\nline", "quote'\"", "=1+1", "3d", "</math>", "é/ü.json"]


@pytest.mark.parametrize("name", NAMES)
def test_a_user_s_file_name_ends_no_comment_and_no_string(name, tmp_path):
    made = formula("mha")._replace(subject=name)
    assert defined(export(made, "python"), {"__builtins__": BARE})(D=3) == 36
    assert int(defined(export(made, "numpy"), {})(D=3)) == 36
    assert shown(export(made, "excel"), {"D": 3}) == 36
    assert identifier(made).isidentifier()
    if NODE:
        call = f"console.log(String({identifier(made)}({{ D: 3n }})));"
        assert run([NODE, "-"], f"{export(made, 'javascript')}\n{call}") == "36\n"
    if GCC:
        (tmp_path / "one.c").write_text(export(made, "c"), encoding="utf-8")
        run([GCC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-c", "-o", str(tmp_path / "one.o"), str(tmp_path / "one.c")])


def test_an_unknown_format_is_refused():
    with pytest.raises(InputError, match="format 'fortran' is not one of text, latex"):
        export(formula("mha"), "fortran")


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("text", "latex", "mathml", "sympy")])
def test_what_is_no_arithmetic_on_whole_numbers_is_refused(form):
    D, S = (sympy.Symbol(name, integer=True, positive=True) for name in "DS")
    for expr in (sympy.sqrt(D), D / (S - 1), sympy.log(D), sympy.Piecewise((D, (S > 1) & (S < 9)), (S, True))):
        with pytest.raises(InputError):
            export(formula("mha")._replace(expr=expr), form)


def test_what_is_proven_to_divide():
    D, S, T = (sympy.Symbol(name, integer=True, positive=True) for name in "DST")
    assert divides(T * (T + 1), sympy.Integer(2))
    assert divides(D**3 + 2 * D, sympy.Integer(3))
    assert divides(sympy.Min(S, T) * (sympy.Min(S, T) - 1) + 2 * D, sympy.Integer(2))
    assert not divides(T * (T + 2), sympy.Integer(2))
    assert not divides(D * S, D)
    assert fraction(T * (T + 1) / 2 + D / 3) == (2 * D + 3 * T * (T + 1), 6)


def test_bounds_hold_for_every_number_on_the_way():
    S, T = (sympy.Symbol(name, integer=True, positive=True) for name in "ST")
    assert bounds(S**2 - T) == (S**2 + T,)
    assert set(bounds(sympy.Min(S**2, T))) == {sympy.Min(S**2, T), S**2}
    assert bounds(sympy.Min(S - 9, T))[0] == sympy.Max(S + 9, T)
    assert set(bounds(Quotient(S * T, T + 1))) == {S * T, T + 1}


# -- a broken printer is noticed ---------------------------------------------------------------------------------------


def wrong(cases):
    """How many cases the Python exports get wrong, or cannot run at all."""
    count = 0
    for case in cases:
        try:
            function = defined(export(case.formula, "python"), {"__builtins__": BARE})
            count += any(function(*(sizes[n] for n in names(case.formula))) != value for sizes, value in case.draws)
        except (SyntaxError, ValueError, NameError):
            count += 1
    return count


@pytest.mark.parametrize(("owner", "name", "broken"), [
    (python.Printer, "parenthesize", lambda self, item, level, strict=False: self._print(item)),
    (python.Printer, "_print_Min", lambda self, expr: f"max({', '.join(map(self._print, expr.args))})"),
    (python.Printer, "_print_Quotient", lambda self, expr: f"-(-{self._print(expr.args[0])} // ({self._print(expr.args[1])}))"),
    (python, "fraction", lambda expr: (sympy.fraction(sympy.together(expr))[0], sympy.S.One)),
    (python, "fraction", lambda expr: (sympy.Add(*(Quotient(*fraction(t)) for t in sympy.expand(expr).as_ordered_terms())), 1)),
])  # fmt: skip
def test_a_broken_printer_is_noticed(owner, name, broken, monkeypatch):
    """Without parentheses; the larger for the smaller; rounded up; the denominator lost; each term divided on its own."""
    made = list(exported.made_up())
    assert wrong(made) == 0
    monkeypatch.setattr(owner, name, broken)
    assert wrong(made) > 0
