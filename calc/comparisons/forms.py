"""A table once more on symbols: the same rows and quantities, as closed forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..tables.table import Table
from .comparison import Quantity, tabulate


def formulas(
    title: str,
    first: str,
    rows: Iterable[tuple[str, Any]],
    quantities: Iterable[Quantity],
    notes: Iterable[str] = (),
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """The quantities of rows whose sizes are symbols, in one line of text each; what the symbols mean stands below.

    *meanings* are of letters that here mean something else than in the notation.
    """
    from ..symbolic import MEANINGS, tidy
    from ..text import text

    seen: set[str] = set()

    def form(quantity: Quantity) -> Quantity:
        def of(row: Any) -> str:
            expr = tidy(quantity.of(row))
            seen.update(map(str, expr.free_symbols))
            return text(expr)

        return Quantity(quantity.name, "", of)

    table = tabulate(title, first, rows, map(form, quantities))
    letters = ", ".join(f"{name} {meanings.get(name) or MEANINGS[name.lower()]}" for name in sorted(seen))
    return table._replace(notes=(letters, *notes, *table.notes))
