"""Time of one pass of one rank on a machine: a lower bound and an estimate, both by named factors and nothing else.

Lower bound: the longest of compute, memory and links, each at its peak, everything at once (Williams, Waterman and
Patterson 2009, doi:10.1145/1498765.1498785). Estimate: each line takes the longer of its compute and its memory, at the
fractions of the peaks that an ``Efficiency`` names, and a launch; one line after the other, and collectives that are not
hidden wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from ..budget import Budget, Widths
from ..dims import Dim, larger, largest
from ..parallel.collectives import Collective, Phase, collectives
from ..parallel.layout import Layout
from ..parallel.shard import shard
from .costs import Cost, Counting, compulsory, costs
from .efficiency import Efficiency
from .links import seconds
from .machine import Machine

Bottleneck: TypeAlias = Literal["compute", "memory", "link", "launch"]
"""FLOP/s, bytes/s of the memory, links, or the time that kernels cost whatever they do."""


class Setup(NamedTuple):
    """What runs where: a machine, how the model lies on several of them, how work is counted, what of the peaks is attained.

    Unless given, the efficiency is ``Efficiency.of`` the machine.
    """

    machine: Machine
    layout: Layout = Layout()
    counting: Counting = Counting()
    efficiency: Efficiency | None = None

    @property
    def attained(self) -> Efficiency:
        """The efficiency in use."""
        return self.efficiency or Efficiency.of(self.machine)


class Part(NamedTuple):
    """Seconds of a line, or of a collective, in one phase, at the estimate's efficiencies."""

    path: str
    phase: Phase
    compute: Dim = 0.0
    memory: Dim = 0.0
    launch: Dim = 0.0
    link: Dim = 0.0
    hidden: bool = False  # a collective beside computation

    @property
    def local(self) -> Dim:
        """Without links."""
        return larger(self.compute, self.memory) + self.launch

    @property
    def bottleneck(self) -> Bottleneck:
        """What it waits for longest."""
        if self.link:
            return "link"
        names: tuple[Bottleneck, ...] = ("compute", "memory", "launch")
        return max(names, key=lambda name: getattr(self, name))


class Peak(NamedTuple):
    """Seconds of all compute, all memory traffic and all links, each alone and at its peak."""

    compute: Dim
    memory: Dim
    link: Dim

    @property
    def seconds(self) -> Dim:
        """The longest: nothing is faster."""
        return largest(self)

    @property
    def bottleneck(self) -> Bottleneck:
        """Which that is."""
        names: tuple[Bottleneck, ...] = ("compute", "memory", "link")
        return names[self.index(max(self))]


class Time(NamedTuple):
    """One pass of one rank. ``flops`` are computed, ``nbytes`` moved to and from memory line by line, ``sent`` over links."""

    peak: Peak
    parts: tuple[Part, ...]
    flops: Dim
    nbytes: Dim
    sent: Dim

    @property
    def lower(self) -> Dim:
        """Seconds that no run can beat."""
        return self.peak.seconds

    @property
    def exposed(self) -> Dim:
        """Seconds of links that computation does not hide."""
        waits = sum(part.link for part in self.parts if not part.hidden)
        beside = sum(part.link for part in self.parts if part.hidden)
        return waits + larger(0.0, beside - self.local)

    @property
    def local(self) -> Dim:
        """Seconds of the lines, without links."""
        return sum(part.local for part in self.parts)

    @property
    def estimate(self) -> Dim:
        """Seconds, lines one after the other, and what of the links is not hidden."""
        return self.local + self.exposed

    @property
    def bottleneck(self) -> Bottleneck:
        """What the estimate waits for longest."""
        waits = self.waits()
        return max(waits, key=waits.__getitem__)

    def waits(self) -> dict[Bottleneck, float]:
        """The estimate's seconds by what they wait for; their sum is the estimate."""
        found: dict[Bottleneck, float] = {"compute": 0.0, "memory": 0.0, "launch": 0.0, "link": self.exposed}
        for part in self.parts:
            found["launch"] += part.launch
            found["compute" if part.compute >= part.memory else "memory"] += max(part.compute, part.memory)
        return found

    def phases(self, *names: Phase) -> Time:
        """The same of some phases alone; its ``peak`` and counts stay those of all."""
        return self._replace(parts=tuple(part for part in self.parts if part.phase in names))

    def by_path(self, depth: int = 3) -> dict[str, float]:
        """Seconds by the first words of the path, the longest first; hidden collectives stand with all of theirs."""
        found: dict[str, float] = {}
        for part in self.parts:
            path = ".".join(part.path.split(".")[:depth])
            found[path] = found.get(path, 0.0) + part.local + part.link
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def roofline(whole: Budget, setup: Setup, extra: Sequence[Collective] = ()) -> Time:
    """One pass of one rank over a whole trace: forward, or forward and backward in training.

    Of a model in pipeline stages *whole* is one stage's trace, and *extra* what it sends (``sends``). Raises InputError and
    UndefinedError where the layout does not split the trace, or the machine has no such rate or link.
    """
    machine, layout, counting, _ = setup
    part = shard(whole, layout)
    sent = (*collectives(whole, layout), *extra)
    lines = tuple(costs(part, counting, layout))
    widths = counting.precision.widths()
    peak = Peak(
        compute=sum(cost.flops / machine.peak(cost.dtype) for cost in lines if cost.flops),
        memory=compulsory(part, counting, layout) / machine.bandwidth,
        link=sum(seconds(each, layout, machine, widths) for each in sent),
    )
    return Time(
        peak, (*(_local(cost, setup) for cost in lines), *links(sent, setup, widths)), sum(cost.flops for cost in lines),
        sum(cost.nbytes for cost in lines), sum(each.sent(widths) for each in sent),
    )  # fmt: skip


def _local(cost: Cost, setup: Setup) -> Part:
    machine, attained = setup.machine, setup.attained
    compute = cost.flops / machine.peak(cost.dtype) / attained.compute if cost.flops else 0.0
    memory = cost.nbytes / machine.bandwidth / attained.memory
    return Part(cost.path, cost.phase, compute, memory, cost.launches * attained.launch)


def links(sent: Iterable[Collective], setup: Setup, widths: Widths) -> tuple[Part, ...]:
    """The collectives as parts of the estimate."""
    attained = setup.attained
    return tuple(
        Part(
            each.path, each.phase, link=seconds(each, setup.layout, setup.machine, widths, attained),
            hidden=each.group in attained.hidden,
        )
        for each in sent
        if each.ranks != 1
    )  # fmt: skip


def merged(times: Sequence[Time]) -> Time:
    """Passes one after the other."""
    peak = Peak(*(sum(values) for values in zip(*(time.peak for time in times), strict=True)))
    parts = tuple(part for time in times for part in time.parts)
    return Time(peak, parts, *(sum(values) for values in zip(*(time[2:] for time in times), strict=True)))
