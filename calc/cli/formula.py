"""``blockcalc formula``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, UndefinedError
from ..exports import FORMATS
from ..tables.table import Column, Table
from . import options

if TYPE_CHECKING:
    from ..symbolic import Formula


@click.command("formula")
@options.model
@click.argument("quantities", nargs=-1, metavar="[QUANTITY]...")
@click.option("--format", "style", type=click.Choice(FORMATS), default="text", show_default=True,
              help="How it is written: for reading, or as a function that is exact or refuses.")  # fmt: skip
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write it to FILE.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--by-component", is_flag=True, help="Each operation's closed form besides.")
@options.convention
@options.dtype
@options.attention
@options.recompute
@options.policy
@options.output
def command(
    model: str, changes: tuple[str, ...], quantities: tuple[str, ...], style: str, path: Path | None, force: bool,
    by_component: bool, convention: str, dtype: str, attention: str, recompute: str, policy: str, form: str | None,
) -> None:  # fmt: skip
    """Print the closed form of each QUANTITY (params unless given) of a model, a family or a block: params, active,
    active_without_input, embedding, head, non_embedding, macs, flops, backward_flops, train_flops, prefill_flops,
    decode_flops, kv, kv_per_token, activations, or all of them.

    \b
    blockcalc formula llama
    blockcalc formula gemma-2-9b kv kv_per_token --dtype fp8
    blockcalc formula gated-mlp flops --by-component
    blockcalc formula deepseek-v3 train_flops --format javascript -o flops.js
    """
    from ..symbolic import components, formula
    from ..tensor import Kernels

    _check_form(form, style, path)
    asked: dict[str, Any] = dict(
        changes=options.changes_of(changes), convention=convention, dtype=dtype, kernels=Kernels(attention=attention),  # type: ignore[arg-type]
        recompute=recompute, policy=policy,
    )  # fmt: skip
    found: dict[str, Formula | UndefinedError] = {}
    parts: dict[str, dict[str, Formula]] = {}
    for quantity in _named(quantities):
        try:
            found[quantity] = formula(model, quantity, **asked)
            parts[quantity] = components(model, quantity, **asked) if by_component else {}
        except UndefinedError as error:
            if len(quantities) < 2 and quantities != ("all",):
                raise
            found[quantity] = error
    known = {quantity: one for quantity, one in found.items() if not isinstance(one, UndefinedError)}
    if path is not None or (style != "text" and form is None):
        text = "\n\n".join(_exported(known, parts, style)) + "\n"
        if path is None:
            click.echo(text, nl=False)
        else:
            options.save(path, text, force)
        return
    data = [_object(model, quantity, one, parts.get(quantity), style) for quantity, one in found.items()]
    whole = data[0] if len(data) == 1 else {"model": model, "formulas": data}
    options.emit(form, whole, *(_single if len(data) == 1 else _several)(model, found, parts, form))


def _check_form(form: str | None, style: str, path: Path | None) -> None:
    if style != "text" and form not in (None, "json"):
        raise InputError(f"--format {style}: it is no table; leave out --{form}")
    if path is not None and form is not None:
        raise InputError(f"-o {path}: writes what --format prints; leave out --{form}, or redirect it")


def _named(quantities: tuple[str, ...]) -> tuple[str, ...]:
    from ..symbolic import QUANTITIES

    return tuple(QUANTITIES) if "all" in quantities else tuple(dict.fromkeys(quantities or ("params",)))


def _exported(known: dict[str, Formula], parts: dict[str, dict[str, Formula]], style: str) -> list[str]:
    from ..exports import export

    return [export(one, style) for quantity, whole in known.items() for one in (*parts[quantity].values(), whole)]


def _object(
    model: str, quantity: str, found: Formula | UndefinedError, parts: dict[str, Formula] | None, style: str
) -> dict[str, Any]:
    """What scripts parse."""
    if isinstance(found, UndefinedError):
        return {"model": model, "quantity": quantity, "undefined": str(found)}
    from ..exports import export

    symbols = {
        str(s): {"meaning": meaning, "value": found.values.get(s), "unit": found.units[s]}
        for s, meaning in found.meanings.items()
    }
    data: dict[str, Any] = {
        "model": model, "quantity": quantity, "unit": found.unit, "formula": found.text(), "symbols": symbols,
        "value": found.value, **found.conditions,
    }  # fmt: skip
    if parts:
        data["components"] = [{"path": path, "formula": one.text(), "value": one.value} for path, one in parts.items()]
    return data if style == "text" else {**data, "format": style, "export": export(found, style)}


def _single(
    model: str, found: dict[str, Any], parts: dict[str, dict[str, Formula]], form: str | None
) -> tuple[Table, ...]:
    """The formula, then its symbols; each operation's before."""
    ((quantity, one),) = found.items()
    if form is None:
        click.echo(f"{quantity} of {model} in {one.unit}:\n\n  {one.text()}\n")
    notes = () if form is None else (f"{quantity} in {one.unit}: {one.text()}",)
    listing = [_components(parts[quantity], one.unit)] if parts[quantity] else []
    return (*listing, Table("", *_symbols(one), notes))


def _components(parts: dict[str, Formula], unit: str) -> Table:
    """A row an operation; the values too where no symbol is free."""
    rows = [(path, one.text(), one.value) for path, one in parts.items()]
    columns = (Column("operation"), Column("formula"), Column("here", "bytes" if unit == "bytes" else "count"))
    kept = 3 if any(value is not None for *_, value in rows) else 2
    return Table("", columns[:kept], tuple(row[:kept] for row in rows))


def _several(
    model: str, found: dict[str, Any], parts: dict[str, dict[str, Formula]], form: str | None
) -> tuple[Table, ...]:
    """A formula a row, those of its operations before it; then all symbols."""
    rows: list[tuple[str, ...]] = []
    symbols: dict[str, tuple[Any, ...]] = {}
    for quantity, one in found.items():
        if isinstance(one, UndefinedError):
            rows.append((quantity, "", f"not defined: {one}"))
            continue
        rows += [(f"{quantity} {path}", one.unit, part.text()) for path, part in parts[quantity].items()]
        rows.append((quantity, one.unit, one.text()))
        symbols.update((row[0], row) for row in _symbols(one)[1])
    meanings = (Column("symbol"), Column("means"), Column("here", "count"))
    listing = Table(model, (Column("quantity"), Column("unit"), Column("formula")), tuple(rows))
    return listing, Table("", meanings, tuple(symbols[name] for name in sorted(symbols)))


def _symbols(found: Formula) -> tuple[tuple[Column, ...], tuple[tuple[Any, ...], ...]]:
    rows = tuple((str(s), meaning, found.values.get(s)) for s, meaning in found.meanings.items())
    return (Column("symbol"), Column("means"), Column("here", "count")), rows
