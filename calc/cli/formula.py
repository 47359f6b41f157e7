"""``blockcalc formula``."""

from __future__ import annotations

import click

from ..tables.table import Column, Table
from . import options


@click.command("formula")
@click.argument("model", shell_complete=options._names)
@click.argument("quantity", default="params")
@click.option("--format", "style", type=click.Choice(["text"]), default="text", show_default=True, help="How it is written.")
@options.convention
@options.dtype
@options.attention
@options.output
def command(
    model: str, quantity: str, style: str, convention: str, dtype: str, attention: str, form: str | None
) -> None:
    """Print the closed form of a QUANTITY of a model, a family or a block: params, active, flops, train_flops,
    decode_flops, kv or activations.

    \b
    blockcalc formula llama
    blockcalc formula gemma-2-9b kv --dtype bf16
    blockcalc formula gated-mlp flops --json
    """
    from ..symbolic import formula
    from ..tensor import Kernels

    found = formula(model, quantity, convention=convention, dtype=dtype, kernels=Kernels(attention=attention))  # type: ignore[arg-type]
    symbols = {str(s): {"meaning": meaning, "value": found.values.get(s)} for s, meaning in found.meanings.items()}
    data = {"model": model, "quantity": quantity, "unit": found.unit, "formula": found.text(), "symbols": symbols}
    if "flops" in quantity:
        data["convention"] = convention
    if form is None:
        click.echo(f"{quantity} of {model} in {found.unit}:\n\n  {found.text()}\n")
    rows = tuple((name, about["meaning"], about["value"]) for name, about in symbols.items())
    columns = (Column("symbol"), Column("means"), Column("here", "count"))
    notes = () if form is None else (f"{quantity} in {found.unit}: {found.text()}",)
    options.emit(form, data, Table("", columns, rows, notes))
