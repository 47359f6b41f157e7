"""``blockcalc machines``."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("machines")
@click.argument("name", required=False, shell_complete=options.complete_machine)
@options.output
def command(name: str | None, form: str | None) -> None:
    """List accelerators: dense peak rates, memory, bandwidth, links. With the NAME of one, or the path of your own TOML file,
    show each figure with its source, what other sources say, and what to beware of.

    \b
    blockcalc machines
    blockcalc machines h100-sxm
    blockcalc machines --json

    A file starts from a machine of the list, or gives everything:

    \b
    name = "our-h100"
    like = "h100-sxm"
    memory_bytes = 85520809984
    bandwidth = "2.4T"          # bytes/s; a whole number, or a text with an SI letter
    link = "450G"               # bytes/s to the devices of its domain, in one direction
    domain = 8
    node = 8
    network = "50G"             # bytes/s to other devices
    watts = 500
    matmul = "700T"             # FLOP/s of the best bf16 product measured
    flops = {bf16 = "989.4T", fp8 = "1978.9T"}
    """
    data, table = _listed(form) if name is None else _one(name)
    options.emit(form, data, table)


def _listed(form: str | None) -> tuple[dict[str, Any], Any]:
    """A terminal shows rounded figures, so that a machine is a line; every other form has them whole."""
    from ..tables import machines
    from ..tables.table import Column, Table, rounded
    from ..timing.machine import Machine, machine

    known = machines()["machines"]
    found = [machine(name) for name in known]
    data = {"machines": [{"title": known[m.name]["title"], **m.__dict__, "peaks": m.peaks._asdict()} for m in found]}
    if form is not None:
        return data, Table("", tuple(Column(name, unit) for name, unit in _WHOLE.items()), tuple(map(_whole, found)))

    def line(m: Machine) -> tuple[Any, ...]:
        link = f"{rounded(m.link, 'flops')} × {m.domain}" if m.link else None
        rates = (rounded(value, "flops") or None for value in (m.peaks.bf16 or m.peaks.fp16, m.peaks.fp8, m.bandwidth))
        sixteen, eight, bandwidth = rates
        return m.name, sixteen, eight, rounded(m.memory_bytes, "bytes"), bandwidth, link

    headings = ("machine", "16-bit", "fp8", "memory", "B/s", "link")
    columns = (Column(headings[0]), *(Column(heading, "size") for heading in headings[1:]))
    return data, Table("", columns, tuple(map(line, found)), _NOTES)


_WHOLE: dict[str, Any] = {
    "machine": "", "fp16": "flops", "bf16": "flops", "fp8": "flops", "memory": "bytes", "bandwidth": "flops", "link": "flops",
    "domain": "size", "network": "flops", "watts": "size",
}  # fmt: skip


def _whole(m: Any) -> tuple[Any, ...]:
    peaks = (m.peaks.fp16, m.peaks.bf16, m.peaks.fp8)
    return (m.name, *peaks, m.memory_bytes, m.bandwidth, m.link, m.domain, m.network, m.watts)


_NOTES = (
    "Dense FLOP/s in bf16, else fp16, and in fp8; memory as the driver shows it, else as on the label; bytes/s of that memory;"
    " bytes/s of a device in one direction to the others of its domain, of so many devices.",
    "Every figure in full, with its source and what to beware of: blockcalc machines NAME.",
)


def _one(name: str) -> tuple[dict[str, Any], Any]:
    from ..tables import machines
    from ..tables.table import Column, Table
    from ..timing.machine import machine

    known, found = machines()["machines"].get(name), machine(name)
    if known is None:
        given = {**found.peaks._asdict(), **found.__dict__}
        named = {field: value for field, value in given.items() if value is not None and field not in ("name", "peaks")}
        figures, sources, traps = {field: {"value": value, "source": name} for field, value in named.items()}, {}, ()
        title = found.name
    else:
        figures, sources, traps = known["figures"], machines()["sources"], tuple(known["traps"])
        title = f"{name}: {known['title']}"
    columns = (
        Column("figure"), Column("value", "size"), Column("unit"), Column("about"), Column("source"), Column("elsewhere"),
    )  # fmt: skip
    rows = tuple(_row(figure.removesuffix("_bytes"), entry, sources) for figure, entry in figures.items())
    entries = [each for entry in figures.values() for each in (entry, *entry.get("others", ()))]
    used = {entry["source"]: sources[entry["source"]] for entry in entries if entry["source"] in sources}
    data = {"name": found.name, "title": title, "figures": figures, "traps": list(traps), "sources": used}
    return {"machine": data}, Table(title, columns, rows, traps)


_UNITS = {"memory": "bytes", "bandwidth": "B/s", "link": "B/s", "network": "B/s", "watts": "W", "domain": "devices",
          "node": "devices", "int8": "op/s"}  # fmt: skip


def _row(figure: str, entry: dict[str, Any], sources: dict[str, Any]) -> tuple[Any, ...]:
    from ..tables.table import rounded

    value, unit = entry["value"], _UNITS.get(figure, "FLOP/s")
    near = rounded(value, "bytes") if unit == "bytes" else rounded(value, "flops") + unit if rounded(value, "flops") else ""
    about = ", ".join(text for text in (near, entry.get("label")) if text)
    others = "; ".join(f"{other['value']:,}: {_title(other['source'], sources)}" for other in entry.get("others", ()))
    return figure, value, unit, about or None, _title(entry["source"], sources), others or None


def _title(source: str, sources: dict[str, Any]) -> str:
    return str(sources[source]["title"]) if source in sources else source
