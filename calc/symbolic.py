"""Closed forms: the same trace on symbols, tidied as an author would write it.

A formula is exact on every branch of its minima; ``formula.subs(sizes)`` equals the budget of those sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import sympy

from .blocks.mixer import TokenMixing
from .budget import Budget, Widths, widths
from .convention import flops
from .dims import Dim, symbol
from .errors import InputError
from .model import Component, Layer, Model, trace
from .tensor import Kernels, Step

MEANINGS: Mapping[str, str] = MappingProxyType({
    "b": "sequences in the batch", "t": "new tokens a sequence", "s": "visible tokens, the new ones included",
    "d": "model width", "f": "hidden width of the feed-forward", "n": "query heads", "k": "key-value heads",
    "h": "head width", "w": "window", "e": "experts", "a": "active experts a token", "c": "key-value latent width",
    "q": "query latent width", "p": "position-free head width", "r": "rotary width", "u": "value head width",
    "v": "vocabulary", "l": "layers", "m": "rows of a position table", "types": "token types",
    "i": "width of a narrower token table, or of a pooled vector; entries that a gate reads",
    "j": "sets of weights that layers share",
    "used": "outputs that are kept, the others filling the matrix up",
    "x": "input channels: colours, or mel bins", "y": "pixels of a patch", "z": "pixels of an image",
})  # fmt: skip


class Quantity(NamedTuple):
    """What is asked of a budget: its unit, the step it is asked of, and how it is read off."""

    unit: str
    meaning: str
    step: Callable[[Dim, Dim, Dim], Step]
    read: Callable[[Budget, Widths, str], Dim]


def _forward(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.forward(b, t)


def _train(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.train(b, t)


def _filled(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.prefill(b, s)


def _decode(b: Dim, t: Dim, s: Dim) -> Step:
    return Step.decode(b, s)


QUANTITIES: Mapping[str, Quantity] = MappingProxyType({
    "params": Quantity("parameters", "all parameters, a tied one once", _forward, lambda x, w, c: x.parameters().total),
    "active": Quantity("parameters", "parameters that one token uses", _forward, lambda x, w, c: x.parameters().active),
    "flops": Quantity("FLOPs", "a forward pass", _forward, lambda x, w, c: flops(x, c).forward),
    "train_flops": Quantity("FLOPs", "a training step: forward and backward", _train, lambda x, w, c: flops(x, c).total),
    "decode_flops": Quantity("FLOPs", "one new token a sequence at S visible", _decode, lambda x, w, c: flops(x, c).forward),
    "kv": Quantity("bytes", "the cache at S visible tokens", _filled, lambda x, w, c: sum(x.cache(w).values())),
    "activations": Quantity("bytes", "what autograd keeps of a training step", _train, lambda x, w, c: x.activations(w).bytes),
})  # fmt: skip


class Formula(NamedTuple):
    """A closed form, what its symbols mean, and the sizes they have in the model that it was read off."""

    subject: str
    quantity: str
    unit: str
    expr: Any
    meanings: Mapping[Any, str]
    values: Mapping[Any, int]

    def subs(self, **sizes: int) -> int:
        """The value at these sizes (by symbol name, else those of the model). Raises InputError when one is missing."""
        given = {str(s): v for s, v in self.values.items()} | sizes
        missing = sorted(str(s) for s in self.expr.free_symbols if str(s) not in given)
        if missing:
            raise InputError(f"the formula needs a value for {', '.join(missing)}")
        value = self.expr.subs({s: given[str(s)] for s in self.expr.free_symbols}, simultaneous=True)
        if not value.is_integer:
            raise InputError(f"the formula gives {value} at these sizes, not a whole number: a size does not divide")
        return int(value)

    def text(self) -> str:
        """The formula in one line of plain text."""
        from .text import text

        return text(self.expr)


def formula(
    subject: Model | Component | str | Mapping[str, Any],
    quantity: str = "params",
    *,
    d: Dim | None = None,
    dtype: str = "bf16",
    convention: str = "torch",
    kernels: Kernels | None = None,
) -> Formula:
    """The closed form of a quantity of a model, a block, or the name of either.

    *subject* may be a Model, a component, a block's name (``"gated-mlp"``), a model's (as for ``load``) or a family's
    (``"llama"``). A component's input is d wide (the symbol D unless given). Raises InputError for an unknown quantity.
    """
    if quantity not in QUANTITIES:
        raise InputError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
    asked = QUANTITIES[quantity]
    step = asked.step(symbol("B"), symbol("T"), symbol("S"))
    component, values, letters, width = _symbolic(subject, d)
    name = subject if isinstance(subject, str) else getattr(component, "name", type(component).__name__)
    is_model = isinstance(component, Model)
    budget = component.budget(step, kernels) if is_model else trace(component, step, width, kernels)
    expr = tidy(asked.read(budget, widths(dtype), convention))
    symbols = sorted(expr.free_symbols, key=str)
    meanings = {s: MEANINGS.get(letters.get(str(s), str(s).lower()), "") + _scope(str(s)) for s in symbols}
    return Formula(name, quantity, asked.unit, expr, MappingProxyType(meanings), MappingProxyType(values))


def _scope(name: str) -> str:
    _, _, scope = name.partition("_")
    return f" ({scope.replace('_', ' ')})" if scope else ""


def _symbolic(subject: Any, d: Dim | None) -> tuple[Any, dict[Any, int], dict[str, str], Dim]:
    """The subject on symbols, the sizes it had, each symbol's letter, and the width of its input."""
    from .readers import load
    from .readers.families import FAMILIES
    from .tables import presets

    if isinstance(subject, str) and subject in FAMILIES and subject not in presets():
        subject = load({"model_type": subject})
    elif isinstance(subject, str):
        from .catalogue import BLOCKS

        if subject in BLOCKS:
            entry = BLOCKS[subject]
            symbols = {letter: symbol(letter.upper()) for letter in entry.sizes}
            values = {symbols[letter]: size for letter, size in entry.sizes.items()}
            return entry.make(**symbols), values, {}, symbols["d"]
    if isinstance(subject, str | Mapping):
        subject = load(subject)
    component, values, letters = symbolize(subject)
    return component, values, letters, symbol("D") if d is None else d


