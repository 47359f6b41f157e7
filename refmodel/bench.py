"""How long a block should take by its ledger and by what the machine does a second, and how long its twin takes.

A line is a roofline: the larger of its FLOPs over the rate of products of its shape and its bytes over the bandwidth of its
kind, and at least the time of one operation. Williams, Waterman and Patterson 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from statistics import mean, median
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..budget import Budget, widths
from ..catalogue import BLOCKS, Entry
from ..errors import UndefinedError
from ..model import trace
from ..tensor import Line, Step
from .build import build
from .context import Caches, Run
from .dispatch import Given
from .machine import Cost, Machine, at, keep_memory, measured, seconds

Phase: TypeAlias = Literal["forward", "backward", "decode"]

FP32 = widths("fp32")
SCALES = ((256, 128, 2**27, 2**25), (512, 256, 2**29, 2**26))
"""Width, length, and the multiply-adds or the bytes of a forward pass that the batch is doubled to reach."""
LARGEST, VOCABULARY = 10, 4096
"""How often it is doubled at most: what reaches too little by then (a table of positions alone) has no time to tell."""


class Point(NamedTuple):
    """One block at one size in one phase: FLOPs and bytes of the ledger, seconds predicted and measured."""

    block: str
    d: int
    batch: int
    seq: int
    phase: Phase
    flops: int
    bytes: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1


# -- the prediction -------------------------------------------------------------------------------------------------------


def predicted(budget: Budget, machine: Machine, *, backward: bool = False) -> float:
    """Seconds of a forward pass, or of the backward pass after it, by the ledger."""
    total = sum(line.copies * _line(line, budget, machine, backward) for line in budget.lines)
    return total + (_sums(budget, machine) if backward else 0.0)


def _line(line: Line, budget: Budget, machine: Machine, backward: bool) -> float:
    way = 1 if backward else 0
    moved = sum(tensor.numel * FP32[tensor.role] for tensor in (*line.read, *line.written))
    if line.forward and line.weights:
        return _linear(line, machine, way)
    if line.forward:
        work = 2 * line.forward * line.pairs
        kind = line.path.rpartition(".")[2]
        time = work * at(machine.attention[kind if kind in machine.attention else "mix"][way], budget.step.t)
        return max(time, _bytes(machine.moves["copy"], way, moved)) + _expanded(line, machine, way)
    if line.kind == "cast" or not any(tensor.numel for tensor in line.written):
        return 0.0
    return max(machine.overhead, _bytes(machine.moves[_kind(line)], way, moved))


def _bytes(cost: Cost, way: int, moved: float) -> float:
    return moved * at(cost[way], moved)


def _linear(line: Line, machine: Machine, way: int) -> float:
    """Rows times a weight, for each of the experts that the rows reach; backward both gradients."""
    weight = line.weights[0]
    rows = line.forward // weight.numel
    reached = max(1, min(weight.copies // line.copies, rows))
    each, width = max(1, rows // reached), math.sqrt(weight.numel)
    curve = tuple((float(wide), at(cost[way], each)) for wide, cost in machine.products.items())
    work = line.forward if way == 0 else line.dinput + line.dweight
    moved = 4 * (weight.numel * reached + sum(tensor.numel for tensor in (*line.read, *line.written)))
    return max(2 * work * at(curve, width), moved / machine.bandwidth, reached * machine.overhead)


def _expanded(line: Line, machine: Machine, way: int) -> float:
    """Keys and values repeated for each group of heads, before the math kernel: what it keeps is more than what it reads."""
    time = 0.0
    for tensor in line.read[1:]:
        heads = tensor["k"] if "k" in tensor.axes else line.heads
        if line.heads != heads:
            time += _bytes(machine.moves["gather"], way, 2 * 4 * tensor.numel // heads * line.heads)
    return time


def _kind(line: Line) -> str:
    """The kind of line in the machine's words."""
    name = line.path.rpartition(".")[2]
    if line.kind == "norm":
        return (
            "layer norm" if len(line.weights) == 2 or (len(line.saved) == 3 and line.saved[0] is line.read[0]) else "rms norm"
        )
    if line.kind == "act":
        if name in ("softmax", "scores"):
            return "softmax"
        return "act input" if line.read[0] in line.saved else "act output"
    return {"lookup": "gather", "index": "gather", "sort": "gather"}.get(line.kind, line.kind)


