"""What one device of each pipeline rank holds, by part, in training and in serving.

Data ranks differ only where something does not divide; what is counted is the first, which has no less than another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from ..budget import Activations, Budget, Policy, Widths
from ..convention import flops
from ..declare import declaration
from ..dims import Dim, largest, smaller, spread
from ..errors import UndefinedError
from ..model import Model
from ..parallel.collectives import collectives
from ..parallel.layout import Layout
from ..parallel.shard import Shards, fully_sharded, shard
from ..parallel.stages import Stage, in_flight, stages
from ..recorder import Recompute
from ..storage.optimizers import ADAMW_MIXED, Optimizer, large
from ..storage.precision import Precision, weight_bytes
from ..storage.weights import Weight, weights
from ..tensor import Adapters, Kernels, Line, Step, Tensor
from .alive import Pass, Sent
from .allocator import counted
from .frameworks import TORCH, Framework


class Held(NamedTuple):
    """Bytes on a device of pipeline rank ``rank``, by part; the total is their sum.

    ``weights``, ``gradients``, ``master`` and the optimizer's states; ``frozen`` weights; ``activations`` kept for the
    microbatches in flight; ``buffers``; the ``kv_cache``; ``gathered`` weights that ZeRO 3 has whole for a moment;
    ``working``, what is alive besides at the worst moment; a framework's ``placeholders`` of weights' gradients and the
    gradient last ``sent`` back; the ``workspace`` of libraries; and, in serving, the ``rounding`` of weights' memory.
    """

    rank: int
    parts: Mapping[str, Dim]
    parameters: Dim = 0  # elements, before ZeRO splits them
    flops: Dim = 0  # of its step, two a multiply-add over full attention squares, what it runs again included
    kv_per_token: Dim = 0  # bytes that one more token of one sequence adds to the cache

    @property
    def bytes(self) -> Dim:
        """All of it."""
        return sum(self.parts.values())


@declaration
class Training:
    """How a model is trained: what a microbatch is, what is kept of it, and what a weight needs."""

    step: Step  # of one microbatch of one data rank
    microbatches: int = 1  # that a data rank runs one after the other before the optimizer steps
    kernels: Kernels = Kernels()
    recompute: Recompute = "none"
    optimizer: Optimizer = ADAMW_MIXED
    precision: Precision = Precision()  # of what is computed, and of weights that are frozen
    adapters: Adapters | None = None
    framework: Framework = TORCH
    workspace: int = 0  # bytes that libraries hold

    def budget(self, stage: Stage, recompute: Recompute | None = None) -> Budget:
        """What one microbatch costs a stage."""
        return stage.budget(self.step, self.kernels, recompute or self.recompute, self.adapters)


def heaviest(ranks: Sequence[Held]) -> Held:
    """The rank that holds most, the first of equals."""
    return max(ranks, key=lambda held: held.bytes)


# -- training ----------------------------------------------------------------------------------------------------------


def training(model: Model, layout: Layout, run: Training) -> tuple[Held, ...]:
    """What a device of each pipeline rank holds while *model* trains. Raises InputError naming sizes that do not divide."""
    once = cache(lambda stage: _Piece(stage, layout, run))  # equal stages are one
    pieces = [once(stage) for stage in stages(model, layout)]
    found = []
    for rank in range(layout.pp):
        own, states = pieces[rank :: layout.pp], States(layout, run)
        for piece in own:
            states.add(piece.part)
        parts = states.parts() | states.gathered() | _activations(layout, run, rank, own)
        work = run.microbatches * sum(flops(piece.part).total for piece in own)
        found.append(Held(rank, parts, sum(piece.part.parameters().total for piece in own), work))
    return tuple(found)


class States:
    """Bytes of the weights, their gradients and the optimizer's states on one device."""

    def __init__(self, layout: Layout, run: Training) -> None:
        if layout.zero in (1, 2) and run.optimizer.which not in (None, large):
            raise UndefinedError(
                f"ZeRO {layout.zero} cuts states into equal runs of elements, of which {run.optimizer.name} cannot tell rows: "
                "use stage 0 or 3"
            )
        self.layout, self.run = layout, run
        self._parts: dict[str, Dim] = {}
        self._flat: dict[Dim, Dim] = {}
        self._units: dict[tuple[int, str] | None, Dim] = {}  # by piece and layer; None for what stands outside the layers
        self._equal: dict[tuple[int, str] | None, Dim] = {}
        self._pieces = 0

    @property
    def _whole(self) -> tuple[str, ...]:
        """What ZeRO leaves whole."""
        return ("weights", "gradients", "accumulated") if self.layout.zero == 1 else ("weights",)

    def add(self, piece: Budget) -> None:
        """The weights of a piece of the model, each once."""
        self._pieces += 1
        seen: set[Tensor] = set()
        for line in piece.lines:
            for tensor in line.weights:
                if tensor not in seen:
                    seen.add(tensor)
                    self._add(line, Weight.used(tensor, line))

    def _add(self, line: Line, weight: Weight) -> None:
        tensor = weight.tensor
        ranks = self.layout.expert_replicas if line.bank != 1 else self.layout.replicas
        if self.layout.zero == 3 and ranks != 1:
            layers = 1 if line.layer is None else line.copies
            unit = None if line.layer is None else (self._pieces, line.layer)
            self._equal[unit] = layers
            whole = spread(tensor.copies, layers) * self.run.precision.nbytes(weight)
            self._units[unit] = self._units.get(unit, 0) + whole
            cut = fully_sharded(line, tensor, ranks)
            weight = weight._replace(tensor=cut, inputs=cut.axes[1:] or cut.axes, each=())
        flat = tensor.grad and self.layout.zero in (1, 2) and ranks != 1
        if flat:
            self._flat[ranks] = self._flat.get(ranks, 0) + tensor.copies * tensor.numel
        for name, size in self._nbytes(weight).items():
            if not flat or name in self._whole:
                self._parts[name] = self._parts.get(name, 0) + tensor.copies * size

    def _nbytes(self, weight: Weight) -> dict[str, Dim]:
        if weight.tensor.grad:
            return self.run.optimizer.nbytes(weight)
        return {"frozen": self.run.precision.nbytes(weight)}

    def parts(self) -> dict[str, Dim]:
        """All of it, by part."""
        found = dict(self._parts)
        for ranks, elements in self._flat.items():
            flat = Weight(Tensor(("flat",), (spread(elements, ranks),), "vector"), "vector", ("flat",))
            for name, size in self.run.optimizer.nbytes(flat).items():
                if name not in self._whole:
                    found[name] = found.get(name, 0) + size
        return found

    def gathered(self) -> dict[str, Dim]:
        """What ZeRO 3 has whole for a moment: what stands outside the layers stays whole; of the layers one is in use, with
        its gradients, and one on its way."""
        if not self._units:
            return {}
        units = dict(self._units)
        rest = units.pop(None, 0)
        sizes = list(units.values())
        pairs = [2 * one + other for i, one in enumerate(sizes) for j, other in enumerate(sizes) if i != j]
        equal = [size * (1 + smaller(2, self._equal[unit])) for unit, size in units.items()]
        return {"gathered": rest + largest((0, *pairs, *equal))}


