"""``blockcalc claims``."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

import click

from ..errors import InputError
from ..tables.table import Column, Table
from . import options


def _ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..tables.claims import CLAIMS

    return [name for name in CLAIMS if name.startswith(incomplete)]


@click.command("claims")
@click.argument("claim", metavar="[ID]", required=False, shell_complete=_ids)
@click.option("--verify", is_flag=True, help="Measure with torch; exit code 1 where a value is not what is expected.")
@options.output
@click.pass_context
def command(ctx: click.Context, claim: str | None, verify: bool, form: str | None) -> None:
    """List what three articles say of the transformer block, each with a verdict; or show one of them in full: the
    statement, the closed form, the value, what torch measures, the reason. Verdicts follow from what is counted.

    \b
    blockcalc claims
    blockcalc claims asymmetric-dof --verify
    """
    from ..claims import entries, entry
    from ..tables.claims import ARTICLES

    found = entries() if claim is None else [entry(claim)]
    measured = _measured([one.claim for one in found]) if verify else {}
    data = [one.as_json(measured.get(one.claim.id)) for one in found]
    wrong = [
        one for one, shown in zip(found, data, strict=True)
        if any(value["agrees"] is False for value in shown["measured"]) or one.verdict != one.claim.verdict
    ]  # fmt: skip
    articles = {article.name: article._asdict() for article in ARTICLES}
    tables = _listing(data, ARTICLES, verify) if claim is None else _in_full(found[0], data[0], articles, form)
    options.emit(form, {"articles": list(articles.values()), "claims": data}, *tables)
    if verify:
        ctx.exit(1 if wrong else 0)


def _measured(claims: list[Any]) -> Mapping[str, tuple[float, ...]]:
    """What torch finds for the claims that it is asked about."""
    try:
        from ..refmodel.claims import measure
    except ModuleNotFoundError as missing:
        raise InputError(f"claims --verify needs {missing.name}: pip install 'blockcalc[verify]'") from None
    return {claim.id: measure(claim.id) for claim in claims if claim.measured}


def _listing(data: list[dict[str, Any]], articles: tuple[Any, ...], verify: bool) -> list[Table]:
    """One line a claim."""
    columns = [Column("id"), Column("where"), Column("verdict")]
    rows = [[one["id"], one["where"], one["verdict"]] for one in data]
    if verify:
        columns.append(Column("torch"))
        for row, one in zip(rows, data, strict=True):
            row.append(_agreement(one["measured"]))
    kinds = [one["verdict"] for one in data]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(sorted(kinds, key=kinds.count, reverse=True)))
    named = [f"{a.name}: {a.title} ({a.english}); author {a.author}; {a.date}" for a in articles]
    return [Table("", tuple(columns), tuple(map(tuple, rows)), (f"{len(data)} claims: {counted}", *named))]


def _agreement(measured: list[dict[str, Any]]) -> str:
    if not measured:
        return ""
    wrong = sum(value["agrees"] is False for value in measured)
    return f"{wrong} of {len(measured)} DIFFER" if wrong else f"{len(measured)} agree"


def _in_full(entry: Any, one: dict[str, Any], articles: dict[str, Any], form: str | None) -> list[Table]:
    """The statement and the reason as text, what was counted and what is measured as tables."""
    from ..claims import shown

    lines = {
        "id": one["id"], "where": one["where"], "of": articles[one["where"][:2]]["title"], "statement": one["statement"],
        "verdict": one["verdict"] + (f" {one['condition']}" if one["condition"] else ""), "reason": one["reason"],
    }  # fmt: skip
    if form is None:
        for name, text in lines.items():
            click.echo("\n".join(wrap(text, 100, initial_indent=f"{name:<11}", subsequent_indent=" " * 11)))
        click.echo()
    tables = [] if form is None else [Table("", (Column("of the claim"), Column("text")), tuple(lines.items()))]
    if entry.facts:
        columns = ("what", ""), ("closed form", ""), ("value", "count"), ("article", "count"), ("says", "")
        rows = tuple((f.what, f.formula, _short(f, shown), shown(f.claimed), f.says) for f in entry.facts)
        tables.append(Table("counted", tuple(Column(*column) for column in columns), rows))  # type: ignore[arg-type]
    if one["measured"]:
        names = ("what", "expected", "value", "says")
        values = tuple((m["what"], m["expected"], _number(m["value"]), m["says"]) for m in one["measured"])
        tables.append(Table("measured with torch", tuple(map(Column, names)), values))
    return tables


def _short(fact: Any, shown: Any) -> Any:
    """The value, but for one that is the closed form itself."""
    return None if fact.value == fact.formula else shown(fact.value)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"
