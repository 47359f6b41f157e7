"""``blockcalc checkpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import options

if TYPE_CHECKING:
    from ..storage.checkpoints import Checkpoint
    from ..storage.comparison import Comparison
    from ..storage.packed import Parameters


@click.command("checkpoint")
@click.argument("path")
@click.argument("model", required=False, shell_complete=options.complete_model)
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Override a field of the model's config.")
@options.output
def command(path: str, model: str | None, changes: tuple[str, ...], form: str | None) -> None:
    """Read a checkpoint's header: bytes by type, parameters, and whether they are a model's.

    PATH is a .safetensors or .gguf file, a .safetensors.index.json, or a folder with one of these. Packed matrices (GPTQ,
    AWQ, bitsandbytes, MXFP4, NVFP4, GGUF blocks) count as what they stand for. With MODEL every tensor is held against the
    model's, by shape; a GGUF by its total. Exit code 1: they differ.

    \b
    blockcalc checkpoint model.safetensors
    blockcalc checkpoint path/to/folder llama-3.1-8b
    blockcalc checkpoint model-Q4_K_M.gguf path/to/config.json --json
    """
    from ..readers import load
    from ..storage.checkpoints import read
    from ..storage.comparison import compare, compare_counts
    from ..storage.packed import parameters

    checkpoint = read(path)
    found = parameters(checkpoint)
    comparison = None
    if model is not None:
        hold = compare if checkpoint.form == "safetensors" else compare_counts
        comparison = hold(found, load(model, options.changes_of(changes)))
    options.emit(form, _data(checkpoint, found, model, comparison), *_tables(checkpoint, found, model, comparison))
    if comparison is not None and not comparison.equal:
        click.get_current_context().exit(1)


def _data(checkpoint: Checkpoint, found: Parameters, model: str | None, comparison: Comparison | None) -> dict[str, Any]:
    data: dict[str, Any] = {"path": checkpoint.path, "form": checkpoint.form, "files": [file.name for file in checkpoint.files]}
    data |= {"parameters": found.total, "all": checkpoint.all()._asdict()}
    data["types"] = [stock._asdict() for stock in checkpoint.types()]
    if comparison is not None:
        data["comparison"] = {"name": model, "equal": comparison.equal, **comparison._asdict()}
        data["comparison"]["differences"] = [difference._asdict() for difference in comparison.differences]
    return data


def _tables(checkpoint: Checkpoint, found: Parameters, model: str | None, comparison: Comparison | None) -> list[Any]:
    from ..tables.table import Column, Table

    columns = (Column("type"), Column("tensors", "count"), Column("items", "count"), Column("bytes", "bytes"))
    counts = Table("", (Column("of"), Column("parameters", "count")), (("checkpoint", found.total),))
    tables = [Table(checkpoint.path, columns, (*checkpoint.types(), checkpoint.all())), counts]
    if comparison is not None:
        rows = ((model, comparison.model), ("difference", comparison.difference))
        tables[1] = counts._replace(rows=(*counts.rows, *rows), notes=("equal" if comparison.equal else "They differ.",))
    if comparison is not None and comparison.differences:
        tables.append(_differences(comparison))
    return tables


def _differences(comparison: Comparison) -> Any:
    from ..tables.table import Column, Table

    columns = (
        Column("tensors", "count"), Column("are"), Column("in the model"), Column("in the checkpoint"),
        Column("parameters", "count"), Column("the model's lines"), Column("the checkpoint's names"),
    )  # fmt: skip
    return Table("", columns, tuple(
        (d.tensors, d.kind, _shape(d.model), _shape(d.checkpoint), d.params, ", ".join(d.paths), ", ".join(d.names))
        for d in comparison.differences
    ))  # fmt: skip


def _shape(shape: tuple[int, ...] | None) -> str | None:
    return None if shape is None else " × ".join(map(str, shape)) or "1"