class _Piece:
    """A piece of the model: *whole* without checkpoints, a rank's *plain* part of that, and the *part* as it is run."""

    def __init__(self, stage: Stage, layout: Layout, run: Training) -> None:
        self.layout, self.widths = layout, run.precision.widths()
        self.whole = run.budget(stage, "none")
        self.plain = shard(self.whole, layout)
        self.part = self.plain if run.recompute == "none" else shard(run.budget(stage), layout)

    @cached_property
    def kept(self) -> Activations:
        """What is kept of one microbatch."""
        return self.part.activations(self.widths)

    @cached_property
    def working(self) -> Dim:
        """What else is alive at the worst moment."""
        return Pass(self.part, self.plain, self.widths, *_sent(self.whole, self.layout, self.widths)).training()


def _activations(layout: Layout, run: Training, rank: int, pieces: Sequence[_Piece]) -> dict[str, Dim]:
    """What is kept of the microbatches in flight, the buffers, what else is alive at the worst moment, and what the framework
    adds."""
    widths, framework = run.precision.widths(), run.framework
    held = [piece.kept.bytes - piece.kept.buffers for piece in pieces]
    moments = [sum(held[chunk] for chunk in moment) for moment in in_flight(layout, rank, run.microbatches)]
    found = {
        "activations": largest(moments), "buffers": largest(piece.kept.buffers for piece in pieces),
        "working": largest(piece.working for piece in pieces),
    }  # fmt: skip
    shapes = {shape: size for piece in pieces for shape, size in framework.placeholders(piece.part).items()}
    if framework.placeholder:
        found["placeholders"] = sum(shapes.values())
    if framework.keeps_sent and layout.pp > 1:
        found["sent"] = _stream(pieces[0].whole, layout, widths) if rank and run.microbatches > 1 else 0
    return found | ({"workspace": run.workspace} if run.workspace else {})