# -- from numbers to symbols -------------------------------------------------------------------------------------------


def symbolize(component: Any) -> tuple[Any, dict[Any, int], dict[str, str]]:
    """The component with a symbol for each size; the sizes; each symbol's letter.

    A symbol is the field's letter as a capital. Where a letter has several values its symbols carry the scope as a
    subscript: F_expert, L_window.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for letter, scope, size in _sizes(component, ""):
        places = found.setdefault(letter, [])
        if (scope, size) not in places:
            places.append((scope, size))
    names = {
        (letter, scope, size): _name(letter, scope, size, found[letter]) for letter in found for scope, size in found[letter]
    }
    values = {symbol(name): size for (_, _, size), name in names.items()}
    letters = {name: letter for (letter, _, _), name in names.items()}
    return _replaced(component, "", names), values, letters


def _name(letter: str, scope: str, size: int, places: list[tuple[str, int]]) -> str:
    capital = letter.upper() if len(letter) == 1 else f"V_{letter}"
    if letter == "l":  # equal numbers of different layers are still different numbers
        return f"{capital}_{scope}" if scope else capital
    if len({value for _, value in places}) == 1:
        return capital
    same = [place for place, value in places if value == size]
    name = f"{capital}_{same[0]}" if same[0] else capital
    before = [value for place, value in places if place == same[0]].index(size)  # others of the same scope
    return f"{name}_{before + 1}" if before else name


def _scope_of(component: Any, field: str, scope: str) -> str:
    """Experts, shared experts, encoders and token mixing name the sizes inside them; so do the distinct layers of a stack."""
    if isinstance(component, Layer):
        return f"{scope}_{component.name}".strip("_") if component.name != "layer" else scope
    if isinstance(component, TokenMixing):
        return "token"
    return field if field in ("expert", "shared", "encoder", "encoder_embedding") else scope


def _sizes(component: Any, scope: str) -> list[tuple[str, str, int]]:
    if isinstance(component, tuple):
        return [size for item in component for size in _sizes(item, scope)]
    if not is_dataclass(component):
        return []
    sizes: list[tuple[str, str, int]] = []
    for field in fields(component):
        value, inner = getattr(component, field.name), _scope_of(component, field.name, scope)
        if type(value) is int and value > 0:
            sizes.append((field.name, inner, value))
        elif field.name != "order":
            sizes += _sizes(value, inner)
    return sizes


def _replaced(component: Any, scope: str, names: Mapping[tuple[str, str, int], str]) -> Any:
    if isinstance(component, tuple):
        return tuple(_replaced(item, scope, names) for item in component)
    if not is_dataclass(component) or isinstance(component, type):
        return component
    changes: dict[str, Any] = {}
    for field in fields(component):
        value, inner = getattr(component, field.name), _scope_of(component, field.name, scope)
        if type(value) is int and value > 0:
            changes[field.name] = symbol(names[field.name, inner, value])
        elif field.name == "order":
            changes[field.name] = ()
        elif value is not None:
            changes[field.name] = _replaced(value, inner, names)
    return replace(component, **changes)


# -- as an author would write it ---------------------------------------------------------------------------------------


def tidy(expr: Dim) -> Any:
    """The expression as a sum over the numbers of layers, each with its common factors in front."""
    expr = sympy.expand(sympy.sympify(expr))
    counts = sorted((s for s in expr.free_symbols if str(s).partition("_")[0] == "L"), key=str)
    rest, terms = expr, []
    for count in counts:
        inside = sympy.Add(*(term for term in sympy.Add.make_args(rest) if term.has(count)))
        rest -= inside
        terms.append(count * _factored(sympy.expand(inside / count)))
    return sympy.Add(*terms, _factored(rest))


def _factored(expr: Any) -> Any:
    return sympy.factor_terms(expr) if expr.is_Add else expr
