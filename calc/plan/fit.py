"""Does a run fit into a device's memory, what is missing, and how large its sizes may become.

Every answer is a count of all bytes (``memory``) at the answer itself and next to it; nothing is extrapolated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, lcm
from typing import Literal, NamedTuple, TypeAlias, get_args

from ..dims import LARGEST_SIZE
from ..errors import BlockcalcError, InputError
from ..memory.held import Held, Serving, Training, heaviest, serving, training
from ..model import Model
from ..parallel.layout import Layout
from ..storage.formats import Format
from ..storage.precision import FORMATS, Precision, named
from ..tensor import Step
from .engines import absorbed

Run: TypeAlias = Training | Serving
Size: TypeAlias = Literal["batch", "context", "concurrency", "microbatch"]
"""Sequences of one step; tokens of a sequence; sequences of all data ranks that decode at once; sequences of a microbatch."""

SIZES: tuple[Size, ...] = get_args(Size)

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | _BINARY
_AMOUNT = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?\s*(%|[A-Za-z]{0,3})", re.ASCII)


def nbytes(where: str, text: str, whole: int | None = None) -> int:
    """Bytes that a text says: ``2GiB``, ``500MB``, a whole number, or of a *whole* a share, ``5%``, rounded up."""
    from ..readers.config import printable

    found = _AMOUNT.fullmatch(text.strip())
    share = found is not None and found[3] == "%"
    if found is None or (found[3] not in _UNITS and not (share and whole is not None)):
        of = ", a share such as 5%" if whole is not None else ""
        raise InputError(f"{where} {printable(text)}: expected bytes such as 2GiB, 500MB or 1000000{of}")
    amount = Fraction(f"{found[1]}.{found[2] or 0}")
    if share and amount > 100:
        raise InputError(f"{where} {text}: a share is at most 100%")
    return ceil(amount * whole / 100) if share and whole is not None else ceil(amount * _UNITS[found[3]])


class Fit(NamedTuple):
    """What the heaviest device holds, beside the bytes that it may."""

    held: Held
    available: int

    @property
    def fits(self) -> bool:
        """Is there room for all of it?"""
        return bool(self.held.bytes <= self.available)

    @property
    def free(self) -> int:
        """Bytes left; below 0 those that are missing."""
        return int(self.available - self.held.bytes)

    def missing(self) -> dict[str, int]:
        """Of each part the bytes for which there is no room when the parts are laid in one after the other."""
        found, room = {}, self.available
        for part, size in self.held.parts.items():
            if size > room:
                found[part] = int(size - room)
            room = max(0, int(room - size))
        return found


def held(model: Model, layout: Layout, run: Run) -> Held:
    """What a device of the heaviest pipeline rank holds. A step of one token decodes latent attention absorbed."""
    if isinstance(run, Training):
        return heaviest(training(model, layout, run))
    return heaviest(serving(absorbed(model) if run.step.t == 1 else model, layout, run))


def fit(model: Model, layout: Layout, run: Run, available: int) -> Fit:
    """Whether *run* fits into so many bytes a device. Raises InputError naming sizes that do not divide."""
    return Fit(held(model, layout, run), available)


# -- the largest sizes -------------------------------------------------------------------------------------------------


def resized(run: Run, what: Size, size: int, layout: Layout) -> Run:
    """The run with another size. Raises InputError for a size that it does not have."""
    step = run.step
    if what == "concurrency":
        if isinstance(run, Training):
            raise InputError("concurrency is that of requests in serving; training has a microbatch")
        return replace(run, step=Step.decode(size // int(layout.dp), step.s, step.source))
    if what == "microbatch" and isinstance(run, Serving):
        raise InputError("a microbatch is of training; serving has a batch")
    if what != "context":
        return replace(run, step=replace(step, b=size))
    new = size if step.t == step.s else step.t
    moved = {step.t: new, step.s: size}  # an encoder as long as the decoder stays so
    source = moved.get(step.source, step.source)
    return replace(run, step=replace(step, t=new, s=size, source=source, source_new=source if step.source_new else 0))


def unit(what: Size, layout: Layout) -> int:
    """What the size is a multiple of: ranks that split a sequence have equal parts, data ranks as many requests each."""
    if what == "concurrency":
        return int(layout.dp)
    if what != "context":
        return 1
    return lcm(int(2 * layout.cp) if layout.cp != 1 else 1, int(layout.cp * layout.tp) if layout.sequence else 1)


class Largest(NamedTuple):
    """The largest size that fits, and what is held there and one unit further; ``at`` is 0 where not even one unit fits, and
    ``after`` None where every size fits that there is: up to 2**40, a context up to the end of a learned position table of
    ``rows``. ``looked`` sizes were counted."""

    what: Size
    at: int
    unit: int
    here: Fit | None
    after: Fit | None
    looked: int
    rows: int | None = None

    @property
    def limit(self) -> Literal["memory", "positions"] | None:
        """What no larger size is for, if anything."""
        if self.after is not None:
            return "memory"
        return None if self.rows is None else "positions"


def largest(model: Model, layout: Layout, run: Run, available: int, what: Size) -> Largest:
    """The largest *what* of the run, by doubling and halving over exact counts.

    Raises InputError where the counts go up and down, so that no boundary can be told, and where a learned position table is
    shorter than the shortest context.
    """
    step = unit(what, layout)
    start = ceil((run.step.t if what == "context" and run.step.t != run.step.s else 1) / step)
    rows = None if what != "context" or model.positions is None else int(model.positions)
    if rows is not None and rows < start * step:
        raise InputError(f"{model.name} has {rows} learned positions, but the shortest context here is {start * step}")

    def look(units: int) -> Fit:
        return fit(model, layout, resized(run, what, units * step, layout), available)

    seen = boundary(look, start, (LARGEST_SIZE if rows is None else rows) // step)
    inside = [units for units, found in seen.items() if found.fits]
    at = max(inside, default=0)
    return Largest(what, at * step, step, seen.get(at), seen.get(at + 1 if inside else min(seen)), len(seen), rows)


def boundary(look: Callable[[int], Fit], first: int, most: int) -> dict[int, Fit]:
    """Counts at sizes on both sides of the largest that fits, among them that and the next.

    Raises InputError where a larger size holds less.
    """
    seen = {first: look(first)}
    low = high = first
    while seen[high].fits and high < most:
        low, high = high, min(2 * high, most)
        seen[high] = look(high)
    while not seen[high].fits and high - low > 1:
        middle = (low + high) // 2
        seen[middle] = look(middle)
        low, high = (middle, high) if seen[middle].fits else (low, middle)
    for one, other in pairwise(sorted(seen)):
        if seen[one].held.bytes > seen[other].held.bytes:
            raise InputError(f"memory is less at {other} than at {one}: no largest size can be told")
    return seen


# -- formats -----------------------------------------------------------------------------------------------------------


class Quantised(NamedTuple):
    """Weights in a format: what is held then, or why the format does not take this model."""

    name: str
    format: Format
    fit: Fit | None
    refused: str = ""


def quantised(model: Model, layout: Layout, run: Run, available: int) -> tuple[Quantised, ...]:
    """The run with its weights in every known format, the widest first; the first that fits loses least."""
    return tuple(_quantised(model, layout, run, available))


def _quantised(model: Model, layout: Layout, run: Run, available: int) -> Iterator[Quantised]:
    if isinstance(run, Training) and run.adapters is None:
        raise InputError("weights that train are in the optimizer's own formats; formats are chosen for those that do not")
    for name, format in _formats():
        precision = replace(Precision.of(format, run.precision.activation), key_value=run.precision.key_value)
        try:
            yield Quantised(name, format, fit(model, layout, replace(run, precision=precision), available))
        except BlockcalcError as error:
            yield Quantised(name, format, None, str(error))


def _formats() -> Iterable[tuple[str, Format]]:
    known = {**FORMATS, **{name: named(name) for name in ("gptq-8-128", "gptq-4-128", "gptq-3-128", "awq-4-128")}}
    return sorted(known.items(), key=lambda one: -one[1].bits_per_weight)
