"""``blockcalc explain``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..tables.table import Column, Table, Unit, print_table
from . import options

if TYPE_CHECKING:
    from ..explain import Node
    from ..tables.tree import Branch

_UNITS: dict[str, Unit] = {"parameters": "count", "FLOPs": "flops", "bytes": "bytes"}


@click.command("explain")
@options.model
@click.argument("path", required=False)
@click.option("--quantity", "quantities", multiple=True, default=("params", "flops"), show_default=True, metavar="NAME",
              help="What is explained, as for 'blockcalc formula'; may be given several times.")  # fmt: skip
@click.option("--depth", type=click.IntRange(0), default=None, metavar="N", help="Levels shown below the first.")
@options.batch
@options.seq
@click.option("--context", type=int, default=None, metavar="S",
              help="Visible tokens of kv and decode_flops; --seq if not given.")  # fmt: skip
@options.dtype
@options.convention
@options.policy
@options.attention
@options.recompute
@options.output
def command(
    model: str, changes: tuple[str, ...], path: str | None, quantities: tuple[str, ...], depth: int | None, batch: int,
    seq: int, context: int | None, dtype: str, convention: str, policy: Any, attention: Any, recompute: Any, form: str | None,
) -> None:  # fmt: skip
    """Show the tree of components (from PATH on, which may be a glob): of each the formula, the numbers put in, the value, its
    share of the whole, and of each operation the rule and the paper.

    \b
    blockcalc explain llama-3.1-8b --depth 2
    blockcalc explain deepseek-v3 decoder.moe.attention
    blockcalc explain gemma-2-9b '*.attention' --quantity kv --context 32768
    """
    from ..breakdown import How
    from ..explain import Subject, explain, select
    from ..tensor import Kernels

    named = options.subject(model, changes)
    block = options.is_block(model)
    subject = Subject.block(model, options.changes_of(changes)) if block else Subject.of(named.name, named.component)
    quantities = tuple(dict.fromkeys(quantities))
    how = How(dtype, convention, policy, Kernels(attention=attention), recompute)
    root = explain(subject, batch, seq, context=context, quantities=quantities, how=how)
    nodes = select(root, path)
    if not nodes:
        what = f"no such path that adds to {' or '.join(quantities)}"
        raise InputError(f"{path}: {subject.name} has {what}; 'blockcalc explain {subject.name}' lists them")
    leaves = [leaf for node in nodes for leaf in node.leaves()]
    nodes = nodes if depth is None else tuple(node.pruned(depth) for node in nodes)
    note = f"batch {batch}, seq {seq}" + ("" if context is None else f", context {context}")
    note += f"; {dtype}; attention {attention}; recompute {recompute}; policy {policy}; convention {convention}"
    if form is not None:
        data = {
            "model": subject.name, "batch": batch, "seq": seq, "explained": [_flat(leaf) for leaf in leaves],
            "tree": [_nested(node) for node in nodes],
        }  # fmt: skip
        options.emit(form, data, _table("", quantities, nodes, note))
    elif all(not node.children for node in nodes):
        _records(quantities, nodes, note)
    else:
        _trees(quantities, nodes, note)
    options.warn_beyond_table(named, _seen(quantities, batch, seq, seq if context is None else context))


def _seen(quantities: Sequence[str], batch: int, seq: int, context: int) -> int:
    """The most positions that one of the quantities sees; none where all count parameters."""
    from ..breakdown import quantity, step_of

    asked = [one for one in quantities if quantity(one).unit != "parameters"]
    return max((step_of(one, batch, seq, context).s for one in asked), default=0)


def _flat(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"path": node.path}
    for quantity, amount in node.amounts.items():
        found |= {
            quantity: amount.formula, f"{quantity}_put_in": amount.put_in, f"{quantity}_value": amount.value,
            f"{quantity}_share": str(amount.share),
        }  # fmt: skip
    return {**found, "component": node.component, "rule": node.rule, "source": node.source}


def _nested(node: Node) -> dict[str, Any]:
    return {**_flat(node), "children": [_nested(child) for child in node.children]}


def _walk(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _walk(node.children)


def _unit(quantity: str) -> Unit:
    from ..symbolic import QUANTITIES

    return _UNITS.get(QUANTITIES[quantity].unit, "count")


def _table(title: str, quantities: Sequence[str], nodes: Sequence[Node], note: str, exact: bool = True) -> Table:
    """A row a node and quantity; shares are exact fractions, or percentages."""
    from ..tables.tree import percent

    rows = [
        (node.path, quantity, amount.formula, amount.put_in, amount.value,
         str(amount.share) if exact else percent(amount.share), node.rule or None, node.source or None)
        for node in _walk(nodes) for quantity in quantities if (amount := node.amounts[quantity]).value
    ]  # fmt: skip
    unit = _unit(quantities[0]) if len(quantities) == 1 else "count"
    names = (Column("path"), Column("of"), Column("formula"), Column("="), Column("value", unit), Column("share"))
    return Table(title, (*names, Column("rule"), Column("source")), tuple(rows), (note,))


def _records(quantities: Sequence[str], nodes: Sequence[Node], note: str) -> None:
    for quantity in quantities:
        table = _table("", [quantity], nodes, "", exact=False)
        if table.rows:
            print_table(table._replace(notes=()))
        else:
            click.echo(f"{_about(quantity)}: 0\n")
    click.echo(note)


def _trees(quantities: Sequence[str], nodes: Sequence[Node], note: str) -> None:
    """A tree a quantity, then what the rules and the components are."""
    from ..tables.tree import print_legend, print_tree

    for quantity in quantities:
        branches = [_branch(node, quantity, "") for node in nodes if node.amounts[quantity].value]
        if branches:
            print_tree(_about(quantity), _unit(quantity), branches)
        else:
            click.echo(f"{_about(quantity)}: 0")
        click.echo()
    shown = [node for node in _walk(nodes) if not node.children and node.rule]
    rules = dict(node.rule.split(": ", 1) for node in shown)
    if rules:
        print_legend("rules", list(rules.items()))
        print_legend("components", list({node.component: node.source for node in shown if node.component}.items()))
    click.echo(note)


def _about(quantity: str) -> str:
    from ..symbolic import QUANTITIES

    return f"{quantity}: {QUANTITIES[quantity].meaning}, in {QUANTITIES[quantity].unit}"


def _branch(node: Node, quantity: str, above: str) -> Branch:
    from ..tables.tree import Branch

    amount = node.amounts[quantity]
    below = tuple(_branch(child, quantity, node.path) for child in node.children if child.amounts[quantity].value)
    label = node.path.removeprefix(f"{above}.") if above else node.path
    return Branch(label, amount.value, amount.share, (amount.formula, amount.put_in), below)
