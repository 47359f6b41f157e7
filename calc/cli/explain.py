"""``blockcalc explain``."""

from __future__ import annotations

import click

from ..errors import InputError
from ..tables.table import Column, Table
from . import options


@click.command("explain")
@options.model
@click.argument("path", required=False)
@options.batch
@options.seq
@options.output
def command(
    model: str, changes: tuple[str, ...], path: str | None, batch: int, seq: int, form: str | None
) -> None:
    """Show, operation by operation (those under PATH), the formula, the numbers put in, the value and the source.

    \b
    blockcalc explain llama-3.1-8b
    blockcalc explain deepseek-v3 decoder.moe.attention
    """
    from ..explain import explain

    subject = options.subject(model, changes)
    found = [
        one for one in explain(subject.component, batch, seq, subject.width)
        if path is None or one.path == path or one.path.startswith(f"{path}.")
    ]  # fmt: skip
    if not found:
        raise InputError(f"{path}: {subject.name} has no such path; 'blockcalc params {subject.name}' lists them")
    rows = []
    for one in found:
        if one.params_value:
            rows.append((one.path, "parameters", one.params, one.params_put_in, one.params_value, one.source))
        if one.flops_value:
            rows.append((one.path, "forward FLOPs", one.flops, one.flops_put_in, one.flops_value, one.source))
    columns = (Column("path"), Column("of"), Column("formula"), Column("="), Column("value", "count"), Column("source"))
    note = f"batch {batch}, seq {seq}; two FLOPs a multiply-add over full attention squares"
    data = {"model": subject.name, "batch": batch, "seq": seq, "explained": [one._asdict() for one in found]}
    options.emit(form, data, Table("", columns, tuple(rows), (note,)))
