"""Options of a training and of a service, as plans ask for them, and what they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ..dims import check_sizes
from ..errors import InputError
from ..memory.held import Serving, Training
from ..model import Model
from ..plan.engines import absorbed, routed
from ..storage.optimizers import OPTIMIZERS
from ..storage.precision import Precision, named
from ..tensor import Step
from ..timing.request import Request
from . import options, runs

MICROBATCH = "Sequences of a microbatch"


class TrainingWork(NamedTuple):
    """A global batch of sequences, and how a microbatch of it runs."""

    batch: int
    microbatch: int | None
    recompute: str | None
    run: Training


class ServingWork(NamedTuple):
    """Requests of a data rank, of *prompt* tokens and *output* more; ``batch`` None is as many as fit."""

    batch: int | None
    prompt: int
    output: int
    run: Serving

    def last(self, model: Model) -> Step:
        """The step at the end of a request, where it holds its whole answer."""
        return model.fit(Request.to(model, self.prompt).writing(self.batch or 1, self.output))


def training(given: runs.Given, batch: int) -> TrainingWork:
    """What the options of a training describe."""
    check_sizes("the training", batch=batch, seq=given["seq"], microbatch=given["microbatch"])
    name = given["optimizer"] or "adamw-mixed"
    if name not in OPTIMIZERS:
        raise InputError(f"--optimizer {name}: not one of {', '.join(OPTIMIZERS)}")
    run = Training(
        step=Step.train(given["microbatch"] or 1, given["seq"]), recompute=given["recompute"] or "none",
        kernels=options.make_kernels(given), optimizer=OPTIMIZERS[name], precision=Precision.of(named(given["dtype"])),
    )  # fmt: skip
    return TrainingWork(batch, given["microbatch"], given["recompute"], run)


def serving(given: runs.Given) -> ServingWork:
    """What the options of a service describe."""
    check_sizes("the service", batch=given["batch"], prompt=given["prompt"], output=given["output"])
    precision = Precision.of(named(given["quant"] or given["dtype"]), named(given["dtype"]))
    if given["kv_dtype"] is not None:
        precision = replace(precision, key_value=named(given["kv_dtype"]))
    step = Step.decode(given["batch"] or 1, given["prompt"] + given["output"])
    run = Serving(step=step, kernels=options.make_kernels(given), precision=precision, policy=given["policy"])
    return ServingWork(given["batch"], given["prompt"], given["output"], run)


ABSORBED = "Latent attention reads prompts with keys and values expanded, and decodes absorbed."
APART = "The encoder reads the prompt; the decoder begins with one token, and holds the answer."


ROUTED = "Tokens are sent to their own experts alone, as engines do; transformers runs all experts on every token."


def reads(model: Model) -> tuple[str, ...]:
    """How a service runs the model, where it is not as others."""
    alone = (ABSORBED, absorbed(model) is not model), (APART, Request.to(model, 1).apart)
    return *(note for note, said in alone if said), *routes(model)


def routes(model: Model) -> tuple[str, ...]:
    """How its experts are run, where that is not as they are written."""
    return (ROUTED,) if routed(model) is not model else ()


def at_step(work: TrainingWork, microbatches: int) -> Training:
    """The run with its number of microbatches."""
    return replace(work.run, microbatches=microbatches)


batch = click.option(
    "--batch", type=int, default=None, metavar="B",
    help="Sequences: of a step of all devices in training; of a data rank in serving, as many as fit unless given.",
)  # fmt: skip
of_training: tuple[Callable[[Any], Any], ...] = (
    options.seq,
    click.option("--microbatch", type=int, default=None, metavar="B", help=f"{MICROBATCH}."),
    click.option("--recompute", type=click.Choice(["none", "selective", "full"]), default=None,
                 help="Run again backward: nothing, the core attention, each layer."),
    click.option("--optimizer", default=None, metavar="NAME", shell_complete=options.complete_optimizer,
                 help=f"adamw-mixed unless given; one of {', '.join(OPTIMIZERS)}."),
)  # fmt: skip
of_serving: tuple[Callable[[Any], Any], ...] = (
    click.option("--prompt", type=int, default=1024, show_default=True, metavar="T", help="Tokens of a request's prompt."),
    click.option("--output", type=int, default=1024, show_default=True, metavar="T", help="Tokens of its answer."),
    click.option("--quant", default=None, metavar="FORMAT", shell_complete=options.complete_format,
                 help="Format of the weights: fp8, int8, mxfp4, awq-4-128 …"),
    click.option("--kv-dtype", default=None, metavar="TYPE", help="Type of the cache, where it is not --dtype."),
    options.policy,
)  # fmt: skip
dtype = click.option("--dtype", type=click.Choice(["fp32", "bf16", "fp16"]), default="bf16", show_default=True,
                     help="What is computed in.")  # fmt: skip

