"""The fastest layout that fits: branch and bound over every way to divide devices, for a global batch of sequences.

Bounds are honest: no rank's memory is above the mean of all ranks' weights and states, no step shorter than the mean rank's
passes. What a split does to a stage is counted once and remembered. Candidates come off a queue by their bound, are bounded
more closely, then timed exactly, put back each time, and those that come off it at last are the fastest in order; the first
of them that fits is the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ..errors import BlockcalcError, InputError
from ..memory.held import Training
from ..model import Model
from ..parallel.layout import Layout
from ..recorder import Recompute
from ..timing.roofline import Setup
from ..timing.training import StepTime, training_step
from .fit import Fit, fit
from .known import Known
from .layouts import Split, Wanted, of, shares, splits

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


class Timed(NamedTuple):
    """A candidate with its exact time and memory."""

    candidate: Candidate
    layout: Layout
    run: Training
    step: StepTime
    fit: Fit


class Found(NamedTuple):
    """Those that fit, the fastest first; faster ones that do not, the nearest to fitting first; and how much was looked at:
    candidates in all, those too large by weights and states alone, those timed, those counted byte by byte; and why splits
    were refused."""

    best: tuple[Timed, ...]
    lost: tuple[Timed, ...]
    candidates: int
    too_large: int
    timed: int
    sized: int
    refused: Counter[str]


Progress = Callable[[int, int], None]
"""Called with candidates that are bounded, and all of them."""

STRIDE = 64
"""Candidates between two calls."""

NOTHING = "what is fixed of tp, cp, pp, dp and ep has to divide them, tp stay in a domain, and pp leave a layer a stage"

COARSE, CLOSE, EXACT = range(3)
"""How much is told of a candidate's time: a bound from one microbatch of the whole batch, one from its own, all of it."""


def search(task: Task, shown: int = 1, losers: int = 0, progress: Progress | None = None) -> Found:
    """The *shown* fastest layouts that fit, and *losers* faster ones that do not. Raises InputError where nothing divides."""
    return _Search(task, progress or (lambda done, total: None)).found(shown, losers)


class _Search:
    def __init__(self, task: Task, progress: Progress) -> None:
        if not task.run.step.training or task.run.adapters is not None:
            raise InputError("plan: layouts are searched for training all weights, and for serving")
        self.task, self.known, self.progress = task, Known(task), progress
        self.count = Counter[str]()
        self.refused = Counter[str]()
        self.undivided = Counter[str]()  # batches, which tell something only where no other candidate is

    def found(self, shown: int, losers: int) -> Found:
        queue = [(bound, COARSE, one) for bound, one in self.bounded()]
        if not self.count["candidates"]:
            why = (self.refused or self.undivided or Counter([NOTHING])).most_common(1)[0][0]
            raise InputError(f"plan: no layout of {self.task.devices} devices divides this model and its batch: {why}")
        heapify(queue)
        best: list[Timed] = []
        lost: list[tuple[int, float, Candidate]] = []
        while queue and len(best) < shown:
            bound, told, one = heappop(queue)
            if told == COARSE:
                heappush(queue, (max(bound, self.known.least_seconds(one)), CLOSE, one))
            elif told == CLOSE:
                seconds = self.seconds(one, bound)
                missing = 0 if seconds is None else self.known.kept(one) - self.task.available
                if seconds is not None and missing <= 0:
                    heappush(queue, (seconds, EXACT, one))
                elif seconds is not None:
                    lost.append((missing, seconds, one))
            elif not any(_alike(one, other.candidate) for other in best):
                found = self.size(one)
                if found.fits:
                    best.append(self.timed(one, found))
                else:
                    lost.append((-found.free, bound, one))
        return self.result(best, lost, losers)

    def result(self, best: Sequence[Timed], lost: list[tuple[int, float, Candidate]], losers: int) -> Found:
        """What was found, with those that lost by memory alone."""
        faster = sorted(one for one in lost if not best or one[1] < best[0].step.seconds)
        near: list[Candidate] = []
        for _, _, one in faster:
            if len(near) < losers and not any(_alike(one, other) for other in near):
                near.append(one)
        count = self.count
        beaten = tuple(self.timed(one, self.size(one)) for one in near)
        return Found(
            tuple(best), beaten, count["candidates"], count["too large"], count["timed"], count["sized"], self.refused
        )

    def seconds(self, one: Candidate, bound: float) -> float | None:
        """Its exact time; None where no link carries it."""
        self.count["timed"] += 1
        try:
            return max(bound, self.known.seconds(one))
        except BlockcalcError as error:
            self.refused[str(error)] += 1
            return None

    def size(self, one: Candidate) -> Fit:
        """All its bytes."""
        self.count["sized"] += 1
        layout, run = self.task.of(one)
        return fit(self.task.model, layout, run, self.task.available)

    def timed(self, one: Candidate, found: Fit) -> Timed:
        layout, run = self.task.of(one)
        step = training_step(
            self.task.model, self.task.setup._replace(layout=layout), run.step, run.microbatches, kernels=run.kernels,
            recompute=run.recompute, optimizer=run.optimizer,
        )  # fmt: skip
        return Timed(one, layout, run, step, found)

    # -- bounds --------------------------------------------------------------------------------------------------------

    def bounded(self) -> Iterator[tuple[float, Candidate]]:
        """Every candidate whose weights and states may fit, with a time that it cannot beat."""
        every = list(self.candidates())
        self.count["candidates"] = len(every)
        for done, one in enumerate(every, 1):
            if done % STRIDE == 0 or done == len(every):
                self.progress(done, len(every))
            if self.known.least_bytes(one) > self.task.available:
                self.count["too large"] += 1
            else:
                yield self.known.coarse_seconds(one), one

    def candidates(self) -> Iterator[Candidate]:
        """Every division of the devices, of the layers and of the batch, in every mode."""
        task, wanted = self.task, self.task.wanted
        for split, dp, pp in splits(task.model, task.devices, task.setup.machine.domain, wanted, training=True):
            if task.batch % (dp * (wanted.microbatch or 1)):
                self.undivided[f"batch = {task.batch} is not divisible by dp·microbatch = {dp}·{wanted.microbatch or 1}"] += 1
            if task.batch % dp or not self.runs(split):
                continue
            stages = (0,) if dp * split.cp == 1 else (0, 1, 2, 3)
            for chunks in self.chunks(pp):
                for microbatch in of(task.batch // dp, wanted.microbatch):
                    microbatches = task.batch // dp // microbatch
                    if chunks == 1 or microbatches % pp == 0:
                        for zero in stages if wanted.zero is None else (wanted.zero,):
                            for mode in MODES if wanted.recompute is None else (wanted.recompute,):
                                yield Candidate(split, pp, dp, chunks, zero, mode, microbatch, microbatches)

    def runs(self, split: Split) -> bool:
        """Can the model be split so?"""
        why = self.known.refusal(split)
        if why:
            self.refused[why] += 1
        return not why

    def chunks(self, pp: int) -> Iterator[int]:
        """Powers of two, no more pieces than layers."""
        if self.task.wanted.chunks is not None:
            yield self.task.wanted.chunks
            return
        chunks = 1
        while chunks == 1 or (pp > 1 and pp * chunks <= self.task.layers):
            yield chunks
            chunks *= 2


def _alike(one: Candidate, other: Candidate) -> bool:
    """Do they differ in ZeRO's stage alone?"""
    return one._replace(zero=0) == other._replace(zero=0)
