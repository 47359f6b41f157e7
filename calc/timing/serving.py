"""Serving: the time to the first token, the time of each further one, and tokens a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..budget import Budget
from ..dims import Dim, largest
from ..errors import InputError
from ..model import Model
from ..parallel.collectives import Collective, sends
from ..parallel.layout import Layout
from ..parallel.stages import stages
from ..recorder import Recompute
from ..tensor import Kernels, Step, Tensor
from .request import Request
from .roofline import Setup, Time, merged, roofline

SERVING = Kernels(attention="fused", norm="fused")
"""What engines run: attention that never writes the scores, norms in one kernel."""


def pieces(
    model: Model, step: Step, layout: Layout, kernels: Kernels | None = None, recompute: Recompute = "none"
) -> tuple[Budget, ...]:
    """The whole traces of the pipeline's pieces in order, for one microbatch: of one piece the model's own."""
    if layout.pp * layout.chunks == 1:
        return (model.budget(step, kernels, recompute),)
    return tuple(stage.budget(step, kernels, recompute) for stage in stages(model, layout))


def boundaries(budgets: Sequence[Budget], layout: Layout) -> tuple[tuple[Collective, ...], ...]:
    """What each piece sends on to the next: the stream between layers (b t d). The last sends nothing."""
    found: list[tuple[Collective, ...]] = []
    for index, budget in enumerate(budgets):
        if index == len(budgets) - 1 or layout.pp == 1:
            found.append(())
            continue
        found.append(sends(_stream(budgets), layout, budget, f"stage {index}"))
    return tuple(found)


def _stream(budgets: Sequence[Budget]) -> Tensor:
    for budget in budgets:
        for carry in budget.carries:
            return carry.received
    raise InputError("a pipeline without layers hands on nothing")


class Tokens(NamedTuple):
    """New tokens of a step: seconds until all of them are there, and tokens a second over all data ranks.

    With pipeline stages as many batches are on their way as there are stages, so that ``per_second`` counts them all.
    """

    seconds: Dim
    lower: Dim  # seconds that no run can beat
    per_second: Dim
    time: Time


def first_token(model: Model, setup: Setup, batch: Dim, prompt: Dim, kernels: Kernels = SERVING) -> Tokens:
    """Time to first token: one pass over *prompt* tokens of each of *batch* sequences, logits of the last only."""
    return served(model, setup, Request.to(model, prompt).reading(batch), kernels)


def next_token(model: Model, setup: Setup, batch: Dim, context: Dim, kernels: Kernels = SERVING) -> Tokens:
    """Time per output token: one decode step for each of *batch* sequences of a data rank, at *context* visible tokens.

    Latent attention is decoded as its declaration writes it, keys and values expanded from the latent at every step.
    """
    return served(model, setup, Step.decode(batch, context), kernels)


def served(model: Model, setup: Setup, step: Step, kernels: Kernels = SERVING) -> Tokens:
    """One pass of a service."""
    budgets = pieces(model, step, setup.layout, kernels)
    sent = boundaries(budgets, setup.layout)
    times = [roofline(budget, setup, extra) for budget, extra in zip(budgets, sent, strict=True)]
    time, slowest = merged(times), largest(each.estimate for each in times)
    return Tokens(time.estimate, sum(each.lower for each in times), step.b * step.t * setup.layout.dp / slowest, time)


class Generation(NamedTuple):
    """A batch of prompts answered at one length: seconds in all, and output tokens a second over all data ranks."""

    first: Tokens
    last: Tokens
    seconds: float
    per_second: float


def generate(model: Model, setup: Setup, batch: int, prompt: int, output: int, kernels: Kernels = SERVING) -> Generation:
    """A static batch: the prefill gives the first token, then *output* − 1 decode steps, each as long as the mean of the
    shortest and the longest context's."""
    request = Request.to(model, prompt)
    first = served(model, setup, request.reading(batch), kernels)
    early, last = (served(model, setup, request.writing(batch, n), kernels) for n in (1, max(1, output - 1)))
    seconds = first.seconds + (output - 1) * (early.seconds + last.seconds) / 2
    return Generation(first, last, seconds, batch * output * int(setup.layout.dp) / seconds)
