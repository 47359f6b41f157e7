"""The rows of a block, made of nothing but the grid and the block's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dims import LARGEST_SIZE
from .boxes import Box
from .closed import Forms
from .exact import Boxed, Exact, Ints, Real, Size
from .grid import Chosen, Grid
from .ledger import Condition
from .letters import Fraction, column
from .plans import is_real
from .rows import Reasons, Rows, Whole, Words, as_text
from .variants import Variant


class Found(NamedTuple):
    """Values of the quantities on a part of a box, and for each why there is none, by number (0: there is one)."""

    values: Mapping[str, Any]
    codes: Mapping[str, Any]
    ties: Sequence[Any]


def rows(grid: Grid, block: int, scratch: dict[str, Ints] | None = None) -> Rows:
    """The rows of the block of that number, in row order. With *scratch* they are good until the next call that is given it."""
    first, span = block * grid.together, grid.span(block)
    found = _Block(grid, len(span), {} if scratch is None else scratch)
    found.numbers["point"][:] = np.arange(span.start, span.stop)
    for number in range(first, min(first + grid.together, grid.boxes.total)):
        start = grid.boxes.first(number) - span.start
        _Box(grid, grid.boxes.box(number), found, start).fill()
    return found.rows()


class _Block:
    """The columns of a block while they are filled."""

    def __init__(self, grid: Grid, count: int, scratch: dict[str, Ints]) -> None:
        self.grid, self.count, self.reasons = grid, count, Reasons()
        self.words = {one.name: Reasons() for one in grid.outer if not one.whole}
        names = [*(one.name for one in grid.outer), *map(column, grid.given)]
        self.numbers: dict[str, NDArray[Any]] = {}
        for name in ("point", *names, *grid.spec.quantities):
            if len(scratch.get(name, ())) < count:
                scratch[name] = np.empty(count, np.float64 if is_real(name) else np.int64)
            self.numbers[name] = scratch[name][:count]
        self.codes: dict[str, NDArray[np.int32]] = {}  # of the quantities that some row is refused
        self.keep = np.ones(count, bool) if grid.where else None

    def code(self, quantity: str) -> NDArray[np.int32]:
        """Why a quantity is refused, by row."""
        if quantity not in self.codes:
            self.codes[quantity] = np.zeros(self.count, np.int32)
        return self.codes[quantity]

    def rows(self) -> Rows:
        """The rows that are asked for. One whose condition asks for what is refused stays, for it says so."""
        found: dict[str, Whole | Words] = {}
        for name, values in self.numbers.items():
            absent = self.codes[name] != 0 if name in self.codes else None
            if absent is not None:
                values[absent] = 0
            found[name] = Words(values, self.words[name].words) if name in self.words else Whole(values, absent)
        why, refused = np.zeros(self.count, np.int32), {}
        if self.codes:
            names = self.grid.spec.quantities
            why = self.reasons.joined(names, [self.codes.get(name, why) for name in names])
            counts = np.bincount(why, minlength=len(self.reasons.words)).tolist()
            refused = {text: n for text, n in zip(self.reasons.words, counts, strict=True) if text is not None and n}
        found["refused"] = Words(why, self.reasons.words)
        keep = self.keep
        if self.grid.spec.valid and self.codes:
            keep = (why == 0) if keep is None else keep & (why == 0)
        if keep is not None and not keep.all():
            found = {name: one.only(keep) for name, one in found.items()}
        return Rows(found, self.count, refused)


class _Box:
    """One box of a block: variants along its first axis, letters along the others."""

    def __init__(self, grid: Grid, box: Box, block: _Block, start: int) -> None:
        self.grid, self.block, self.shape = grid, block, tuple(map(len, box))
        self.rows = slice(start, start + prod(self.shape))
        self.chosen = [grid.chosen(index) for index in box[0]]
        self.letters = {
            one.name: _along(one.between(span.start, span.stop), place, len(box))
            for place, (one, span) in enumerate(zip(grid.letters, box[1:], strict=True), 1)
        }

    def here(self, values: NDArray[Any]) -> NDArray[Any]:
        """The box's part of a column, in the shape of the box."""
        return values[self.rows].reshape(self.shape)

    def fill(self) -> None:
        """Fill all columns."""
        for place, one in enumerate(self.grid.outer):
            values = [chosen.values[place] for chosen in self.chosen]
            words = self.block.words.get(one.name)
            numbers = values if words is None else [words.place(as_text(value)) for value in values]
            self.here(self.block.numbers[one.name])[:] = _along(np.array(numbers, dtype=np.int64), 0, len(self.shape))
        for name, sizes in self.letters.items():
            self.here(self.block.numbers[column(name)])[:] = sizes
        for members, variant in self._groups():
            inside = slice(None) if len(members) == self.shape[0] else members
            if isinstance(variant, str):
                for name in self.grid.spec.quantities:
                    self.here(self.block.code(name))[inside] = self.block.reasons.place(variant)
                for tie in self.grid.ties:
                    self.here(self.block.numbers[column(tie.name)])[inside] = 0
                continue
            self._fill(inside, variant, (len(members), *self.shape[1:]))

    def _groups(self) -> list[tuple[list[int], Variant | str]]:
        """Variants with the same closed forms, whose sizes then stand along the first axis of the box."""
        groups: dict[Any, list[int]] = {}
        for index, chosen in enumerate(self.chosen):
            key = chosen.variant if isinstance(chosen.variant, str) else tuple(map(id, chosen.variant.forms))
            groups.setdefault(key, []).append(index)
        return [(members, _stacked([self.chosen[index] for index in members], len(self.shape))) for members in groups.values()]

    def _fill(self, inside: Any, variant: Variant, shape: tuple[int, ...]) -> None:
        """Put what a group of variants has in its place: of several pieces, the most."""
        columns = self.block.numbers
        seen: set[str] = set()
        for number, (forms, sizes) in enumerate(zip(variant.forms, variant.sizes, strict=True)):
            found = evaluate(self.grid, forms, {**sizes, **self.letters}, shape, self.block.reasons)
            for name, made in found.values.items():
                values, why = self.here(columns[name]), found.codes[name]
                values[inside] = np.maximum(values[inside], made) if name in seen else made
                seen.add(name)
                if np.any(why):
                    codes = self.here(self.block.code(name))
                    codes[inside] = np.where(codes[inside] != 0, codes[inside], why)
            for tie, made in zip(self.grid.ties if number == 0 else (), found.ties, strict=False):
                self.here(columns[column(tie.name)])[inside] = made
        if self.block.keep is not None:
            self.here(self.block.keep)[inside] = self._holds(inside, variant, shape)

    def _holds(self, inside: Any, variant: Variant, shape: tuple[int, ...]) -> Any:
        """Which rows satisfy every condition, or cannot tell."""
        block, quantities = self.block, self.grid.spec.quantities
        own = {name: self.here(block.numbers[name])[inside] for name in quantities}
        tied = {tie.name: self.here(block.numbers[column(tie.name)])[inside] for tie in self.grid.ties}
        sizes = {**variant.sizes[0], **self.letters, **tied, **own}
        keep = np.ones(shape, bool)
        for condition in self.grid.where:
            ((difference, _),) = condition.difference.on(sizes, shape)
            holds = condition.holds(difference, 0)
            for name in condition.quantities:
                if name in block.codes:
                    holds = holds | (self.here(block.codes[name])[inside] != 0)
            keep &= holds
        return keep


