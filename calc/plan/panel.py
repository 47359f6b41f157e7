"""Training and serving in one view: memory, time by phase, utilization, days, energy, cost, and what they are compared to."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ..budget import Budget
from ..errors import InputError
from ..memory.held import Serving, Training
from ..model import Model
from ..parallel.collectives import Phase
from ..parallel.layout import Layout
from ..tensor import Step
from ..timing.chinchilla import Compute, Optimum, compute, optimal, twenty
from ..timing.request import Request
from ..timing.roofline import Setup
from ..timing.run import Run, Utilization, run, utilization
from ..timing.serving import Tokens, first_token, served
from ..timing.training import StepTime, training_step
from .deploy import held_serving
from .engines import absorbed
from .fit import Fit, fit, largest


class Trained(NamedTuple):
    """A training run. ``run`` is at the estimate, ``fastest`` at the lower bound; ``flops`` of all tokens as the convention
    counts them, without recomputation; ``optima`` of as many FLOPs as 6·N·D."""

    fit: Fit
    step: StepTime
    use: Utilization
    steps: int
    run: Run
    fastest: Run
    compute: Compute
    optima: tuple[Optimum, ...]


def train(
    model: Model, setup: Setup, plan: Training, available: int, tokens: int, *, convention: str = "torch",
    price: float | None = None, overhead: float = 1.0,
) -> Trained:  # fmt: skip
    """*tokens* in steps as *plan* says, on the setup's layout. *price* is of a device hour, *overhead* a building's."""
    layout, machine = setup.layout, setup.machine
    step = training_step(
        model, setup, plan.step, plan.microbatches, kernels=plan.kernels, recompute=plan.recompute, optimizer=plan.optimizer
    )
    budget = plan_budget(model, plan)
    microbatches = plan.microbatches * int(layout.dp)
    use = utilization(budget, convention, step.seconds, step.devices, machine.peak(dtype(setup)), microbatches)
    estimate, fastest = (
        run(tokens, step.tokens / seconds / step.devices, step.devices, machine, price=price, overhead=overhead)
        for seconds in (step.seconds, step.lower)
    )
    counted = compute(int(budget.parameters().active), tokens, use.flops, step.tokens)
    optima = (twenty(counted.six_nd), optimal(counted.six_nd))
    steps = -(-tokens // step.tokens)
    return Trained(fit(model, layout, plan, available), step, use, steps, estimate, fastest, counted, optima)


def phases(step: StepTime, microbatches: int) -> dict[str, float]:
    """Seconds of a step by what is done; their sum is the estimate."""
    time = step.microbatch
    found: dict[str, float] = {name: microbatches * time.phases(name).local for name in _PHASES}
    found["links, waited for"] = microbatches * time.exposed
    return found | {"pipeline bubble": step.bubble, "data ranks, waited for": step.data, "optimizer": step.optimizer}


_PHASES: tuple[Phase, ...] = ("forward", "recompute", "backward")


def plan_budget(model: Model, plan: Training) -> Budget:
    """One microbatch of the whole model, whose model FLOPs are the same whatever kernel runs them."""
    return model.budget(plan.step, replace(plan.kernels, attention="math"), plan.recompute, plan.adapters)


def dtype(setup: Setup) -> str:
    """The type of most products, whose peak utilization is a fraction of."""
    return setup.counting.products or setup.counting.precision.activation.name


def gathered(layout: Layout, batch: int, microbatch: int) -> int:
    """Microbatches of a data rank in a global batch of sequences. Raises InputError where it does not divide."""
    each = int(layout.dp) * microbatch
    if batch % each:
        raise InputError(f"a batch of {batch} sequences is not divisible by dp · microbatch = {layout.dp} · {microbatch}")
    return batch // each


# -- serving -----------------------------------------------------------------------------------------------------------


class Experts(NamedTuple):
    """A bank of e experts of which a token uses a; ``touched`` are reached by a batch on average."""

    e: int
    a: int
    touched: float


def touched(e: int, a: int, tokens: int) -> float:
    """Distinct experts that so many evenly routed tokens reach on average: e(1 − (1 − a/e)ᵇ).

    >>> round(touched(128, 8, 16), 5)
    82.42251
    """
    if not (1 <= a <= e and tokens >= 1):
        raise InputError(f"touched: e = {e}, a = {a}, tokens = {tokens}, but 1 ≤ a ≤ e and there is a token")
    return e * (1 - (1 - a / e) ** tokens)


def experts(model: Model, tokens: int) -> tuple[Experts, ...]:
    """Those of the model's distinct banks; of a dense mixture every token reaches all."""
    found = {
        (int(line.bank), int(line.bank * Fraction(weight.active, weight.copies)), line.dense)
        for line in model.budget(Step.forward(1, 1)).lines
        if line.bank != 1
        for weight in line.weights
    }
    return tuple(Experts(e, a, touched(e, e if dense else a, tokens)) for e, a, dense in sorted(found))


class Service(NamedTuple):
    """Serving: memory, one prompt alone, an output token right behind the prompt and at the longest context, requests that
    fit at once, experts that a step of a data rank touches, and a million output tokens."""

    fit: Fit
    first: Tokens
    early: Tokens
    last: Tokens
    seconds: float  # of a request: its prompt, and each output token as long as the mean of the shortest and the longest
    concurrency: int
    experts: tuple[Experts, ...]
    run: Run


def serve(
    model: Model, setup: Setup, plan: Serving, available: int, prompt: int, output: int, *, price: float | None = None,
    overhead: float = 1.0,
) -> Service:  # fmt: skip
    """A batch of requests on each data rank (``plan.step.b``), each of *prompt* tokens and *output* more.

    Latent attention reads prompts expanded and decodes absorbed.
    """
    batch, request, layout = int(plan.step.b), Request.to(model, prompt), setup.layout
    first = first_token(model, setup, 1, prompt, plan.kernels)
    steps = (request.writing(batch, answered) for answered in (1, max(1, output - 1)))
    early, last = (served(absorbed(model), setup, step, plan.kernels) for step in steps)
    mean, rate = (early.seconds + last.seconds) / 2, 2 / (1 / early.per_second + 1 / last.per_second)
    at = replace(plan, step=request.writing(batch, output))
    most = largest(model, layout, at, available, "concurrency").at
    million = run(10**6, rate / int(layout.devices), int(layout.devices), setup.machine, price=price, overhead=overhead)
    return Service(
        held_serving(model, layout, plan, batch, prompt, prompt + output, available), first, early, last,
        first.seconds + (output - 1) * mean, most, experts(model, batch), million,
    )  # fmt: skip
