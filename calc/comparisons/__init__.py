"""Comparison tables: what is held against what, at which sizes, in which quantities, as declarations. The engine counts.

A table is a module here. Its rows are blocks, models or conventions, its columns functions of their budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from ..errors import InputError
from ..tables.table import Table
from .comparison import Asked, Comparison, settled

__all__ = ["TITLES", "Asked", "Comparison", "comparison", "draw"]

TITLES: Mapping[str, str] = MappingProxyType({
    "attention": "Kinds of attention, as numbers and as formulas",
    "feed-forward": "Feed-forward networks at equal width and at equal parameters",
    "norms": "Norms, and where they stand in a block",
    "positions": "Where position enters, and what it costs",
    "paradigms": "Encoder, decoder and encoder-decoder at equal sizes",
    "mixtures": "Mixtures of experts: total, active, touched by a batch",
    "shapes": "Depth, width and proportions of models",
    "kv": "KV cache of models over contexts",
    "conventions": "One training step under every way of counting FLOPs",
    "models": "Model against model",
    "published-forms": "Closed forms that papers print, and what the engine derives",
    "measured-memory": "Memory of public runs, measured and computed",
    "measured-speed": "Speed of public runs, measured and estimated",
})


def comparison(name: str) -> Comparison:
    """The declaration of a table. Raises InputError for an unknown name."""
    if name not in TITLES:
        from difflib import get_close_matches

        near = get_close_matches(name, TITLES, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ";"
        raise InputError(f"{name}: no such table{hint} 'blockcalc table' lists them")
    found: Comparison = import_module(f".{name.replace('-', '_')}", __name__).COMPARISON
    return found


def draw(name: str, asked: Asked | None = None) -> tuple[Table, ...]:
    """The tables of that name, evaluated. *asked* changes what the declaration takes; raises InputError for anything else."""
    found = comparison(name)
    return found.draw(settled(name, found, asked or Asked()))
