"""``blockcalc params``."""

from __future__ import annotations

import click

from . import answers, options


@click.command("params")
@options.model
@click.option("--seq", default=2048, show_default=True, metavar="T", help="Positions; they matter to token mixing alone.")
@options.lora
@options.output
def command(model: str, changes: tuple[str, ...], seq: int, lora: str | None, form: str | None) -> None:
    """Count parameters: total, active, embedding, head, and each component.

    \b
    blockcalc params llama-3.1-8b
    blockcalc params path/to/config.json --set num_hidden_layers=16 --json
    blockcalc params llama-3.1-8b --lora 16:q,v
    blockcalc params gated-mlp --set d=4096 --set f=14336
    """
    from ..tensor import Step

    subject = options.subject(model, changes)
    found, tables = answers.params(subject.budget(Step.forward(1, seq), lora=lora))
    tables[0] = tables[0]._replace(notes=options.notes(subject))
    options.emit(form, {"model": subject.name, **found}, *tables)
