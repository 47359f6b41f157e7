"""Training: the time of a step, of microbatches through pipeline stages, gradients over data ranks and the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..budget import Budget
from ..dims import Dim, check_sizes, larger, largest, ratio, spread
from ..errors import InputError
from ..model import Model
from ..parallel.collectives import Collective, gradients
from ..parallel.layout import Layout
from ..parallel.shard import shard
from ..recorder import Recompute
from ..storage.optimizers import ADAMW_MIXED, Optimizer
from ..storage.weights import weights
from ..tensor import Kernels, Step
from .efficiency import PERFECT
from .roofline import Part, Setup, Time, links, merged, roofline
from .serving import boundaries, pieces

TRAINING = Kernels(attention="fused", norm="fused")
"""What training frameworks run."""


def bubble(pp: Dim, microbatches: Dim, chunks: Dim = 1) -> Any:
    """Idle time of a pipeline over its work: (p − 1)/m, interleaved (p − 1)/(m·v), as a Fraction or on symbols.

    Narayanan et al. 2021, arXiv:2104.04473, sections 2.2.1 and 2.2.2.
    """
    check_sizes("bubble", pp=pp, microbatches=microbatches, chunks=chunks)
    return ratio(pp - 1, microbatches * chunks)


class StepTime(NamedTuple):
    """One training step, in seconds. The estimate is the sum of the four behind ``lower``."""

    lower: Dim  # that no run can beat: one peak of one rank alone, everything at once, no bubble
    passes: Dim  # all microbatches of the slowest rank, forward and backward
    bubble: Dim  # waiting for the pipeline to fill and to drain
    data: Dim  # gradients and weights over data ranks, where computation does not hide them
    optimizer: Dim  # reading and writing weights and states
    tokens: Dim  # of all data ranks
    devices: Dim
    ranks: tuple[Time, ...]  # one microbatch of each pipeline rank

    @property
    def microbatch(self) -> Time:
        """That of the slowest rank."""
        return max(self.ranks, key=lambda time: time.estimate)

    @property
    def seconds(self) -> Dim:
        """The estimate."""
        return self.passes + self.bubble + self.data + self.optimizer

    @property
    def per_second(self) -> Dim:
        """Tokens a second, all devices together."""
        return self.tokens / self.seconds

    @property
    def per_device(self) -> Dim:
        """Tokens a second and device."""
        return self.per_second / self.devices


def training_step(
    model: Model, setup: Setup, step: Step, microbatches: int = 1, *, kernels: Kernels = TRAINING,
    recompute: Recompute = "none", optimizer: Optimizer = ADAMW_MIXED, reduced: int = 4,
) -> StepTime:  # fmt: skip
    """A step of *microbatches* on each data rank, each *step* (``Step.train`` of the microbatch's sequences).

    Gradients are summed over data ranks in *reduced* bytes an element, once a step. ZeRO 3 gathers weights and scatters
    gradients for every microbatch, in pipeline stages once a step, where torchtitan keeps what it gathered. All this hides
    behind the lines of one microbatch where its group is hidden.
    """
    if not step.training or microbatches < 1:
        raise InputError("training_step: expected a training step (Step.train) and at least one microbatch")
    layout, machine, step = setup.layout, setup.machine, model.fit(step)
    budgets = pieces(model, step, layout, kernels, recompute)
    sent = boundaries(budgets, layout)
    passes = [roofline(budget, setup, extra) for budget, extra in zip(budgets, sent, strict=True)]
    ranks = [_Rank(merged(passes[rank :: layout.pp]), budgets[rank :: layout.pp]) for rank in range(layout.pp)]
    work = microbatches * largest(rank.time.estimate for rank in ranks)
    data = [rank.data(setup, microbatches, reduced) for rank in ranks]
    updates = [rank.update(optimizer, layout) / machine.bandwidth for rank in ranks]
    lower = largest(
        alone
        for rank, over, update in zip(ranks, data, updates, strict=True)
        for peak in (rank.time.peak,)
        for alone in (
            microbatches * peak.compute, microbatches * peak.memory + update, microbatches * peak.link + over.peak,
        )
    )  # fmt: skip
    return StepTime(
        lower, work, work * float(bubble(layout.pp, microbatches, layout.chunks)), largest(over.exposed for over in data),
        largest(updates) / setup.attained.memory, microbatches * step.b * step.t * layout.dp, layout.devices,
        tuple(rank.time for rank in ranks),
    )  # fmt: skip


class _Data(NamedTuple):
    exposed: Dim
    peak: Dim


class _Rank(NamedTuple):
    """What one rank of the pipeline runs for a microbatch."""

    time: Time
    budgets: Sequence[Budget]

    def update(self, optimizer: Optimizer, layout: Layout) -> Dim:
        """Bytes that the optimizer's step moves."""
        return sum(optimizer_traffic(budget, optimizer, layout) for budget in self.budgets)

    def data(self, setup: Setup, microbatches: int, reduced: int) -> _Data:
        """Seconds over data ranks: those that the microbatch's own lines do not hide, and each once at the links' peak."""
        perfect = setup._replace(efficiency=PERFECT)
        exposed: Dim = 0.0
        peak: Dim = 0.0
        beside: dict[int, Dim] = {1: 0.0, microbatches: 0.0}
        for each in (found for budget in self.budgets for found in gradients(budget, setup.layout)):
            times = 1 if each.phase == "step" or setup.layout.pp > 1 else microbatches
            for part in _parts(each, setup, reduced):
                if part.hidden:
                    beside[times] += part.link
                else:
                    exposed += times * part.link
            peak += sum(part.link for part in _parts(each, perfect, reduced))
        exposed += sum(times * larger(0.0, seconds - self.time.local) for times, seconds in beside.items())
        return _Data(exposed, peak)


def _parts(each: Collective, setup: Setup, reduced: int) -> tuple[Part, ...]:
    """Sums of gradients in *reduced* bytes, weights in their own."""
    weight = setup.counting.precision.linear
    width = reduced if each.path == "gradients" else float(weight.bits_per_weight / 8)
    return links((each,), setup, {"matrix": width})  # type: ignore[dict-item]


def optimizer_traffic(whole: Budget, optimizer: Optimizer, layout: Layout) -> Dim:
    """Bytes that a rank's optimizer step moves: gradients read, states and the master copy (else the weights) read and
    written, weights written. With ZeRO each data rank updates its part."""
    total: Dim = 0
    for weight in weights(shard(whole, layout)):
        if not weight.tensor.grad:
            continue
        parts = optimizer.nbytes(weight)
        kept, grads = parts.pop("weights"), parts.pop("gradients") + parts.pop("accumulated", 0)
        states = sum(parts.values())
        moved = grads + kept * (1 if "master" in parts else 2) + 2 * states
        ranks = layout.expert_replicas if weight.kind == "expert" else layout.replicas
        total += weight.tensor.copies * spread(moved, ranks if layout.zero else 1)
    return total
