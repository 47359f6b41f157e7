"""The roofline: FLOPs a byte of each kind of operation, and what a machine attains there.

Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785: the lower of the peak and of intensity × bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, NamedTuple

from ..budget import Budget, Widths, widths
from ..dims import smaller
from ..errors import InputError
from ..tables.table import Column, rounded
from ..tensor import Line, Tensor
from . import parts
from .figure import Axis, Figure

FASTEST = 10**24
"""No machine computes or moves more than that a second."""


class Rates(NamedTuple):
    """What a machine does a second at best, and its name, if it has one."""

    flops_per_second: int
    bytes_per_second: int
    name: str = ""

    @property
    def ridge(self) -> Fraction:
        """FLOPs a byte at which both are the limit."""
        return Fraction(self.flops_per_second, self.bytes_per_second)

    def attains(self, intensity: Fraction) -> Fraction:
        """FLOP/s at that many FLOPs a byte."""
        return min(Fraction(self.flops_per_second), intensity * self.bytes_per_second)


def rate(option: str, text: str | None) -> int:
    """A whole number a second out of *text*, with an SI letter or without: 3.35T. Raises InputError, naming the *option*."""
    if text is None:
        raise InputError(f"roofline needs {option}, such as {option} {'989T' if 'flops' in option else '3.35T'}")
    power = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.get(text[-1:], 0)
    try:
        found = Decimal(text[:-1] if power else text).scaleb(power)
    except InvalidOperation:
        found = Decimal(0)
    if not found.is_finite() or not 1 <= found <= FASTEST or found != int(found):
        raise InputError(f"{option} {text}: expected a rate such as 989T or 3.35T, with a letter of k, M, G, T, P, E")
    return int(found)


class Operation(NamedTuple):
    """FLOPs of a kind of operation and the bytes that it moves."""

    flops: int
    bytes: int


def operations(budget: Budget, widths: Widths) -> Mapping[str, Operation]:
    """Each kind of operation, by name: FLOPs of two a multiply-add, bytes read and written with no fusion across lines.

    Every weight is read once, of a bank of experts as many as the rows reach at most, of a look-up table the rows. Backward,
    each gradient moves as many bytes as the forward pass: dX = dY Wᵀ and dW = Xᵀ dY touch the three tensors that Y = X W does.
    """
    found: dict[str, list[int]] = {}
    seen: set[Tensor] = set()
    for line in budget.lines:
        flops = 2 * line.copies * line.pairs * parts.multiply_adds(line, training=budget.step.training)
        moved = _moved(line, budget, widths, seen) * _passes(line, budget)
        entry = found.setdefault(parts.operation(line) if line.forward else ELEMENTWISE, [0, 0])
        entry[0] += flops
        entry[1] += moved
    return {name: Operation(*found[name]) for name in (*parts.WORK, ELEMENTWISE) if name in found}


ELEMENTWISE = "without multiply-adds"


def _moved(line: Line, budget: Budget, widths: Widths, seen: set[Tensor]) -> int:
    """Bytes of the forward pass."""
    total = sum(line.copies * tensor.numel * widths[tensor.role] for tensor in (*line.read, *line.written))
    for weight in line.weights:
        if line.kind == "lookup":
            total += sum(line.copies * tensor.numel * widths[weight.role] for tensor in line.written)
        elif weight not in seen:
            seen.add(weight)
            reached = weight.copies if line.dense else weight.active * budget.step.b * budget.step.t
            read = smaller(weight.copies, reached)
            total += read * weight.numel * widths[weight.role]
    return int(total)


def _passes(line: Line, budget: Budget) -> int:
    """How often the line's tensors pass: forward, again where a checkpoint says so, and once for each gradient of a product."""
    gradients = (line.dinput + line.dweight) // line.forward if line.forward and budget.step.training else 0
    return 1 + int(line.recomputed) + int(gradients)


def roofline(budgets: Mapping[str, Budget], machine: Rates, dtype: str = "bf16") -> Figure:
    """A point for each kind of operation of each model, on the roof of *machine*, which bounds them."""
    check_rates(machine)
    rows: list[tuple[Any, ...]] = []
    idle = []
    for name, budget in budgets.items():
        for kind, (flops, moved) in operations(budget, widths(dtype)).items():
            if flops:
                at = Fraction(flops, moved)
                bound = "bytes" if at < machine.ridge else "FLOPs"
                rows.append((name, kind, flops, moved, at, machine.attains(at), bound))
            else:
                idle.append(f"{rounded(moved, 'bytes') or f'{moved} bytes'} ({name})")
    if not rows:
        raise InputError("roofline: nothing here multiplies, so that no operation has a place on it")
    return Figure(
        name="roofline", title=f"Roofline of {_mode(budget)}", kind="points", series="operation", panel="model",
        x=Axis(column="flops_per_byte", label="arithmetic intensity", unit="FLOPs a byte", scale="log"),
        y=Axis(column="attainable", label="attainable", unit="FLOP/s", scale="log"),
        columns=(Column("model"), Column("operation"), Column("flops", "flops"), Column("bytes", "bytes"),
                 Column("flops_per_byte"), Column("attainable"), Column("bound by")),
        rows=tuple(rows), roof=_roof(machine, [row[4] for row in rows]),
        notes=_notes(budget, machine, dtype, idle),
    )  # fmt: skip


def check_rates(machine: Rates) -> None:
    """Refuse rates that are not positive; they may be larger than any size of a model."""
    for name, rate in zip(machine._fields[:2], machine[:2], strict=True):
        if type(rate) is not int or rate < 1:
            raise InputError(f"{name} = {rate!r}, expected a whole number above 0")


def _roof(machine: Rates, places: list[Fraction]) -> tuple[tuple[Fraction, Fraction], ...]:
    """Its corners, from below the lowest point to above the highest."""
    corners = (min(*places, machine.ridge) / 4, machine.ridge, max(*places, machine.ridge) * 4)
    return tuple((place, machine.attains(place)) for place in corners)


def _mode(budget: Budget) -> str:
    step = budget.step
    return "a training step" if step.training else "a decode step" if step.cache and step.t == 1 else "a forward pass"


def _notes(budget: Budget, machine: Rates, dtype: str, idle: list[str]) -> tuple[str, ...]:
    step = budget.step
    new = f"{step.t:,} new tokens" if step.t != 1 else "one new token"
    seen = f", context {step.s:,}" if step.s != step.t else ""
    limits = (f"{rounded(machine.flops_per_second, 'flops') or machine.flops_per_second} FLOP/s,"
              f" {rounded(machine.bytes_per_second, 'flops') or machine.bytes_per_second} bytes/s")  # fmt: skip
    named = f"{machine.name}: {limits}" if machine.name else f"Machine: {limits}"
    work = (f"Batch {step.b}, {new}{seen}; {dtype}; attention {budget.kernels.attention}; convention torch."
            " Nothing is fused across operations; a weight is read once, of the experts as many as the tokens can reach;"
            " routers are feed-forward.")  # fmt: skip
    rest = ("Norms, activations, residuals, cache updates and the like have no FLOPs and no place here; in the forward pass"
            f" they move {', '.join(idle)}.") if idle else ""  # fmt: skip
    meet = f"{named}; both limits meet at {float(machine.ridge):.4g} FLOPs a byte."
    return tuple(note for note in (meet, work, rest) if note)
