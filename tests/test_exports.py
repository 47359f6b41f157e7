"""Each export that computes is run in its own language, at every block and a dozen families: what the ledgers count."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache

import exported
import numpy
import pytest
import sympy
from exported import NODE, largest, run

from blockcalc import InputError, formula, trace, widths
from blockcalc.catalogue import BLOCKS
from blockcalc.exports import FORMATS, export, python
from blockcalc.exports.about import identifier, names
from blockcalc.exports.excel import cell_names
from blockcalc.symbolic import QUANTITIES
from blockcalc.tensor import Step
from blockcalc.whole import Quotient, bounds, divides, fraction

GCC = shutil.which("gcc")

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")


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


def windowed(quantity):
    """The cache that transformers keeps of a window: its closed form, and what the ledger counts at three windows."""
    entry, read, b, s = BLOCKS["window"], QUANTITIES[quantity].read, 2, 9
    sizes = [{"d": 13, "n": 6, "k": 3, "h": 5, "w": w} for w in (1, 2, 7)]
    budgets = [trace(component, Step.prefill(b, s), width) for component, width in map(entry.build, sizes)]
    counted = [read(budget, widths("bf16"), "torch", "transformers") for budget in budgets]
    return formula("window", quantity, policy="transformers"), {"B": b, "H": 5, "K": 3, "S": s}, counted


@pytest.mark.parametrize("quantity", ["kv", "kv_per_token"])
def test_a_window_of_1_has_another_closed_form_and_is_refused_in_every_language(quantity, tmp_path):
    made, sizes, (whole, *right) = windowed(quantity)
    sizes = {name: size for name, size in sizes.items() if name in names(made)}
    python_, numpy_ = (defined(export(made, form), {}) for form in ("python", "numpy"))
    assert whole == {"kv": 4 * 2 * 3 * 5 * 9, "kv_per_token": 4 * 3 * 5}[quantity]
    assert [python_(**sizes, W=w) for w in (2, 7)] == numpy_(**sizes, W=numpy.array([2, 7])).tolist() == right
    for function, w in ((python_, 1), (numpy_, 1), (numpy_, numpy.array([7, 1]))):
        with pytest.raises(ValueError, match="W: a window of 1 is cached whole, which is another closed form"):
            function(**sizes, W=w)
    head, cells = export(made, "excel").partition("+N(")[0], cell_names(made)
    assert [shown(head, {cells[name]: size for name, size in {**sizes, "W": w}.items()}) for w in (1, 2, 7)] == ["#N/A", *right]
    if NODE:
        given = ", ".join(f"{name}: {size}n" for name, size in sizes.items())
        asked = f"try {{ return String({identifier(made)}({{ {given}, W: w }})); }} catch (error) {{ return error.name; }}"
        program = f"{export(made, 'javascript')}\nconsole.log([1n, 2n, 7n].map((w) => {{ {asked} }}).join());"
        assert run([NODE, "-"], program).strip() == ",".join(["RangeError", *map(str, right)])
    if GCC:
        given = ", ".join(map(str, sizes.values()))
        body = "__int128 r; for (int w = 1; w < 8; w += w == 1 ? 1 : 5)"
        main = f"int main(void) {{ {body} printf(\"%d \", {identifier(made)}({given}, w, &r) ? (int) r : -1); return 0; }}"
        (tmp_path / "one.c").write_text(f"#include <stdio.h>\n{export(made, 'c')}\n{main}", encoding="utf-8")
        run([GCC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / "one"), str(tmp_path / "one.c")])
        assert [int(word) for word in run([str(tmp_path / "one")]).split()] == [-1, *right]


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
