"""What each operation of one rank does in each phase of a step: FLOPs, and the bytes that it moves to and from memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..budget import Budget, Widths, storage
from ..dims import Dim, larger, smaller
from ..parallel.collectives import Phase
from ..parallel.layout import Layout
from ..storage.precision import Precision
from ..storage.weights import Weight, weights
from ..tensor import Line, Tensor


class Cost(NamedTuple):
    """One line in one phase, all its copies: FLOPs in a type (two a multiply-add), and bytes moved."""

    path: str
    phase: Phase
    dtype: str
    flops: Dim
    nbytes: Dim  # no whole number where experts are reached on average
    launches: Dim  # kernels, one a copy where anything is computed or moved


class Counting(NamedTuple):
    """How FLOPs and bytes are counted.

    *products* is the type that linear maps and experts are computed in, that of the activations unless given. *fused*:
    lines without multiply-adds move nothing (but for look-ups, caches and the loss), nor do the scores of queries and keys,
    as when kernels keep them on chip; otherwise every line reads and writes its tensors. Gradients of weights have
    *gradient* bytes, and are added to: read and written.
    """

    precision: Precision = Precision()
    products: str | None = None
    fused: bool = False
    gradient: int = 4

    def dtype(self, weight: Weight | None) -> str:
        """The type in which a line with this weight multiplies."""
        narrow = weight is not None and weight.kind in ("linear", "expert")
        return self.products if narrow and self.products else self.precision.activation.name


def costs(budget: Budget, counting: Counting, layout: Layout) -> Iterator[Cost]:
    """Every line of a rank's budget (``shard``) forward, again where it is recomputed, and backward in training.

    Pairs are those that the mask lets through in a flash or fused kernel, and all in the math one. Backward a line reads the
    gradient of what it wrote, once for each of its two products, and what it saved, and writes the gradient of what it
    read. Of a bank of experts as many are read as the rows reach on average when they are routed evenly: e(1 − (1 − a/e)ᵀ).
    """
    moves = _Moves(budget, counting, layout)
    for line in budget.lines:
        pairs = line.pairs if budget.kernels.attention == "math" else line.visible
        times = 2 * line.copies * pairs
        dtype, forward = counting.dtype(moves.first(line)), moves.forward(line)
        phases: list[tuple[Phase, Dim, Dim, Dim]] = [("forward", line.forward, forward, 1)]
        if line.recomputed:
            phases.append(("recompute", line.forward, forward, 1))
        if budget.step.training:
            phases.append(("backward", line.dinput + line.dweight, moves.backward(line), _backward(line).any))
        for phase, work, moved, runs in phases:
            if work or moved:
                yield Cost(line.path, phase, dtype, times * work, moved, line.copies * runs)


def compulsory(budget: Budget, counting: Counting, layout: Layout) -> Dim:
    """Bytes that no fusion spares: weights once forward and once backward, their gradients written, caches read or written,
    what autograd keeps written and read."""
    moves = _Moves(budget, counting, layout)
    read = sum(moves.weights(line) for line in budget.lines)
    if budget.step.training:
        kept = budget.activations(moves.widths)
        written = sum(moves.gradients(line) for line in budget.lines)
        return 2 * read + written + 2 * (kept.bytes - kept.buffers)
    return read + (sum(budget.cache(moves.widths).values()) if budget.step.cache else 0)


class _Backward(NamedTuple):
    """Whether the gradients of a line's inputs, and those of its weights, are multiplied out: 1 or 0."""

    inputs: Dim
    weights: Dim

    @property
    def any(self) -> Dim:
        """Either."""
        return larger(self.inputs, self.weights)


def _backward(line: Line) -> _Backward:
    """What is always run of lines without multiply-adds counts as a gradient of inputs."""
    return _Backward(_some(line.dinput), _some(line.dweight)) if line.forward else _Backward(1, 0)


def _some(work: Dim) -> Dim:
    """1 where there is work, else 0."""
    return int(work != 0) if type(work) is int or work.is_positive else smaller(1, work)


_ALWAYS = ("lookup", "cache", "loss")


class _Moves:
    """Bytes that lines move."""

    def __init__(self, budget: Budget, counting: Counting, layout: Layout) -> None:
        self.counting = counting
        self.widths: Widths = counting.precision.widths()
        self.rows = budget.step.b * budget.step.t * layout.ep * layout.expert_tp / (layout.tp * layout.cp)
        self.ep = layout.ep
        self._known: Mapping[Tensor, Weight] = {weight.tensor: weight for weight in weights(budget)}

    def first(self, line: Line) -> Weight | None:
        """The line's first weight."""
        return self._known[line.weights[0]] if line.weights else None

    def forward(self, line: Line) -> Dim:
        """What is read, written, and the weights."""
        if self._stays(line):
            return 0
        if line.kind == "cache":  # the new positions, read and put in their places
            return 2 * self._bytes(line, line.read) if line.written else 0
        return self._bytes(line, line.read) + self._bytes(line, line.written) + self.weights(line)

    def backward(self, line: Line) -> Dim:
        """What was saved, the gradients of what was written and of what was read, and those of the weights, which are added
        to."""
        if self._stays(line) or line.kind == "cache":
            return 0
        made = _backward(line)
        moved = self._bytes(line, line.saved) + 2 * self.gradients(line)
        inputs = self._bytes(line, (x for x in line.read if x.grad and x.role not in ("index", "mask")))
        moved = made.any * moved + (made.inputs + made.weights) * self._bytes(line, line.written)
        return moved + made.inputs * (inputs + (self.weights(line) if line.dinput else 0))

    def weights(self, line: Line) -> Dim:
        """Those that the line reads; of a table the rows."""
        if line.kind == "lookup":
            return self._bytes(line, line.written)
        precision = self.counting.precision
        return sum(self._used(line, weight) * precision.nbytes(self._known[weight]) for weight in line.weights)

    def gradients(self, line: Line) -> Dim:
        """The gradients of its weights."""
        if line.kind == "lookup":
            return self._bytes(line, line.written)
        trained = (weight for weight in line.weights if weight.grad)
        return sum(self._used(line, weight) * weight.numel * self.counting.gradient for weight in trained)

    def _stays(self, line: Line) -> bool:
        """Does a fused kernel keep all of it on chip?"""
        return self.counting.fused and not line.forward and line.kind not in _ALWAYS

    def _bytes(self, line: Line, tensors: Iterable[Tensor]) -> Dim:
        total: Dim = 0
        for tensor in {storage(tensor, self.widths) for tensor in tensors}:
            if not (self.counting.fused and "t" in tensor.axes and "s" in tensor.axes):
                total += line.copies * tensor.numel * self.widths[tensor.role]
        return total

    def _used(self, line: Line, weight: Tensor) -> Dim:
        """How many copies are read: one a layer, and of experts those that any row reaches."""
        if line.bank == 1 or line.dense:
            return line.copies if line.bank == 1 else weight.copies
        share = weight.active / (weight.copies * self.ep)
        return weight.copies * (1 - (1 - share) ** self.rows)
