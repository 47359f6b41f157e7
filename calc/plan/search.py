"""The fastest layout that fits: branch and bound over every way to divide devices, for a global batch of sequences.

Bounds are honest: no rank's memory is below the mean of all ranks' weights and states, no step shorter than the mean rank's
passes. What a split does to a section of the model is counted once and remembered. Candidates that differ in microbatches and
interleaving alone come off a queue together, by the bound of the best of them; then each by its own, is bounded more closely,
then timed exactly, put back each time, and those that come off it at last are the fastest in order; the first of them that
fits is the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import NamedTuple

from ..errors import BlockcalcError, InputError
from ..memory.held import Training
from ..parallel.layout import Layout
from ..timing.training import StepTime, training_step
from .fit import Fit, fit
from .known import Known
from .layouts import Split, of, splits
from .room import SAFE
from .task import MODES, Candidate, Task


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

FAMILY, COARSE, CLOSE, EXACT = range(4)
"""How much is told of a candidate's time: a bound for all of its family; from one microbatch of the whole batch; from its own;
all of it."""


class Family(NamedTuple):
    """Candidates that differ in microbatches and interleaving: one that idles no more than any, and (chunks, microbatch) of
    each."""

    least: Candidate
    members: tuple[tuple[int, int], ...]

    def candidates(self) -> Iterator[Candidate]:
        """All of them."""
        sequences = self.least.microbatch * self.least.microbatches
        for chunks, microbatch in self.members:
            yield self.least._replace(chunks=chunks, microbatch=microbatch, microbatches=sequences // microbatch)


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
        self.times: dict[Candidate, float | None] = {}
        self.undivided = Counter[str]()  # batches, which tell something only where no other candidate is

    def found(self, shown: int, losers: int) -> Found:
        families = list(self.families())
        if not families:
            why = (self.refused or self.undivided or Counter([NOTHING])).most_common(1)[0][0]
            raise InputError(f"plan: no layout of {self.task.devices} devices divides this model and its batch: {why}")
        members = {family.least: family for family in families}
        queue = [(bound, FAMILY, family.least) for bound, family in self.bounded(families)]
        heapify(queue)
        best: list[Timed] = []
        lost: list[tuple[int, float, Candidate]] = []
        while queue and len(best) < shown:
            bound, told, one = heappop(queue)
            if told == FAMILY:
                for each in members[one].candidates():
                    heappush(queue, (max(bound, self.known.coarse_seconds(each)), COARSE, each))
            elif told == COARSE:
                heappush(queue, (max(bound, self.known.least_seconds(one)), CLOSE, one))
            elif told == CLOSE:
                missing = self.missing(one)
                if missing > 0:
                    lost.append((missing, bound, one))
                elif (seconds := self.seconds(one, bound)) is not None:
                    heappush(queue, (seconds, EXACT, one))
            elif not any(_alike(one, other.candidate) for other in best):
                found = self.size(one)
                if found.fits:
                    best.append(self.timed(one, found))
                else:
                    lost.append((-found.free, bound, one))
        return self.result(best, lost, losers)

    def result(self, best: Sequence[Timed], lost: list[tuple[int, float, Candidate]], losers: int) -> Found:
        """What was found, with those that lost by memory alone."""
        beaten = list(islice(self.near(lost, SAFE * best[0].step.seconds if best else inf), losers))
        count = self.count
        return Found(
            tuple(best), tuple(beaten), count["candidates"], count["too large"], count["timed"], count["sized"], self.refused
        )

    def missing(self, one: Candidate) -> int:
        """Bytes for which there is no room, at least; none where it may fit."""
        kept = self.known.kept(one)
        if kept <= self.task.available:
            kept = self.known.kept(one, gathered=True)
        return max(0, kept - self.task.available)

    def near(self, lost: list[tuple[int, float, Candidate]], limit: float) -> Iterator[Timed]:
        """Those faster than so many seconds, the nearest to fitting first, of equals the fastest; of those alike one."""
        queue: list[tuple[int, bool, float, Candidate]] = [(missing, False, bound, one) for missing, bound, one in lost]
        heapify(queue)
        sizes: dict[Candidate, Fit] = {}
        shown: list[Candidate] = []
        while queue:
            _, sized, bound, one = heappop(queue)
            if bound >= limit or any(_alike(one, other) for other in shown):
                continue
            if sized:
                shown.append(one)
                yield self.timed(one, sizes[one])
            elif (seconds := self.seconds(one, bound)) is not None and seconds < limit:
                sizes[one] = self.size(one)
                heappush(queue, (-sizes[one].free, True, seconds, one))

    def seconds(self, one: Candidate, bound: float) -> float | None:
        """Its exact time; None where no link carries it."""
        if one not in self.times:
            self.count["timed"] += 1
            try:
                self.times[one] = max(bound, self.known.seconds(one))
            except BlockcalcError as error:
                self.refused[str(error)] += 1
                self.times[one] = None
        return self.times[one]

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

    def bounded(self, families: Sequence[Family]) -> Iterator[tuple[float, Family]]:
        """Every family whose weights and states may fit, with a time that none of it can beat."""
        total = sum(len(family.members) for family in families)
        for family in families:
            before = self.count["candidates"]
            self.count["candidates"] += len(family.members)
            if before // STRIDE != self.count["candidates"] // STRIDE or self.count["candidates"] == total:
                self.progress(self.count["candidates"], total)
            if self.known.least_bytes(family.least) > self.task.available:
                self.count["too large"] += len(family.members)
            else:
                yield self.known.coarse_seconds(family.least), family

    def families(self) -> Iterator[Family]:
        """Every division of the devices, of the layers and of the batch, in every mode."""
        task, wanted = self.task, self.task.wanted
        for split, dp, pp in splits(task.model, task.devices, task.setup.machine.domain, wanted, training=True):
            if task.batch % (dp * (wanted.microbatch or 1)):
                self.undivided[f"batch = {task.batch} is not divisible by dp·microbatch = {dp}·{wanted.microbatch or 1}"] += 1
            if task.batch % dp or not self.runs(split):
                continue
            sequences = task.batch // dp
            members = tuple(
                (chunks, microbatch)
                for chunks in self.chunks(pp) for microbatch in of(sequences, wanted.microbatch)
                if chunks == 1 or sequences // microbatch % pp == 0
            )  # fmt: skip
            if not members:
                continue
            chunks, microbatch = max(chunks for chunks, _ in members), min(microbatch for _, microbatch in members)
            stages = (0,) if dp * split.cp == 1 else (0, 1, 2, 3)
            for zero in stages if wanted.zero is None else (wanted.zero,):
                for mode in MODES if wanted.recompute is None else (wanted.recompute,):
                    least = Candidate(split, pp, dp, chunks, zero, mode, microbatch, sequences // microbatch)
                    yield Family(least, members)

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
