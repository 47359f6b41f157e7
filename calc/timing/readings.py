"""What a measured speed is as utilization: under every convention, and which of them a printed figure is of."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ..budget import Budget
from ..convention import CONVENTIONS, flops
from ..errors import InputError, UndefinedError
from ..readers.config import printable
from .run import Utilization, utilization


class Reading(NamedTuple):
    """What a convention makes of a measurement: utilization, FLOPs of a token without recomputation, tokens a second of all
    devices. ``reproduces`` which of mfu and hfu round to a printed figure; ``refused`` why the convention is not defined."""

    convention: str
    use: Utilization | None
    flops_per_token: Fraction | None
    tokens_per_second: float | None
    reproduces: tuple[str, ...]
    refused: str = ""


class Speed(NamedTuple):
    """What was measured: seconds of a step, or FLOP/s of a device as whoever measured it counts FLOPs."""

    seconds: float | None = None
    flops_per_second: int | None = None

    @classmethod
    def of(cls, what: str, value: float, tokens: int, devices: int) -> Speed:
        """From ``tokens_per_second`` of all devices, ``tokens_per_second_per_device``, ``flops_per_second`` or
        ``step_seconds``, of a step of so many tokens."""
        if not value > 0:
            raise InputError(f"a speed of {value!r}: it is above 0")
        if what == "flops_per_second":
            return cls(flops_per_second=int(value))
        if what == "step_seconds":
            return cls(value)
        return cls(tokens / value if what == "tokens_per_second" else tokens / (value * devices))


class Printed(NamedTuple):
    """A printed percentage, and half a unit of its last digit."""

    text: str
    value: Fraction
    half: Fraction

    def is_of(self, share: float) -> bool:
        """Does it round to this?"""
        return abs(Fraction(share) - self.value) <= self.half + Fraction(1, 10**12)


def printed(text: str) -> Printed:
    """``43%``, ``43.1`` or ``0.431``: a percentage, or a share below 1."""
    whole, dot, rest = text.strip().removesuffix("%").partition(".")
    if not (whole + rest).isascii() or not (whole + rest).isdigit() or len(whole) > 3 or len(rest) > 9:
        raise InputError(f"--printed {printable(text)}: expected a percentage such as 43%")
    value = Fraction(f"{whole or 0}.{rest or 0}")
    scale = 1 if "%" not in text and value <= 1 and dot else 100
    return Printed(text, value / scale, Fraction(1, 2 * 10 ** len(rest) * scale))


def readings(
    budget: Budget, speed: Speed, devices: int, peak: int, figure: Printed | None = None
) -> tuple[Reading, ...]:
    """The measurement under every convention, *budget* being a step of all devices; *peak* is FLOP/s of one."""
    return tuple(_reading(name, budget, speed, devices, peak, figure) for name in CONVENTIONS)


def _reading(name: str, budget: Budget, speed: Speed, devices: int, peak: int, figure: Printed | None) -> Reading:
    tokens = int(budget.step.b * budget.step.t)
    try:
        found = flops(budget, name)
    except UndefinedError as error:
        return Reading(name, None, None, None, (), str(error))
    model = Fraction(found.total - found.recompute)
    seconds = speed.seconds
    if seconds is None:
        seconds = float(model / (speed.flops_per_second or 1) / devices)
    use = utilization(budget, name, seconds, devices, peak)
    shares = {"mfu": use.mfu} if use.hfu == use.mfu else {"mfu": use.mfu, "hfu": use.hfu}
    matches = tuple(which for which, share in shares.items() if figure is not None and figure.is_of(share))
    return Reading(name, use, model / tokens, tokens / seconds, matches)
