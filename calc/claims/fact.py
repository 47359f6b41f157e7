"""A finding of the engine beside what an article prints, and whether the two agree."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import sympy

from ..catalogue import BLOCKS
from ..dims import symbol
from ..model import Model
from ..readers import load
from ..readers.families import FAMILIES
from ..symbolic import formula
from ..tables import presets
from ..tables.claims.claim import Says
from ..tensor import Step
from ..text import text

B, D, E, F, H, K, L, M, N, R, S, T = (symbol(letter) for letter in "BDEFHKLMNRST")


class Between(NamedTuple):
    """A printed range, its ends included."""

    low: Any
    high: Any


class Fact(NamedTuple):
    """What was counted: its closed form (none for what is only listed), its value, what the article prints, and the verdict."""

    what: str
    formula: str | None
    value: Any
    claimed: Any
    agrees: bool | None
    says: Says


def fact(what: str, value: Any, claimed: Any = None, *, of: Any = None, condition: bool = False) -> Fact:
    """A finding: a number, a word, or a closed form; *of* is the closed form that a number comes from.

    *claimed* is compared exactly, but for a Decimal, which holds if the value rounds to it at its last digit, and a range.
    *condition*: it is the claim under its named condition.
    """
    value = _exact(value)
    symbolic = isinstance(value, sympy.Expr)
    form = value if of is None and symbolic else of
    shown = None if form is None else form if isinstance(form, str) else text(form)
    agrees = None if claimed is None else same(value, claimed)
    says: Says = "aside"
    if agrees is not None:
        says = ("condition" if agrees else "broken") if condition else ("for" if agrees else "against")
    return Fact(what, shown, text(value) if symbolic else value, _printed(claimed), agrees, says)


def _exact(value: Any) -> Any:
    """sympy's numbers as Python's, and its expressions simplified."""
    if not isinstance(value, sympy.Basic):
        return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value
    value = sympy.factor(value)
    if value.is_Integer:
        return int(value)
    return Fraction(int(value.p), int(value.q)) if value.is_Rational else value


def _printed(claimed: Any) -> Any:
    if isinstance(claimed, Between):
        return f"{float(claimed.low):g} to {float(claimed.high):g}"
    return text(claimed) if isinstance(claimed, sympy.Expr) else claimed


def same(value: Any, claimed: Any) -> bool:
    """Whether a value is the one claimed."""
    if isinstance(claimed, Decimal):
        unit = Fraction(10) ** int(claimed.as_tuple().exponent)
        return abs(Fraction(value) - Fraction(claimed)) <= unit / 2
    if isinstance(claimed, Between):
        return bool(claimed.low <= value <= claimed.high)
    if isinstance(value, sympy.Expr) or isinstance(claimed, sympy.Expr):
        return bool(sympy.simplify(value - claimed) == 0)
    return bool(value == claimed)


# -- what the engine is asked ------------------------------------------------------------------------------------------


def form(subject: Any, quantity: str = "params", **sizes: Any) -> Any:
    """The closed form of a block's or a component's quantity, other sizes put in for some of its letters."""
    expr = formula(subject, quantity).expr
    return expr.subs({symbol(letter): size for letter, size in sizes.items()}, simultaneous=True)


def elements(subject: Any, **sizes: Any) -> Any:
    """Cached elements of one layer and one token."""
    return sympy.expand(form(subject, "kv", **sizes) / (2 * B * S))  # two bytes each


def weights_of(block: str, **sizes: Any) -> Any:
    """A block's parameters without those of its norms."""
    letters = {letter: sizes.get(letter.upper(), symbol(letter.upper())) for letter in BLOCKS[block].sizes}
    made: Any = BLOCKS[block].make(**letters)
    norms = sum(form(branch.before or branch.outer) for branch in made.branches)
    return sympy.expand(form(made) - norms)


def model(name: str, **changes: Any) -> Model:
    """A preset, or a family at its default sizes."""
    is_family = name in FAMILIES and name not in presets()
    return load({"model_type": name} if is_family else name, changes)


def counts(subject: Model | str) -> Any:
    """A model's parameter counts."""
    found = model(subject) if isinstance(subject, str) else subject
    return found.budget(Step.forward(1, 64)).parameters()


def parts(subject: Model | str, *words: str) -> int:
    """Parameters of the components that have one of the words as a part of their path."""
    found = model(subject) if isinstance(subject, str) else subject
    leaves = found.budget(Step.forward(1, 64)).components()
    return sum(leaf.params for leaf in leaves if set(words) & set(leaf.path.split(".")))


def pieces(component: Any, kind: type) -> list[Any]:
    """Every component of a kind inside another, in the order of its fields."""
    if isinstance(component, tuple):
        return [found for item in component for found in pieces(item, kind)]
    if not is_dataclass(component) or isinstance(component, type):
        return []
    own = [component] if isinstance(component, kind) else []
    return own + [found for field in fields(component) for found in pieces(getattr(component, field.name), kind)]


def layers(subject: Model | str) -> int:
    """Layers of a model's main stack."""
    found = model(subject) if isinstance(subject, str) else subject
    return sum(layer.l for layer in found.stack.layers)


def ratio(a: Any, b: Any) -> Any:
    """a / b, exact."""
    return Fraction(a, b) if type(a) is int and type(b) is int else sympy.factor(a / b)


def year(component: Any, word: str = "") -> int:
    """The year of the first arXiv number that a component's docstring cites behind a word."""
    return years(component.__doc__.partition(word)[2] if word else component.__doc__)[0]


def years(citations: str) -> list[int]:
    """The years of the arXiv numbers in a text."""
    return [2000 + int(found) for found in re.findall(r"arXiv:(\d\d)\d\d\.", citations)]