def _sent(whole: Budget, layout: Layout, widths: Widths) -> tuple[Sent, Sent]:
    """Bytes of whole tensors that collectives make, of each line forward and backward."""
    found: tuple[dict[str, Dim], dict[str, Dim]] = {}, {}
    for one in collectives(whole, layout):
        if one.kind in ("all-gather", "reduce-scatter", "all-to-all") and one.phase in ("forward", "backward"):
            sizes = found[one.phase == "backward"]
            sizes[one.path] = sizes.get(one.path, 0) + one.elements * widths[one.role]
    return found


def _stream(whole: Budget, layout: Layout, widths: Widths) -> Dim:
    """Bytes of what a piece receives from the stage before, as the rank has it."""
    step, d = whole.step, whole.lines[0].read[0]["d"]
    entered = Shards(layout, whole).tensor(Tensor(("b", "t", "d"), (step.b, step.t, d)))
    return entered.numel * widths[entered.role]


# -- serving -----------------------------------------------------------------------------------------------------------


@declaration
class Serving:
    """How a model is served: a step with a cache, and the formats of weights, cache and activations."""

    step: Step  # of one data rank: its batch and context
    kernels: Kernels = Kernels()
    precision: Precision = Precision()
    policy: Policy = "minimal"
    workspace: int = 0  # bytes that libraries hold

    def budget(self, stage: Stage) -> Budget:
        """What the step costs a stage."""
        return stage.budget(self.step, self.kernels)


def serving(model: Model, layout: Layout, run: Serving) -> tuple[Held, ...]:
    """What a device of each pipeline rank holds while *model* runs the step: weights, the cache, the widest line."""
    once = cache(lambda stage: _served(stage, layout, run))  # equal stages are one
    pieces: list[_Served] = [once(stage) for stage in stages(model, layout)]
    found = []
    for rank in range(layout.pp):
        weights, caches, buffers, working, rounding, parameters, work, token = zip(*pieces[rank :: layout.pp], strict=True)
        parts = {
            "weights": sum(weights), "kv_cache": sum(caches), "buffers": largest(buffers), "working": largest(working),
            "rounding": sum(rounding),
        } | ({"workspace": run.workspace} if run.workspace else {})  # fmt: skip
        found.append(Held(rank, parts, sum(parameters), sum(work), sum(token)))
    return tuple(found)


class _Served(NamedTuple):
    """What a piece of the model holds of each part in serving, its parameters, FLOPs, and the cache of one more token."""

    weights: Dim
    kv_cache: Dim
    buffers: Dim
    working: Dim
    rounding: Dim
    parameters: Dim
    flops: Dim
    kv_per_token: Dim


def _served(stage: Stage, layout: Layout, run: Serving) -> _Served:
    whole, widths = run.budget(stage), run.precision.widths()
    piece = shard(whole, layout)
    return _Served(
        sum(weight_bytes(piece, run.precision).values()), sum(piece.cache(widths, run.policy).values()),
        sum(b.numel * widths[b.role] for b in piece.buffers),
        Pass(piece, piece, widths, *_sent(whole, layout, widths)).serving(), _rounding(piece, run.precision),
        piece.parameters().total, flops(piece).total, piece.cache_per_token(widths, run.policy),
    )  # fmt: skip


def _rounding(piece: Budget, precision: Precision) -> Dim:
    """What the allocator counts of weights beyond their bytes, where each is a tensor of its own: those of plain types."""
    total: Dim = 0
    for weight in weights(piece):
        size = precision.nbytes(weight)
        if len(precision.format(weight.kind).parts) == 1:
            total += weight.tensor.copies * (counted(size) - size)
    return total
