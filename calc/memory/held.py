"""What one device of each pipeline rank holds, by part, in training and in serving.

Data ranks differ only where something does not divide; what is counted is the first, which has no less than another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..budget import Budget, Policy, Widths
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
    pieces = [_Piece.of(stage, layout, run) for stage in stages(model, layout)]
    found = []
    for rank in range(layout.pp):
        own, states = pieces[rank :: layout.pp], States(layout, run)
        for piece in own:
            states.add(piece.part)
        parts = states.parts() | states.gathered() | _activations(layout, run, rank, own)
        found.append(Held(rank, parts, *_counts([piece.part for piece in own], run.microbatches)))
    return tuple(found)


def _counts(pieces: Sequence[Budget], times: int) -> tuple[Dim, Dim]:
    """Parameters of a rank's pieces, and FLOPs of so many of their steps."""
    return sum(piece.parameters().total for piece in pieces), times * sum(flops(piece).total for piece in pieces)


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
        self._units: dict[str | None, Dim] = {}
        self._equal: dict[str | None, Dim] = {}

    @property
    def _whole(self) -> tuple[str, ...]:
        """What ZeRO leaves whole."""
        return ("weights", "gradients", "accumulated") if self.layout.zero == 1 else ("weights",)

    def add(self, piece: Budget) -> None:
        """The weights of a piece of the model, each once."""
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
            self._equal[line.layer] = layers
            whole = spread(tensor.copies, layers) * self.run.precision.nbytes(weight)
            self._units[line.layer] = self._units.get(line.layer, 0) + whole
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


class _Piece(NamedTuple):
    """A piece of the model without checkpoints, a rank's part of it, and that part as it is run."""

    whole: Budget
    plain: Budget
    part: Budget

    @classmethod
    def of(cls, stage: Stage, layout: Layout, run: Training) -> _Piece:
        """That of a stage."""
        whole = run.budget(stage, "none")
        plain = shard(whole, layout)
        return cls(whole, plain, plain if run.recompute == "none" else shard(run.budget(stage), layout))


def _activations(layout: Layout, run: Training, rank: int, pieces: Sequence[_Piece]) -> dict[str, Dim]:
    """What is kept of the microbatches in flight, the buffers, what else is alive at the worst moment, and what the framework
    adds."""
    widths, framework = run.precision.widths(), run.framework
    kept = [piece.part.activations(widths) for piece in pieces]
    held = [found.bytes - found.buffers for found in kept]
    moments = [sum(held[chunk] for chunk in moment) for moment in in_flight(layout, rank, run.microbatches)]
    passes = (Pass(piece.part, piece.plain, widths, *_sent(piece.whole, layout, widths)) for piece in pieces)
    found = {
        "activations": largest(moments), "buffers": largest(found.buffers for found in kept),
        "working": largest(one.training() for one in passes),
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
    widths = run.precision.widths()
    wholes = [run.budget(stage) for stage in stages(model, layout)]
    found = []
    for rank in range(layout.pp):
        own = [shard(whole, layout) for whole in wholes[rank :: layout.pp]]
        sends = [_sent(whole, layout, widths) for whole in wholes[rank :: layout.pp]]
        found.append(Held(rank, {
            "weights": sum(sum(weight_bytes(piece, run.precision).values()) for piece in own),
            "kv_cache": sum(sum(piece.cache(widths, run.policy).values()) for piece in own),
            "buffers": largest(sum(b.numel * widths[b.role] for b in piece.buffers) for piece in own),
            "working": largest(Pass(piece, piece, widths, *sent).serving() for piece, sent in zip(own, sends, strict=True)),
            "rounding": sum(_rounding(piece, run.precision) for piece in own),
        } | ({"workspace": run.workspace} if run.workspace else {}),
            *_counts(own, 1), sum(piece.cache_per_token(widths, run.policy) for piece in own)))  # fmt: skip
    return tuple(found)


def _rounding(piece: Budget, precision: Precision) -> Dim:
    """What the allocator counts of weights beyond their bytes, where each is a tensor of its own: those of plain types."""
    total: Dim = 0
    for weight in weights(piece):
        size = precision.nbytes(weight)
        if len(precision.format(weight.kind).parts) == 1:
            total += weight.tensor.copies * (counted(size) - size)
    return total
