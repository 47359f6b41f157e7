"""What a search of layouts is asked, and a candidate that it looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..memory.held import Training
from ..model import Model
from ..parallel.layout import Layout
from ..recorder import Recompute
from ..timing.roofline import Setup
from .layouts import Split, Wanted, shares

MODES: tuple[Recompute, ...] = ("none", "selective", "full")


class Candidate(NamedTuple):
    """A layout with its microbatches."""

    split: Split
    pp: int
    dp: int
    chunks: int
    zero: int
    recompute: Recompute
    microbatch: int  # sequences
    microbatches: int

    def layout(self, layers: int) -> Layout:
        """Its layers dealt out as evenly as can be."""
        stages = shares(layers, self.pp * self.chunks)
        return self.split.layout(self.dp, self.pp, self.chunks, self.zero, stages)


class Task(NamedTuple):
    """A global batch of sequences to train on so many devices; *run* says of what length, with which kernels and optimizer."""

    model: Model
    setup: Setup  # a machine, how work is counted, what is attained; its layout is not read
    devices: int
    batch: int
    run: Training
    available: int  # bytes a device
    wanted: Wanted = Wanted()

    @property
    def layers(self) -> int:
        """Layers of the stack that pipeline stages divide."""
        return sum(int(count) for _, count in self.model.stack.runs())

    def of(self, one: Candidate) -> tuple[Layout, Training]:
        """The layout and the run of a candidate."""
        step = replace(self.run.step, b=one.microbatch)
        run = replace(self.run, step=step, microbatches=one.microbatches, recompute=one.recompute)
        return one.layout(self.layers), run
