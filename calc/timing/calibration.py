"""How much of a machine's rates runs attain: factors fitted to runs that were measured."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, product
from math import inf, log
from statistics import fmean
from typing import NamedTuple

from ..errors import InputError
from .efficiency import Profile
from .roofline import Time


class Pass(NamedTuple):
    """One pass at the best product, all of the memory and all of the links, so that other factors need no new trace.

    Lines stand in the order in which they turn from waiting for memory to waiting for compute as the memory's factor grows.
    """

    turns: tuple[float, ...]  # compute over memory of each line, ascending
    compute: tuple[float, ...]  # seconds of compute of the lines from each one on
    memory: tuple[float, ...]  # seconds of memory of the lines before each one
    kernels: float
    waits: float  # seconds of links that computation waits for
    beside: float  # seconds of links beside it

    @classmethod
    def of(cls, time: Time, profile: Profile) -> Pass:
        """A pass that was timed at the profile's factors, without latency."""
        lines = [(part.compute * profile.product, part.memory * profile.memory) for part in time.parts if not part.link]
        lines.sort(key=_turn)
        compute = tuple(accumulate((line[0] for line in reversed(lines)), initial=0.0))
        return cls(
            tuple(map(_turn, lines)), compute[::-1], tuple(accumulate((line[1] for line in lines), initial=0.0)),
            sum(part.launch for part in time.parts) / profile.launch,
            profile.link * sum(part.link for part in time.parts if not part.hidden),
            profile.link * sum(part.link for part in time.parts if part.hidden),
        )  # fmt: skip

    def local(self, profile: Profile) -> float:
        """Seconds without links: each line as long as the longer of its compute and its memory, and a launch."""
        split = bisect_right(self.turns, profile.product / profile.memory)
        return self.compute[split] / profile.product + self.memory[split] / profile.memory + self.kernels * profile.launch

    def seconds(self, profile: Profile) -> float:
        """Seconds with what of the links computation does not hide."""
        local = self.local(profile)
        return local + self.waits / profile.link + max(0.0, self.beside / profile.link - local)


def _turn(line: tuple[float, float]) -> float:
    compute, memory = line
    return compute / memory if memory else inf


class Trial(NamedTuple):
    """A measured run: its seconds, its passes and how often each runs, and in training what a step does besides."""

    measured: float
    passes: tuple[tuple[float, Pass], ...]
    data: float = 0.0  # seconds of links over data ranks, at their peak
    behind: float = 0.0  # passes of the first kind that these hide behind
    moved: float = 0.0  # seconds that the optimizer moves bytes, at the memory's peak

    def seconds(self, profile: Profile) -> float:
        """What the estimate is at these factors."""
        found = sum(times * each.seconds(profile) for times, each in self.passes) + self.moved / profile.memory
        if not self.data:
            return found
        return found + max(0.0, self.data / profile.link - self.behind * self.passes[0][1].local(profile))

    def error(self, profile: Profile) -> float:
        """Estimated over measured time, less one."""
        return self.seconds(profile) / self.measured - 1


class Grid(NamedTuple):
    """The factors that a fit tries: shares of the best product, shares of the bandwidth, seconds a kernel.

    No run moves bytes faster than a benchmark that does nothing else: shares of the bandwidth end near that one's 0.83.
    """

    product: tuple[float, ...]
    memory: tuple[float, ...]
    launch: tuple[float, ...]


GRID = Grid(
    product=tuple(percent / 100 for percent in range(30, 101, 5)), memory=tuple(percent / 100 for percent in range(30, 86, 5)),
    launch=tuple(half * 5e-7 for half in range(31)),
)  # fmt: skip
"""Every twentieth, and every half microsecond."""


def fit(trials: Mapping[str, Sequence[Trial]], start: Profile, grid: Grid = GRID) -> Profile:
    """The grid's factors of the least error: the mean of |ln(estimated/measured)| over the trials of a kind, and over kinds.

    What the grid does not have (links) stays as in *start*. Of equals the first of the grid wins. Raises InputError where
    a kind has no trials.
    """
    for kind, found in trials.items():
        if not found:
            raise InputError(f"fit: {kind}: no trials")
    if not trials:
        raise InputError("fit: no trials")

    def error(profile: Profile) -> float:
        return fmean(fmean(abs(log(each.seconds(profile) / each.measured)) for each in found) for found in trials.values())

    tried = (start._replace(product=one, memory=two, launch=three) for one, two, three in product(*grid))
    return min(tried, key=error)
