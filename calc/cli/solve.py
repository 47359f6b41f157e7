"""``blockcalc solve``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..tables.table import Column, Table, Unit
from . import options

if TYPE_CHECKING:
    from ..inverse.solution import Solution

_UNITS: dict[str, Unit] = {"parameters": "count", "FLOPs": "flops", "bytes": "bytes"}


@click.command("solve")
@click.argument("equation")
@click.argument("model", required=False, shell_complete=options.complete_model)
@click.option("--for", "unknown", required=True, metavar="SIZE",
              help="A letter (d, f, l_moe), a word (batch, seq, context, layers), or a field of the config.")  # fmt: skip
@click.option("--family", default=None, metavar="NAME", help="A family instead of a model: all its sizes are free.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Fix a letter, or a field of the config.")
@click.option("--tie", "ties", multiple=True, metavar="LETTER=SIZE", help="A letter in terms of others: l=d/128, f=8d/3.")
@click.option("--multiple", default=1, show_default=True, metavar="N", help="Choose among the multiples of N: 64, 128, 256.")
@click.option("--batch", type=int, default=None, metavar="B", help="Sequences; 1 where the sizes of a model are known.")
@click.option("--seq", type=int, default=None, metavar="T", help="New tokens a sequence; 2048 where the sizes are known.")
@click.option("--context", type=int, default=None, metavar="S", help="Visible tokens; 8192 where the sizes are known.")
@options.encoder_seq
@options.dtype
@options.policy
@options.convention
@options.attention
@options.recompute
@options.output
@click.pass_context
def command(
    ctx: click.Context, equation: str, model: str | None, unknown: str, family: str | None, changes: tuple[str, ...],
    ties: tuple[str, ...], multiple: int, batch: int | None, seq: int | None, context: int | None, encoder_seq: int | None,
    dtype: str, policy: Any, convention: str, attention: Any, recompute: Any, form: str | None,
) -> None:  # fmt: skip
    """Solve an EQUATION for one size: QUANTITY, QUANTITY[PART, …], QUANTITY(SUBJECT, LETTER=SIZE, …) =, <= or >= the same or
    a number with a unit (7e9, 7B, 80GiB).

    The sizes of a block or a --family are free unless fixed, and the answer is a closed form; where all sizes are known it is
    a whole number, with what the ledgers count there and next to it. Exit code 1: nothing, or everything, satisfies it.

    \b
    blockcalc solve "kv <= 16GiB" llama-3.1-8b --for context
    blockcalc solve "params = params(mlp, f=4d)" gated-mlp --for f
    blockcalc solve "flops[scores, mix] >= flops[mlp]" --family llama --for seq --tie h=d/n
    blockcalc solve "params[layer] = 7e9" --family gpt2 --for d --tie l=d/128 --tie f=4d --tie h=d/n --tie k=n --set n=32
    blockcalc solve "params = 7B" gpt2 --for n_embd --multiple 128
    """
    from ..breakdown import How
    from ..inverse.grammar import assignment
    from ..inverse.sides import is_free
    from ..inverse.solve import solve
    from ..tensor import Kernels

    free = model is None or is_free(model)  # no config, and so no fields
    letters = [text for text in changes if free or len(text.partition("=")[0].strip()) == 1]
    changed = [text for text in changes if text not in letters]
    if encoder_seq is not None and model is not None and not free:
        options.check_encoder_seq(options.subject(model, changed), encoder_seq)
    found = solve(
        equation, unknown, model, family=family, changes=options.changes_of(changed),
        sizes=_once([assignment(text) for text in (*letters, *ties)]), batch=batch, seq=seq, context=context,
        encoder_seq=encoder_seq, multiple=multiple, dtype=dtype, convention=convention, policy=policy,
        kernels=Kernels(attention=attention), recompute=recompute,
    )  # fmt: skip
    how = How(dtype, convention, policy, Kernels(attention=attention), recompute).about(found.equation.left.quantity)
    if model is not None and not free and found.unknown in ("T", "S") and found.answers:
        options.warn_beyond_table(options.subject(model, changed), found.answers[-1].at)
    options.emit(form, _data(equation, found, how), *_tables(equation, found, how))
    if found.reason is not None:
        ctx.exit(1)


def _once(sizes: list[tuple[str, str]]) -> dict[str, str]:
    """The sizes by letter, each given once."""
    names = [name for name, _ in sizes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name}: given twice")
    return dict(sizes)


def _data(equation: str, found: Solution, how: Mapping[str, str]) -> dict[str, Any]:
    from sympy import srepr

    return {
        "equation": equation, "for": found.unknown, "unit": found.unit, "left": found.left, "right": found.right,
        "closed_forms": [{"relation": c.relation, "text": c.text(), "srepr": srepr(c.expr)} for c in found.closed],
        "answer": found.answer,
        "answers": [
            {"what": one.what, "at": one.at, "choices": [
                {**choice._asdict(), "distance": choice.distance} for choice in one.choices
            ]} for one in found.answers
        ],
        "reason": found.reason, "proof": found.proved, "held": dict(found.held), **how,
    }  # fmt: skip


def _tables(equation: str, found: Solution, how: Mapping[str, str]) -> list[Table]:
    """The answers, or the closed forms where there are no numbers; what was held stands below."""
    facts = ", ".join(f"{name} = {size}" for name, size in found.held.items())
    notes = [f"{found.left} {found.equation.relation} {found.right}", *([f"held: {facts}"] if facts else [])]
    notes += ["; ".join(f"{name} {value}" for name, value in how.items())] if how else []
    if found.reason is not None:
        return [Table(equation, (Column("answer"),), (("none",),), (found.reason, *notes))]
    closed = [(found.unknown, one.relation, one.text()) for one in found.closed]
    if not found.answers:
        sure = len(closed) == 1 and found.closed[0].expr.is_positive
        where = () if sure else ("where it is real and positive",)
        return [Table(equation, (Column("for"), Column(""), Column("closed form")), tuple(closed), (*where, *notes))]
    unit = _UNITS.get(found.unit, "count")
    columns = (Column(""), Column(found.unknown, "count"), Column("left", unit), Column("right", unit),
               Column("left − right", unit), Column("holds"))  # fmt: skip
    rows = [
        (answer.what if choice.at == answer.at else None, choice.at, choice.left, choice.right, choice.distance,
         "yes" if choice.holds else "no")
        for answer in found.answers for choice in answer.choices
    ]  # fmt: skip
    exact = [f"{found.unknown} {one.relation} {one.text()}" for one in found.closed]
    return [Table(equation, columns, tuple(rows), (*exact, *notes, found.proved))]
