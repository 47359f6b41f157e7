"""What every exported function says of itself: whose quantity it is, its unit, its symbols, and what its meaning depends on."""

from __future__ import annotations

import re
import unicodedata

from ..convention import CONVENTIONS
from ..quantities import QUANTITIES
from ..symbolic import Formula
from ..symbolic import windows as wide

WINDOW = "a window of 1 is cached whole, which is another closed form"
"""Why a size of :func:`windows` is refused."""


def identifier(formula: Formula) -> str:
    """A name of letters, digits and underscores that no language forbids: ``gated_mlp_params``."""
    plain = unicodedata.normalize("NFKD", formula.subject).encode("ascii", "ignore").decode()
    words = "_".join(re.findall(r"[A-Za-z0-9]+", plain)).lower()
    name = f"{words}_{formula.quantity}".strip("_")
    return f"_{name}" if name[0].isdigit() else name


def names(formula: Formula) -> list[str]:
    """The symbols in alphabetical order, in which every function takes them."""
    return sorted(map(str, formula.expr.free_symbols))


def windows(formula: Formula) -> list[str]:
    """The symbols that have to be 2 at least."""
    return wide(formula.conditions.get("policy"), names(formula))


def title(formula: Formula) -> str:
    """``params of gated-mlp, in parameters: all parameters, a tied one once``."""
    asked = QUANTITIES[formula.quantity]
    return _printable(f"{formula.quantity} of {formula.subject}, in {formula.unit}: {asked.meaning}")


def symbols(formula: Formula) -> list[str]:
    """A line a symbol, with what it counts where its meaning does not say so: ``D: model width, in elements``."""
    lines = []
    for symbol, meaning in sorted(formula.meanings.items(), key=lambda item: str(item[0])):
        unit = formula.units.get(symbol, "")
        lines.append(f"{symbol}: {meaning}" + (f", in {unit}" if unit not in meaning else ""))
    return lines


def conditions(formula: Formula) -> list[str]:
    """A line for each option that the meaning depends on."""
    lines = []
    for option, value in formula.conditions.items():
        convention = CONVENTIONS[value] if option == "convention" else None
        lines.append(f"{option} {value}" + (f": {convention.formula}; {convention.counts}" if convention else ""))
    return lines


def about(formula: Formula) -> list[str]:
    """Title, formula, symbols and conditions, a line each, free of what could end a comment or a string."""
    return [title(formula), _printable(formula.text()), *symbols(formula), *conditions(formula)]


def _printable(text: str) -> str:
    """A user's file name may stand in it: no line breaks, quotes, backslashes or ends of comments."""
    kept = "".join(c if c.isprintable() else "_" for c in text)
    return kept.replace("\\", "/").replace('"', "'").replace("/*", "/ *").replace("*/", "* /")