def _along(values: Ints, place: int, axes: int) -> Ints:
    """A column of sizes along one axis of a box."""
    return values.reshape((1,) * place + (-1,) + (1,) * (axes - place - 1))


def _stacked(chosen: Sequence[Chosen], axes: int) -> Variant | str:
    """Variants of one form as one, with sizes along the first axis where they differ."""
    first = chosen[0].variant
    if isinstance(first, str) or len(chosen) == 1:
        return first
    variants = [one.variant for one in chosen if isinstance(one.variant, Variant)]
    sizes = []
    for place, own in enumerate(first.sizes):
        columns = {name: [variant.sizes[place][name] for variant in variants] for name in own}
        sizes.append({
            name: column[0] if len(set(column)) == 1 else _along(np.array(column, dtype=np.int64), 0, axes)
            for name, column in columns.items()
        })  # fmt: skip
    return first._replace(sizes=tuple(sizes))  # type: ignore[arg-type]


def evaluate(grid: Grid, forms: Forms, sizes: Mapping[str, Size], shape: tuple[int, ...], reasons: Reasons) -> Found:
    """The quantities of one piece over a box of *shape*, with ties and quotients made on the way."""
    here = dict(sizes)
    common: Any = 0
    ties = []
    for one in grid.ties:
        here[one.name], bad = _tied(one, here, shape)
        ties.append(here[one.name])
        common = _first(common, bad, reasons.place(f"{one.text} is no whole number from 1 to 2^40") if np.any(bad) else 0)
    failed: list[Any] = []
    for condition in forms.conditions:
        free = any(name not in here for name in condition.forms.symbols)  # a size that no quantity depends on
        bad = False if free else _condition(condition, here, shape)
        failed.append((bad, reasons.place(condition.refusal)) if np.any(bad) else None)
    computed = dict(zip(forms.names, forms.closed.on(here, shape) if forms.closed is not None else (), strict=True))
    values, codes = {}, {}
    for name in (*computed, *forms.refused):
        if name in forms.refused:
            values[name], codes[name] = 0, _first(common, True, reasons.place(forms.refused[name]))
            continue
        made, past = computed[name]
        code = common
        for place in forms.of[name]:
            if (why := failed[place]) is not None:
                code = _first(code, *why)
        if past is not None:
            code = _first(code, past, reasons.place(f"{name} is {'no finite number' if is_real(name) else 'past 2^63 - 1'}"))
        values[name], codes[name] = made, code
    return Found(values, codes, ties)


