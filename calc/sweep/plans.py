"""What can be asked of a model on devices: bytes that one holds, seconds that a step takes, and rates.

Each is the number that ``blockcalc memory``, ``train`` or ``serve`` gives for the same model, layout, step and machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ..budget import Policy
from ..convention import flops
from ..dims import Dim, largest
from ..errors import InputError, UndefinedError
from ..memory.held import Held, Serving, Training, serving, training
from ..model import Model
from ..parallel.layout import Layout
from ..plan.engines import absorbed
from ..plan.panel import dtype, plan_budget
from ..recorder import Recompute
from ..storage.optimizers import OPTIMIZERS
from ..storage.precision import Precision, named
from ..tensor import Kernels, Step
from ..timing.costs import Counting
from ..timing.efficiency import PROFILES, Efficiency
from ..timing.machine import Machine
from ..timing.roofline import Setup
from ..timing.serving import Tokens, first_token, served
from ..timing.training import StepTime, training_step

NO_MACHINE = "no machine: give --gpu NAME, or --over gpu=NAME,NAME"


class Run(NamedTuple):
    """How a model runs on a device: the options of a sweep that plans depend on, in plain words."""

    dtype: str = "bf16"
    quant: str | None = None
    kv_dtype: str | None = None
    attention: Literal["math", "flash", "fused"] = "fused"
    recompute: Recompute = "none"
    policy: Policy = "minimal"
    convention: str = "torch"
    optimizer: str = "adamw-mixed"
    microbatches: int = 1
    efficiency: str = "measured"
    products: str | None = None

    @property
    def kernels(self) -> Kernels:
        """Those of devices: norms in one kernel."""
        return Kernels(attention=self.attention, norm="fused")

    @property
    def precision(self) -> Precision:
        """Formats of weights, cache and activations. Raises InputError for a type that nothing is computed in."""
        if self.dtype not in ("fp32", "bf16", "fp16"):
            raise InputError(f"dtype {self.dtype}: devices compute in fp32, bf16 or fp16; caches have kv_dtype")
        found = Precision.of(named(self.quant or self.dtype), named(self.dtype))
        return found if self.kv_dtype is None else replace(found, key_value=named(self.kv_dtype))


class Place(NamedTuple):
    """A model on devices, in steps of *b* sequences of a data rank: *t* tokens in training, *s* in serving."""

    model: Model
    layout: Layout
    machine: Machine | None
    run: Run
    b: Dim
    t: Dim
    s: Dim
    source: Dim | None  # the length of an encoder's input, where it is not the decoder's

    @property
    def training(self) -> Training:
        """A training's microbatch."""
        run = self.run
        if run.quant is not None:
            raise UndefinedError(f"quant {run.quant}: weights in it do not train")
        return Training(
            step=self.model.fit(Step.train(self.b, self.t, self.source)), microbatches=run.microbatches, kernels=run.kernels,
            recompute=run.recompute, optimizer=OPTIMIZERS[run.optimizer], precision=run.precision,
        )  # fmt: skip

    def serving(self, step: Step) -> Serving:
        """A pass of a service."""
        return Serving(
            step=self.model.fit(step), kernels=self.run.kernels, precision=self.run.precision, policy=self.run.policy
        )

    @property
    def prefill(self) -> Step:
        """All s tokens at once, for logits of the last."""
        return replace(Step.prefill(self.b, self.s, self.s, self.source), head="last")

    @property
    def decode(self) -> Step:
        """One more, the last of s."""
        return Step.decode(self.b, self.s, self.source)

    @property
    def setup(self) -> Setup:
        """The machine, and how its work is counted. Raises InputError where none is named."""
        if self.machine is None:
            raise InputError(NO_MACHINE)
        efficiency = Efficiency.of(self.machine, PROFILES[self.run.efficiency])
        return Setup(self.machine, self.layout, Counting(precision=self.run.precision, products=self.run.products), efficiency)


class Plan(NamedTuple):
    """A quantity of a plan: its unit, what is made for it, and how it is read off that."""

    unit: Literal["bytes", "seconds", "tokens/s", "share"]
    meaning: str
    make: Callable[[Place], Any]
    read: Callable[[Any, Place], Dim]

    @property
    def timed(self) -> bool:
        """Does it need a machine, and is it in floating-point numbers."""
        return self.unit != "bytes"


def _trained(place: Place) -> tuple[Held, ...]:
    return training(place.model, place.layout, place.training)


def _filled(place: Place) -> tuple[Held, ...]:
    return serving(place.model, place.layout, place.serving(place.prefill))


def _decoded(place: Place) -> tuple[Held, ...]:
    return serving(absorbed(place.model), place.layout, place.serving(place.decode))


def _step(place: Place) -> StepTime:
    plan = place.training
    return training_step(
        place.model, place.setup, plan.step, plan.microbatches, kernels=plan.kernels, recompute=plan.recompute,
        optimizer=plan.optimizer,
    )  # fmt: skip


def _first(place: Place) -> Tokens:
    """Of a prompt that an encoder reads the length is the encoder's, where that is given."""
    prompt = place.s if place.source is None else place.source
    return first_token(place.model, place.setup, place.b, prompt, place.run.kernels)


def _next(place: Place) -> Tokens:
    return served(absorbed(place.model), place.setup, place.decode, place.run.kernels)


def _heaviest(ranks: tuple[Held, ...], place: Place) -> Dim:
    return largest(held.bytes for held in ranks)


def _mfu(step: StepTime, place: Place) -> Dim:
    setup = place.setup
    work = flops(plan_budget(place.model, place.training), place.run.convention)
    model = (work.total - work.recompute) * place.run.microbatches * place.layout.dp
    return model / (step.seconds * step.devices * float(setup.machine.peak(dtype(setup))))


_TRAIN, _FIRST, _NEXT = "a training step of b sequences of t tokens", "the first token of b prompts", "one more token of b"

PLANS: Mapping[str, Plan] = MappingProxyType({
    "train_memory": Plan("bytes", "what the heaviest device holds in training", _trained, _heaviest),
    "prefill_memory": Plan("bytes", "what the heaviest device holds when it reads all S tokens at once", _filled, _heaviest),
    "decode_memory": Plan("bytes", "what the heaviest device holds when it decodes at S visible tokens", _decoded, _heaviest),
    "train_seconds": Plan("seconds", f"{_TRAIN}, all microbatches", _step, lambda step, place: step.seconds),
    "train_bound": Plan("seconds", f"{_TRAIN} takes no less", _step, lambda step, place: step.lower),
    "train_tokens_per_second": Plan("tokens/s", "trained by all devices", _step, lambda step, place: step.per_second),
    "train_mfu": Plan("share", "model FLOPs of a training step over what the peak would do", _step, _mfu),
    "prefill_seconds": Plan("seconds", f"{_FIRST} of S tokens", _first, lambda found, place: found.seconds),
    "prefill_bound": Plan("seconds", f"{_FIRST} takes no less", _first, lambda found, place: found.lower),
    "decode_seconds": Plan("seconds", f"{_NEXT} sequences at S visible tokens", _next, lambda found, place: found.seconds),
    "decode_bound": Plan("seconds", f"{_NEXT} takes no less", _next, lambda found, place: found.lower),
    "decode_tokens_per_second": Plan("tokens/s", "decoded by all devices", _next, lambda found, place: found.per_second),
})  # fmt: skip
"""The quantities by name. Seconds are estimates (``timing.roofline``) but for the bounds, which no run beats."""


def is_real(quantity: str) -> bool:
    """Is it a quantity in floating-point numbers?"""
    return quantity in PLANS and PLANS[quantity].timed
