"""``blockcalc plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..tensor import Kernels, Step
from . import options

if TYPE_CHECKING:
    from ..plots.figure import Figure


class _Pictures(click.Group):
    """The pictures; an unknown one is refused in one line."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The picture that the first word names."""
        if args[0] not in self.commands:
            raise InputError(f"plot {args[0]}: the pictures are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


@click.group("plot", cls=_Pictures, invoke_without_command=True, subcommand_metavar="[PICTURE MODEL...]")
@options.output
@click.pass_context
def command(ctx: click.Context, form: str | None) -> None:
    """Draw a picture of one model or several: in the terminal, or with -o as a PNG or SVG file (which needs matplotlib:
    pip install 'blockcalc[plot]'). Without a picture's name, list them. --json and --csv print the exact numbers.

    \b
    blockcalc plot
    blockcalc plot kv llama-3.1-8b gemma-2-9b deepseek-v3 -o kv.svg
    blockcalc plot roofline llama-3.1-8b --mode decode --flops-per-second 989T --bytes-per-second 3.35T
    """
    if ctx.invoked_subcommand is not None:
        if form is not None:
            raise InputError(f"--{form}: put it behind the picture's name and its models")
        return
    from ..plots.pictures import PICTURES
    from ..tables.table import Column, Table

    listed = [{"name": name, "shows": shows} for name, shows in PICTURES.items()]
    rows = tuple(tuple(one.values()) for one in listed)
    options.emit(form, {"pictures": listed}, Table("", (Column("picture"), Column("shows")), rows))


models = options._stack(
    click.argument("models", nargs=-1, required=True, shell_complete=options.complete_model, metavar="MODEL..."),
    click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Override a field of each model's config."),
)
drawing = options._stack(
    click.option("-o", "--output", "path", type=click.Path(path_type=Path), metavar="FILE",
                 help="Write FILE, a PNG or an SVG by its ending."),
    click.option("--force", is_flag=True, help="Write over FILE where it exists."),
    options.output,
)  # fmt: skip


def _subjects(names: Sequence[str], changes: tuple[str, ...]) -> list[options.Subject]:
    from ..plots.sweep import MOST_MODELS

    for name in names:
        if names.count(name) > 1:
            raise InputError(f"plot: {name} is named twice")
    if len(names) > MOST_MODELS:
        raise InputError(f"plot: {len(names)} models, but a picture shows at most {MOST_MODELS}")
    return [options.subject(name, changes) for name in names]


def _show(
    figure: Figure, path: Path | None, force: bool, form: str | None, subjects: Sequence[options.Subject] = (), tokens: int = 0
) -> None:
    """Write the file, print the numbers, or draw in the terminal; *tokens* of *subjects* may be beyond their positions."""
    if path is not None:
        try:
            from ..plots.image import save
        except ModuleNotFoundError as missing:
            raise InputError(f"plot -o needs {missing.name}: pip install 'blockcalc[plot]'") from None
        save(figure, path, force=force)
    for one in subjects:
        options.warn_beyond_table(one, tokens)
    if form is not None:
        options.emit(form, figure.as_json(), figure.table)
    elif path is None:
        from ..plots.terminal import show

        show(figure)


@command.command("params")
@models
@drawing
def _params(
    models: tuple[str, ...], changes: tuple[str, ...], path: Path | None, force: bool, form: str | None
) -> None:
    """Parameters by component, a bar for each model.

    \b
    blockcalc plot params llama-3.1-8b mixtral-8x7b gemma-2-9b -o params.png
    """
    from ..plots.pictures import params

    budgets = {one.name: one.budget(Step.forward(1, 1)) for one in _subjects(models, changes)}
    _show(params(budgets), path, force, form)


@command.command("kv")
@models
@options.batch
@click.option("--from", "first", default=1024, show_default=True, metavar="S", help="The shortest context.")
@click.option("--to", "last", default=131072, show_default=True, metavar="S", help="The longest context.")
@click.option("--scale", type=click.Choice(["log", "linear"]), default="log", show_default=True, help="Of both axes.")
@options.encoder_seq
@options.dtype
@options.policy
@drawing
def _kv(
    models: tuple[str, ...], changes: tuple[str, ...], batch: int, first: int, last: int, scale: Any, encoder_seq: int | None,
    dtype: str, policy: Any, path: Path | None, force: bool, form: str | None,
) -> None:  # fmt: skip
    """KV cache against the context; a layer with a window stops growing at it.

    \b
    blockcalc plot kv llama-3.1-8b gemma-2-9b deepseek-v3 --to 131072 -o kv.svg
    """
    from ..plots.pictures import kv
    from ..plots.sweep import sweep

    subjects, budgets = _subjects(models, changes), {}
    for one in subjects:
        options.check_encoder_seq(one, encoder_seq)
        budgets[one.name] = sweep(one, first, last, lambda s: Step.prefill(batch, s, source=encoder_seq))
    _show(kv(budgets, dtype, policy, scale), path, force, form, subjects, last)


@command.command("flops")
@models
@options.batch
@click.option("--from", "first", default=128, show_default=True, metavar="T", help="The shortest sequence.")
@click.option("--to", "last", default=131072, show_default=True, metavar="T", help="The longest sequence.")
@click.option("--mode", type=click.Choice(["forward", "decode", "train"]), default="forward", show_default=True,
              help="What is run; a decode step against its context.")
@drawing
def _flops(
    models: tuple[str, ...], changes: tuple[str, ...], batch: int, first: int, last: int, mode: str, path: Path | None,
    force: bool, form: str | None,
) -> None:  # fmt: skip
    """Shares of attention, feed-forward and head in the FLOPs, against the sequence length.

    \b
    blockcalc plot flops llama-3.1-8b --to 1048576 -o flops.png
    """
    from ..plots.pictures import flops
    from ..plots.sweep import sweep

    subjects = _subjects(models, changes)
    budgets = {one.name: sweep(one, first, last, lambda s: options.step(mode, batch, s, None)) for one in subjects}
    _show(flops(budgets), path, force, form, subjects, last)


@command.command("activations")
@models
@options.batch
@options.seq
@options.dtype
@drawing
def _activations(
    models: tuple[str, ...], changes: tuple[str, ...], batch: int, seq: int, dtype: str, path: Path | None, force: bool,
    form: str | None,
) -> None:  # fmt: skip
    """Activation memory by attention kernel and recompute mode: what layers, loss and buffers keep.

    \b
    blockcalc plot activations llama-3.1-8b --batch 4 --seq 4096 -o activations.png
    """
    from ..plots.pictures import activations
    from ..plots.sweep import trainings

    subjects = _subjects(models, changes)
    budgets, missing = trainings(subjects, options.step("train", batch, seq, None))
    _show(activations(budgets, dtype, missing), path, force, form, subjects, seq)


@command.command("layers")
@models
@click.option("--of", type=click.Choice(["params", "kv", "activations"]), default="params", show_default=True,
              help="What of each layer.")
@options.batch
@options.seq
@options.dtype
@options.attention
@options.recompute
@options.policy
@drawing
def _layers(
    models: tuple[str, ...], changes: tuple[str, ...], of: Any, batch: int, seq: int, dtype: str, attention: Any,
    recompute: Any, policy: Any, path: Path | None, force: bool, form: str | None,
) -> None:  # fmt: skip
    """Parameters, KV cache at a context of --seq, or activations of each layer, coloured by kind.

    \b
    blockcalc plot layers gemma-3-12b --of kv --seq 32768 -o layers.svg
    """
    from ..plots.pictures import layers

    step = Step.prefill(batch, seq) if of == "kv" else Step.train(batch, seq)
    subjects = _subjects(models, changes)
    budgets = {one.name: one.budget(step, Kernels(attention=attention), recompute) for one in subjects}
    _show(layers(budgets, of, dtype, policy), path, force, form, subjects, seq)


@command.command("roofline")
@models
@options.batch
@options.seq
@options.mode
@options.context
@options.dtype
@options.attention
@click.option("--flops-per-second", metavar="RATE", help="What the machine computes at best, such as 989T.")
@click.option("--bytes-per-second", metavar="RATE", help="What its memory moves at best, such as 3.35T.")
@drawing
def _roofline(
    models: tuple[str, ...], changes: tuple[str, ...], batch: int, seq: int, mode: str, context: int | None, dtype: str,
    attention: Any, flops_per_second: str | None, bytes_per_second: str | None, path: Path | None, force: bool,
    form: str | None,
) -> None:  # fmt: skip
    """FLOPs a byte of each kind of operation, and what a machine attains there.

    \b
    blockcalc plot roofline llama-3.1-8b --mode decode --flops-per-second 989T --bytes-per-second 3.35T
    """
    from ..plots.roofline import Rates, rate, roofline

    machine = Rates(rate("--flops-per-second", flops_per_second), rate("--bytes-per-second", bytes_per_second))
    step = options.step(mode, batch, seq, context)
    subjects = _subjects(models, changes)
    budgets = {one.name: one.budget(step, Kernels(attention=attention)) for one in subjects}
    _show(roofline(budgets, machine, dtype), path, force, form, subjects, step.s)
