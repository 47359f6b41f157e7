"""The sections of the page: tables at the first settings, and the places that the script fills."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..convention import CONVENTIONS
from ..plots.pictures import POLICIES
from ..tables.markup import html
from ..tables.table import cell, rounded
from .content import NAMES, Content
from .forms import LENGTHS
from .ledgers import CHOICES, ONE_MORE, Ledger

_LINES = {
    "sizes": "The letters of the formulas.",
    "params": "A tied weight counts once, with its first user. Active is what one token uses.",
    "flops": "Of the step that is run. " + " ".join(
        f"Convention {name}: {CONVENTIONS[name].formula}; {CONVENTIONS[name].counts}." for name in CHOICES["convention"]
    ),
    "kv": "At the context S, whatever is run.",
    "activations": "What autograd keeps of a training step of B sequences of T tokens, whatever is run; RMSNorm out of"
                   " elementary operations.",
}  # fmt: skip


def sections(content: Content) -> Iterator[str]:
    """All of them, in order."""
    ledgers, policy = content.ledgers, content.settings.policy
    yield _section("sizes", "Sizes", _LINES["sizes"], _sizes(content))
    counted = [_table(content, ledgers[name]) for name in ("parts", "components", "active") if ledgers[name].rows]
    pictured = _figure("parts", "Parameters by part") + "".join(counted)
    yield _section("params", "Parameters", _LINES["params"], _ledger(content, "params") + pictured)
    shares = _curves("flops", "Shares of the FLOPs against the length") if {"seq", "context"} & set(content.fields) else ""
    yield _section("flops", "FLOPs", _LINES["flops"], _ledger(content, "flops") + shares)
    if ledgers["kv"].rows:
        curve = _curves("kv", "KV cache against the context") if "context" in content.fields else ""
        line = f"{_LINES['kv']} Policy {policy}: {POLICIES[policy]}."
        yield _section("kv", "KV cache", line, _ledger(content, "kv") + curve)
    else:
        yield _section("kv", "KV cache", "It keeps none.", "")
    yield _section("activations", "Activations", _LINES["activations"], _ledger(content, "activations"))


def _section(name: str, title: str, about: str, inner: str) -> str:
    return (
        f'<section aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f'<p class="about">{html(about)}</p>{inner}</section>'
    )


def _sizes(content: Content) -> str:
    """Each letter with its meaning, its size and what it counts."""
    rows = []
    for name in content.forms.symbols:
        meaning, unit = content.forms.meaning(name)
        size = "an input" if name in LENGTHS else f"{content.subject.sizes[name]:,}"
        cells = f'<td class="number">{size}</td><td>{unit if unit not in meaning else ""}</td>'
        rows.append(f'<tr><td>{letter(name)}</td><th scope="row">{html(meaning)}</th>{cells}</tr>')
    head = _head(("symbol", ""), ("means", ""), ("here", "number"), ("unit", ""))
    return _scroll("Sizes", f"<table><caption>Letters</caption>{head}<tbody>{''.join(rows)}</tbody></table>")


def letter(name: str) -> str:
    """F_expert as F with a subscript."""
    plain, _, scope = name.partition("_")
    below = f"<sub>{scope.replace('_', ' ')}</sub>" if scope else ""
    return f"<var>{plain}{below}</var>"


def _head(*headings: tuple[str, str]) -> str:
    """Headings, each with its class."""
    cells = "".join(f'<th scope="col" class="{look}">{text}</th>' for text, look in headings)
    return f"<thead><tr>{cells}</tr></thead>"


def _scroll(label: str, inner: str) -> str:
    return f'<div class="scroll" role="group" aria-label="{html(label)}">{inner}</div>'


# -- ledgers -----------------------------------------------------------------------------------------------------------


def _ledger(content: Content, name: str) -> str:
    """The total's form, why it is not defined where it is not, and the table."""
    ledger = content.ledgers[name]
    case = ledger.case(content.settings.words)
    refusal = html(f"Not defined: {case}.") if isinstance(case, str) else ""
    line = f'<p class="error" id="{name}-refusal" role="status">{refusal}</p>'
    return _form(content, ledger, "total") + line + _table(content, ledger)


def _table(content: Content, ledger: Ledger) -> str:
    """A row each, then the forms of those that are not the total."""
    shares = [("share", "number")] if ledger.parts else []
    head = _head(("of", ""), (NAMES[ledger.unit], "number"), ("≈", "number"), *shares)
    rows = "".join(_row(content, ledger, row) for row in ledger.rows)
    table = f"<table><caption>{ledger.title}</caption>{head}<tbody>{rows}</tbody></table>"
    forms = "".join(_form(content, ledger, row) for row in ledger.rows if row != "total")
    closed = f"<details><summary>Closed forms: {ledger.title}</summary>{forms}</details>"
    return _scroll(ledger.title, table) + (closed if forms else "")


def _row(content: Content, ledger: Ledger, row: str) -> str:
    """A total without a value is shown, as a dash: it is not defined."""
    value, total = content.value(ledger, row), content.value(ledger, "total")
    attributes = _place(ledger, row, hidden=value is None and not (row == "total" and total is None))
    if row == "total":
        attributes += ' class="total"'
    cells = f'<td class="number value">{"—" if value is None else f"{value:,}"}</td>'
    cells += f'<td class="number rounded">{"" if value is None else rounded(value, ledger.unit)}</td>'
    if ledger.parts and row != ONE_MORE:
        cells += f'<td class="number share">{cell(Fraction(value, total), "share") if value and total else ""}</td>'
    return f'<tr {attributes}><th scope="row">{html(row).replace(".", ".<wbr>")}</th>{cells}</tr>'


def _place(ledger: Ledger, row: str, *, hidden: bool) -> str:
    """The attributes by which the script finds what it fills."""
    return f'data-ledger="{ledger.name}" data-row="{html(row)}"' + (" hidden" if hidden else "")


def _form(content: Content, ledger: Ledger, row: str) -> str:
    """The closed form of a row; the script puts the numbers in."""
    form = content.form(ledger, row)
    math = "" if form is None else content.forms.mathml(form)
    attributes = f'class="form scroll" role="group" aria-label="Closed form: {html(row)}"'
    inner = f'<p>{html(row)}</p><div class="closed">{math}</div><div class="put"></div>'
    return f"<div {attributes} {_place(ledger, row, hidden=form is None)}>{inner}</div>"


# -- pictures ----------------------------------------------------------------------------------------------------------


def _figure(name: str, title: str, more: str = "") -> str:
    """Where the script draws."""
    return f'<figure id="picture-{name}"><figcaption>{title}</figcaption><div class="canvas"></div>{more}</figure>'


def _curves(name: str, title: str) -> str:
    """A picture with what its colours are, and its numbers."""
    table = f"<table><caption>{title}</caption><thead></thead><tbody></tbody></table>"
    numbers = f"<details><summary>Numbers: {title}</summary>{_scroll(f'Numbers: {title}', table)}</details>"
    return _figure(name, title, f'<ul class="legend"></ul>{numbers}')