def _sums(budget: Budget, machine: Machine) -> float:
    """Backward, the gradients of a tensor that several lines read are added up."""
    readers: dict[Any, int] = {}
    for line in budget.lines:
        for tensor in line.read:
            if tensor.grad:
                readers[tensor.storage] = readers.get(tensor.storage, 0) + 1
    moves = (3 * 4 * tensor.numel for tensor, count in readers.items() for _ in range(count - 1))
    return sum(_bytes(machine.moves["add"], 0, moved) for moved in moves)


# -- sizes ----------------------------------------------------------------------------------------------------------------


def sizes_of(entry: Entry, d: int, t: int) -> dict[str, int]:
    """The block's letters at a width and a length: heads of 64, four a group, feed-forwards of 4d (experts of d)."""
    n, small = d // 64, not {"n", "d"} <= set(entry.sizes)
    usual = {
        "d": d, "n": n, "k": max(1, n // 4), "h": 64, "f": d if "e" in entry.sizes else 4 * d, "e": 8, "c": d // 4, "q": d // 2,
        "p": 64, "r": 32, "u": 64, "v": VOCABULARY, "i": 32, "w": t // 2, "m": t if small else 64,
    }  # fmt: skip
    return {letter: usual.get(letter, size) for letter, size in entry.sizes.items()}


def subjects(names: Iterable[str], scales: Sequence[tuple[int, int, int, int]] = SCALES) -> Iterator[Subject]:
    """Each block at each scale, but those that the batch makes no longer."""
    for d, t, work, moved in scales:
        for name in names:
            component, width = BLOCKS[name].build(sizes_of(BLOCKS[name], d, t))
            for b in (2**power for power in range(LARGEST + 1)):
                budget = trace(component, Step.forward(b, t), width)
                if budget.work().forward >= work or budget.traffic(FP32) >= moved:
                    yield Subject(name, component, width, b, t)
                    break


class Subject(NamedTuple):
    """A block at one size."""

    name: str
    component: Any
    d: int
    b: int
    t: int

    def budgets(self) -> dict[Phase, Budget]:
        """The ledger of each phase; decoding only where a cache is read."""
        found: dict[Phase, Budget] = {}
        train = trace(self.component, Step.train(self.b, self.t), self.d)
        found["forward"] = found["backward"] = train
        try:
            decode = trace(self.component, Step.decode(16 * max(1, self.b // 4), self.t), self.d)
        except UndefinedError:
            return found
        if any(entry.tensor.role == "key_value" for line in decode.lines for entry in line.cached):
            found["decode"] = decode
        return found


# -- the measurement ------------------------------------------------------------------------------------------------------


class Twin:
    """A block's twin and its passes. Rotary tables and masks are made once, as in a model."""

    def __init__(self, subject: Subject, device: str, decode: Budget | None) -> None:
        self.device, self.subject = device, subject
        with torch.device(device):
            self.twin = build(subject.component, subject.d, Given(t=subject.t))
            self.buffers: dict[Any, Tensor] = {}
            self.x, self.memory = self._vectors(subject.b, subject.t), self._vectors(subject.b, subject.t)
            self.tokens = torch.randint(VOCABULARY, (subject.b, subject.t))
            self.takes = len(signature(self.twin.forward).parameters)
            self.held: dict[Any, tuple[Tensor, ...]] = {}
            self.kinds: dict[Any, Any] = {}
            if decode is not None:
                self._fill(decode.step.b)

    def _vectors(self, b: int, t: int) -> Tensor:
        return torch.randn(b, t, self.subject.d, requires_grad=True)

    def _fill(self, b: int) -> None:
        """The caches of all positions but the last."""
        caches, t = Caches(), self.subject.t
        self.tokens_new = torch.randint(VOCABULARY, (b, t))
        self.x_new, self.memory_new = (self._vectors(b, t).detach() for _ in range(2))
        with torch.no_grad():
            self._run(self.x_new[:, :-1], self.memory_new, self.tokens_new[:, :-1], caches)
        self.held, self.kinds = caches.held, caches.kinds

    def _run(self, x: Tensor, memory: Tensor, tokens: Tensor, caches: Caches | None = None) -> Tensor:
        run = Run(caches=caches, memory=memory, tokens=tokens, buffers=self.buffers)
        with torch.device(self.device):
            out: Tensor = self.twin(*(x, x)[: max(1, self.takes - 1)], run) if self.takes > 1 else self.twin(x)
        return out

    def times(self, phases: Iterable[Phase]) -> Iterator[tuple[Phase, float]]:
        """The seconds of each phase, once."""
        for tensor in (self.x, self.memory, *self.twin.parameters()):
            tensor.grad = None
        outs: list[Tensor] = []
        yield "forward", seconds(self.device, lambda: outs.append(self._run(self.x, self.memory, self.tokens)))
        gradient = torch.ones_like(outs[0])
        yield "backward", seconds(self.device, lambda: outs[0].backward(gradient))
        if "decode" in phases:
            outs.clear()
            caches = Caches(length=self.subject.t - 1, held=dict(self.held), kinds=dict(self.kinds))
            last = self.x_new[:, -1:], self.memory_new, self.tokens_new[:, -1:]
            with torch.no_grad():
                yield "decode", seconds(self.device, lambda: self._run(*last, caches))


def benched(
    names: Iterable[str], device: str = "cpu", rounds: int = 2, repeats: int = 2, probes: int = 7,
    scales: Sequence[tuple[int, int, int, int]] = SCALES, tell: Callable[[float], object] = lambda share: None,
) -> tuple[list[Machine], list[Point]]:  # fmt: skip
    """Every block at every scale in every phase, and the machine.

    Each round measures the machine, a rate being the median of *probes* runs, and then runs every block, so that a slow
    minute falls on all alike: a twin is built, warmed up once and run *repeats* times. Of a point the median of all runs
    counts, and the mean of the rounds' predictions.
    """
    threads = torch.get_num_threads()
    if device == "cpu":
        keep_memory()
        torch.set_num_threads(1)
    try:
        return _benched(list(names), device, rounds, repeats, probes, scales, tell)
    finally:
        torch.set_num_threads(threads)


def _benched(
    names: list[str], device: str, rounds: int, repeats: int, probes: int, scales: Sequence[tuple[int, int, int, int]],
    tell: Callable[[float], object],
) -> tuple[list[Machine], list[Point]]:  # fmt: skip
    every = [(subject, subject.budgets()) for subject in subjects(names, scales)]
    machines: list[Machine] = []
    runs: dict[tuple[int, Phase], list[float]] = {}
    for lap in range(rounds):
        machines.append(measured(device, probes, lambda share: tell((lap + share / 3) / rounds)))  # noqa: B023
        for index, (subject, budgets) in enumerate(every):
            twin = Twin(subject, device, budgets.get("decode"))
            for repeat in range(repeats + 1):
                for phase, time in twin.times(budgets):
                    if repeat:
                        runs.setdefault((index, phase), []).append(time)
            tell((lap + (1 + 2 * (index + 1) / len(every)) / 3) / rounds)
    return machines, [
        _point(every[index][0], every[index][1][phase], phase, machines, median(times))
        for (index, phase), times in runs.items()
    ]


def _point(subject: Subject, budget: Budget, phase: Phase, machines: list[Machine], time: float) -> Point:
    work, backward = budget.work(), phase == "backward"
    expected = mean(predicted(budget, machine, backward=backward) for machine in machines)
    flops, moved = 2 * (work.backward if backward else work.forward), budget.traffic(FP32)
    return Point(subject.name, subject.d, budget.step.b, subject.t, phase, flops, moved, expected, time)


# -- how well -------------------------------------------------------------------------------------------------------------


class Fit(NamedTuple):
    """How well the prediction holds over points."""

    points: int
    correlation: float
    error: float


def fit(points: Sequence[Point]) -> Fit:
    """Spearman's rank correlation and the median absolute error."""
    correlation = spearman([p.predicted for p in points], [p.measured for p in points]) if len(points) > 1 else math.nan
    return Fit(len(points), correlation, median(abs(p.error) for p in points))


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman 1904: the correlation of the ranks, equal values taking the mean of theirs.

    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    x, y = _ranks(a), _ranks(b)
    middle = mean(x)
    spread = math.sqrt(sum((i - middle) ** 2 for i in x) * sum((j - middle) ** 2 for j in y))
    return sum((i - middle) * (j - middle) for i, j in zip(x, y, strict=True)) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    places: Mapping[float, list[int]] = {value: [] for value in values}
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [mean(places[value]) for value in values]
