"""Closed forms: the same trace on symbols, tidied as an author would write it.

A formula is exact on every branch of its minima; ``formula.subs(sizes)`` equals the budget of those sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from .blocks.mixer import TokenMixing
from .budget import Budget, Policy, widths
from .convention import named
from .dims import Dim, symbol
from .errors import InputError, UndefinedError
from .model import Component, Layer, Model, trace
from .quantities import MEANINGS as MEANINGS
from .quantities import QUANTITIES as QUANTITIES
from .quantities import UNITS, by_path
from .recorder import Recompute
from .tensor import Kernels
from .tidy import tidy as tidy


class Formula(NamedTuple):
    """A closed form, what its symbols mean and count, and the sizes they have in the model that it was read off.

    ``conditions`` are the options that its meaning depends on, such as the convention of FLOPs or the dtype of bytes.
    """

    subject: str
    quantity: str
    unit: str
    expr: Any
    meanings: Mapping[Any, str]
    values: Mapping[Any, int]
    units: Mapping[Any, str] = MappingProxyType({})
    conditions: Mapping[str, str] = MappingProxyType({})

    def subs(self, **sizes: int) -> int:
        """The value at these sizes (by symbol name, else those of the model). Raises InputError when one is missing."""
        given = {str(s): v for s, v in self.values.items()} | sizes
        missing = sorted(str(s) for s in self.expr.free_symbols if str(s) not in given)
        if missing:
            raise InputError(f"the formula needs a value for {', '.join(missing)}")
        check_windows(self.conditions.get("policy"), {str(s): given[str(s)] for s in self.expr.free_symbols})
        value = self.expr.subs({s: given[str(s)] for s in self.expr.free_symbols}, simultaneous=True)
        if not value.is_integer:
            raise InputError(f"the formula gives {value} at these sizes, not a whole number: a size does not divide")
        return int(value)

    @property
    def value(self) -> int | None:
        """The value in the model that it was read off, where that has all the sizes."""
        return self.subs() if all(s in self.values for s in self.expr.free_symbols) else None

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
    recompute: Recompute = "none",
    policy: Policy = "minimal",
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Formula:
    """The closed form of a quantity of a model, a block, or the name of either.

    *subject* may be a Model, a component, a block's name (``"gated-mlp"``), a model's (as for ``load``) or a family's
    (``"llama"``), and *changes* override fields of its config or letters of the block. A component's input is d wide (the
    symbol D unless given). Raises InputError for an unknown quantity, UndefinedError where it is not defined.
    """
    asked = _ask(quantity, dtype, convention, kernels, recompute, policy)
    found = _symbolic(subject, d, changes)
    expr = QUANTITIES[quantity].read(asked.budget(found), widths(dtype), convention, policy)
    return asked.formula(found, found.name, expr)


def windows(policy: str | None, names: Iterable[str]) -> list[str]:
    """The names that are windows of 2 at least: policy transformers caches a window of 1 whole, and no closed form says so."""
    return [name for name in names if policy == "transformers" and name.partition("_")[0] == "W"]


def check_windows(policy: str | None, sizes: Mapping[str, int]) -> None:
    """Refuse a window of 1 under the policy of transformers."""
    for name in windows(policy, sizes):
        if sizes[name] == 1:
            raise InputError(f"{name} = 1: policy transformers caches a window of 1 whole, which is another closed form")


def components(
    subject: Model | Component | str | Mapping[str, Any],
    quantity: str = "params",
    *,
    d: Dim | None = None,
    dtype: str = "bf16",
    convention: str = "torch",
    kernels: Kernels | None = None,
    recompute: Recompute = "none",
    policy: Policy = "minimal",
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Formula]:
    """The closed form of each operation by its path, those that are zero left out; their sum is :func:`formula`'s.

    Raises UndefinedError for a convention that counts the whole model and not its operations.
    """
    asked = _ask(quantity, dtype, convention, kernels, recompute, policy)
    if "convention" in asked.conditions and convention not in ("torch", "exact"):
        raise UndefinedError(f"convention {convention} counts a whole model, not its operations; torch and exact count those")
    found = _symbolic(subject, d, changes)
    parts = by_path(quantity, asked.budget(found), widths(dtype), convention, policy)
    return {path: asked.formula(found, f"{found.name} {path}", expr) for path, expr in parts.items() if expr != 0}


class _Question(NamedTuple):
    """A quantity and the options that change it."""

    quantity: str
    kernels: Kernels | None
    recompute: Recompute
    conditions: Mapping[str, str]

    def budget(self, found: _Symbolic) -> Budget:
        """The budget on symbols, in the quantity's step."""
        step = QUANTITIES[self.quantity].step(symbol("B"), symbol("T"), symbol("S"))
        if isinstance(found.component, Model):
            return found.component.budget(step, self.kernels, self.recompute)
        return trace(found.component, step, found.width, self.kernels, self.recompute)

    def formula(self, found: _Symbolic, name: str, expr: Dim) -> Formula:
        """The expression tidied, with what its symbols mean."""
        expr = tidy(expr)
        symbols = sorted(expr.free_symbols, key=str)
        letters = {s: found.letters.get(str(s), str(s).lower()) for s in symbols}
        meanings = {s: MEANINGS.get(letter, "") + _scope(str(s)) for s, letter in letters.items()}
        units = {s: UNITS.get(letter, "") for s, letter in letters.items()}
        if self.conditions.get("policy") == "transformers":
            check_windows("transformers", {str(s): found.values[s] for s in symbols if s in found.values})
            meanings |= {s: f"{meanings[s]}, 2 at least" for s, letter in letters.items() if letter == "w"}
        return Formula(
            name, self.quantity, QUANTITIES[self.quantity].unit, expr, MappingProxyType(meanings),
            MappingProxyType(found.values), MappingProxyType(units), self.conditions,
        )  # fmt: skip


