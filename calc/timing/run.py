"""A whole run: days, device hours, energy, cost; and how much of the peak it uses, under a named convention."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ..budget import Budget
from ..convention import flops
from ..errors import InputError
from .machine import Machine


class Run(NamedTuple):
    """Seconds, device hours, kilowatt hours of the devices alone (at their limit; None where that is not known), cost."""

    seconds: float
    device_hours: float
    kilowatt_hours: float | None
    cost: float | None

    @property
    def days(self) -> float:
        """Days of 24 hours."""
        return self.seconds / 86400


def run(
    work: float, rate: float, devices: int, machine: Machine | None = None, *, price: float | None = None, overhead: float = 1.0
) -> Run:
    """So much *work* at *rate* a second **and device**: tokens and tokens/s, or FLOPs and FLOP/s.

    *price* is of a device hour in any currency, *overhead* what a building draws over what its devices do.
    """
    for name, value in (("work", work), ("rate", rate), ("devices", devices), ("overhead", overhead)):
        if not value > 0:
            raise InputError(f"run: {name} = {value!r}, but it is above 0")
    if price is not None and not price >= 0:
        raise InputError(f"run: price = {price!r}, but it is at least 0")
    hours = work / rate / 3600
    watts = machine.watts if machine is not None else None
    energy = hours * watts * overhead / 1000 if watts is not None else None
    return Run(work / rate / devices, hours, energy, None if price is None else hours * price)


class Utilization(NamedTuple):
    """Model FLOPs utilization, forward and backward; hardware FLOPs utilization, recomputation in; fractions of the peak.

    Chowdhery et al. 2022, arXiv:2204.02311, section 4.1 and appendix B.
    """

    convention: str
    mfu: float
    hfu: float
    flops: int  # of the step, without recomputation
    peak: int  # FLOP/s of one device


def utilization(
    budget: Budget, convention: str, seconds: float, devices: int, peak: int, microbatches: int = 1
) -> Utilization:
    """That of *microbatches* of a step (all of them, over all data ranks) that together take *seconds* on *devices*.

    Some conventions count recomputation in their formula (megatron-2021): both then do as the formula says.
    """
    if not (seconds > 0 and devices > 0 and peak > 0 and microbatches > 0):
        raise InputError("utilization: seconds, devices, peak and microbatches are above 0")
    found = flops(budget, convention)
    model, hardware = ((found.total - found.recompute) * microbatches, found.total * microbatches)
    available = Fraction(seconds) * devices * peak
    return Utilization(convention, float(model / available), float(hardware / available), int(model), peak)