def _first(codes: Any, bad: Any, code: int) -> Any:
    """The codes, and *code* where there was none and it is bad."""
    return np.where((np.asarray(codes) == 0) & bad, code, codes) if code else codes


def _tied(one: Fraction, sizes: Mapping[str, Size], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The sizes of a letter that is tied, and where they are none: there the size is 1."""
    (above, past), (below, _) = _on(one.forms, sizes, shape)
    value = above // below
    bad = (above % below != 0) | (value < 1) | (value > LARGEST_SIZE) | (False if past is None else past)
    return _plain(np.where(bad, 1, value)), bad


def _condition(condition: Condition, sizes: dict[str, Size], shape: tuple[int, ...]) -> Any:
    """Where a condition fails. Puts what it makes under its letter; where that is nothing, 1."""
    found = _on(condition.forms, sizes, shape)
    values = [one.values for one in found]
    bad: Any = False
    for one in found:
        bad = bad if one.past is None else bad | one.past
    if condition.kind == "at most":
        return bad | (values[0] > values[1])
    if condition.kind == "divides":
        bad = bad | (values[0] % np.maximum(values[1], 1) != 0)
    if condition.letter is not None:
        sizes[condition.letter] = _plain(np.where(bad, 1, _MADE[condition.kind](*values)))
    return bad


_MADE: Mapping[str, Callable[..., Any]] = {
    "divides": lambda above, below: above // np.maximum(below, 1),
    "rounded up": lambda above, below: -(-above // np.maximum(below, 1)),
    "largest": lambda *values: reduce(np.maximum, values),
    "chosen": lambda one, other, then, otherwise: np.where(one <= other, then, otherwise),
}


def _plain(value: Any) -> Size:
    """An array without axes as the number that it is."""
    plain: Size = value.item() if np.ndim(value) == 0 else value
    return plain


def _on(forms: Boxed | Real, sizes: Mapping[str, Size], shape: tuple[int, ...]) -> list[Exact]:
    """Forms over no more of the box than their letters span, for the rest is broadcast."""
    given = [sizes[name] for name in forms.symbols]
    spanned = np.broadcast_shapes(*(size.shape for size in given if not isinstance(size, int | float)))
    return forms.on(sizes, spanned or (1,) * len(shape))