def _ask(
    quantity: str, dtype: str, convention: str, kernels: Kernels | None, recompute: Recompute, policy: Policy
) -> _Question:
    if quantity not in QUANTITIES:
        raise InputError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
    named(convention)
    if quantity == "activations" and dtype in ("fp8", "int8"):
        raise UndefinedError(f"dtype {dtype!r}: activations are kept in fp32, bf16 or fp16")
    options = {
        "convention": convention, "dtype": dtype, "attention": (kernels or Kernels()).attention, "recompute": recompute,
        "policy": policy,
    }  # fmt: skip
    conditions = {option: options[option] for option in QUANTITIES[quantity].depends}
    return _Question(quantity, kernels, recompute, MappingProxyType(conditions))


def _scope(name: str) -> str:
    _, _, scope = name.partition("_")
    return f" ({scope.replace('_', ' ')})" if scope else ""


class _Symbolic(NamedTuple):
    """A subject on symbols, the sizes it had, each symbol's letter, and the width of its input."""

    name: str
    component: Any
    values: dict[Any, int]
    letters: dict[str, str]
    width: Dim


def _symbolic(subject: Any, d: Dim | None, changes: Mapping[str, Any]) -> _Symbolic:
    from .readers import load
    from .readers.families import FAMILIES
    from .tables import presets

    name = subject if isinstance(subject, str) else None
    if isinstance(subject, str) and subject in FAMILIES and subject not in presets():
        subject = load({"model_type": subject}, changes)
    elif isinstance(subject, str):
        from .catalogue import BLOCKS

        if subject in BLOCKS:
            entry = BLOCKS[subject]
            entry.build(changes)  # refuses what does not fit
            symbols = {letter: symbol(capital(letter)) for letter in entry.sizes}
            values = {symbols[letter]: size for letter, size in {**entry.sizes, **changes}.items()}
            letters = {str(name): letter for letter, name in symbols.items()}
            return _Symbolic(subject, entry.make(**symbols), values, letters, symbols["d"])
    if isinstance(subject, str | Mapping):
        subject = load(subject, changes)
    elif changes:
        raise InputError(f"{next(iter(changes))}: changes are for a config or a block's name; replace the component's field")
    component, values, letters = symbolize(subject)
    name = name or str(getattr(component, "name", type(component).__name__))
    return _Symbolic(name, component, values, letters, symbol("D") if d is None else d)


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


def capital(letter: str) -> str:
    """The symbol of a letter: a capital; of a word that of what it is a number of, the word below it."""
    return letter.upper() if len(letter) == 1 else f"{'T' if letter == 'chunk' else 'V'}_{letter}"


def _name(letter: str, scope: str, size: int, places: list[tuple[str, int]]) -> str:
    base = capital(letter)
    if letter == "l":  # equal numbers of different layers are still different numbers
        return f"{base}_{scope}" if scope else base
    if len({value for _, value in places}) == 1:
        return base
    same = [place for place, value in places if value == size]
    name = f"{base}_{same[0]}" if same[0] else base
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
