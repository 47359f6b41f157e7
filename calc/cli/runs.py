"""Options of a parallel run, gathered into what they describe: a layout, a training run, a serving run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from ..dims import check_sizes
from ..errors import InputError
from ..parallel.layout import Layout
from ..tensor import Kernels, Step
from . import options

F = TypeVar("F", bound=Callable[..., Any])
Given = Mapping[str, Any]


def gathered(name: str, make: Callable[[Given], Any], *decorators: Callable[[F], F]) -> Callable[[F], F]:
    """These options, which reach the command as the one argument *name* that *make* makes of their values."""

    def wrap(function: F) -> F:
        names: list[str] = []

        @wraps(function)
        def command(*args: Any, **given: Any) -> Any:
            return function(*args, **{name: make({one: given.pop(one) for one in names})}, **given)

        before = set(_params(command))
        decorated: Any = command
        for decorator in reversed(decorators):
            decorated = decorator(decorated)
        names += dict.fromkeys(param for param in _params(decorated) if param not in before)
        return decorated  # type: ignore[no-any-return]

    return wrap


def _params(function: Any) -> list[str]:
    return [param.name for param in getattr(function, "__click_params__", [])]


def _ranks(name: str, what: str) -> Callable[[F], F]:
    return click.option(f"--{name}", default=1, show_default=True, metavar="N", help=f"{what}.")


def make_layout(given: Given) -> Layout:
    """The layout that the options describe.

    Raises InputError for stages that are no list of whole numbers, and for an option of ranks that are not there.
    """
    text = given["stages"]
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"--stages {text}: expected layers of each stage, as in 7,8,8,9")
    made = Layout(
        tp=given["tp"], cp=given["cp"], pp=given["pp"], dp=given["dp"], ep=given["ep"], etp=given["etp"], sequence=given["sp"],
        chunks=given["chunks"], zero=given["zero"], stages=tuple(map(int, parts)), ulysses=given["ulysses"],
    )  # fmt: skip
    if made.sequence and made.tp == 1:
        raise InputError("--sp: splits along the sequence what tensor ranks leave whole, but tp = 1")
    if made.ulysses and made.cp == 1:
        raise InputError("--ulysses: context ranks exchange positions for heads, but cp = 1")
    if made.zero and made.replicas == made.expert_replicas == 1:
        raise InputError(f"--zero {made.zero}: splits what data and context ranks each hold, but dp·cp = 1")
    return made


kernels = gathered("kernels", options.make_kernels, options.kernels)
layout = gathered(
    "layout", make_layout,
    _ranks("tp", "Tensor-parallel ranks: heads, hidden units and the vocabulary are split"),
    _ranks("pp", "Pipeline stages: the layers are split"),
    _ranks("dp", "Data-parallel ranks; a batch is that of one"),
    _ranks("cp", "Context-parallel ranks: the sequence is split"),
    _ranks("ep", "Expert-parallel ranks, out of tp·cp·dp"),
    click.option("--etp", type=int, default=None, metavar="N", help="Tensor-parallel ranks of an expert, tp unless given."),
    click.option("--sp", is_flag=True, help="Sequence parallelism: split along the sequence what --tp leaves whole."),
    click.option("--ulysses", is_flag=True, help="Context ranks exchange positions for heads, in place of a ring."),
    click.option("--zero", type=click.IntRange(0, 3), default=0, show_default=True,
                 help="Data ranks split the optimizer's states (1), the gradients (2), the weights (3: fully_shard)."),
    _ranks("chunks", "Pieces of the model a pipeline rank holds, interleaved"),
    click.option("--stages", default="", metavar="L,L,…", help="Layers of each stage, where they are not equally many."),
)  # fmt: skip
vocab_multiple = click.option(
    "--vocab-multiple", type=int, default=None, metavar="M", help="Pad the vocabulary to a multiple of M, such as 128·tp."
)


def as_run(subject: options.Subject, multiple: int | None = None) -> Any:
    """The subject's model as engines run it, its vocabulary padded. Raises InputError for a block, and for the length of an
    encoder that is not there."""
    if subject.width is not None:
        raise InputError(f"{subject.name} is a block; a plan is of a whole model")
    from ..parallel.stages import padded
    from ..plan.engines import routed

    options.check_encoder_seq(subject, click.get_current_context().params.get("encoder_seq"))
    model = routed(subject.component)
    if multiple is None:
        return model
    check_sizes("--vocab-multiple", multiple=multiple)
    return padded(model, multiple)


class Memory(NamedTuple):
    """What a device's memory depends on besides the step and the layout."""

    kernels: Kernels
    recompute: Any
    dtype: str
    kv_dtype: str
    policy: Any
    optimizer: str | None
    quant: str | None


def settled(model: Any, step: Step) -> Step:
    """The step at the lengths that the model sets itself; where no encoder stands beside a decoder, none has a length."""
    fitted: Step = model.fit(step)
    return fitted if model.encoder is not None else replace(fitted, source=fitted.s)


def only(given: Given, of: str, **usual: Any) -> None:
    """Refuse options of another kind of run where they are not as *usual*."""
    for name, value in usual.items():
        if given[name] != value:
            raise InputError(f"--{name.replace('_', '-')} {given[name]}: an option of {of}")


def said(*names: str) -> tuple[str, ...]:
    """Those of the options that stand on the command line."""
    context = click.get_current_context()
    return tuple(name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE)


def describe(layout: Layout) -> dict[str, Any]:
    """The layout, as it stands beside each number."""
    found: dict[str, Any] = {
        "tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "cp": layout.cp, "ep": layout.ep, "etp": layout.expert_tp,
        "sp": layout.sequence, "ulysses": layout.ulysses, "zero": layout.zero, "chunks": layout.chunks,
        "stages": list(layout.stages), "devices": layout.devices,
    }  # fmt: skip
    return found
