"""What ``blockcalc fit`` answers, as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import InputError
from ..parallel.layout import Layout
from ..plan.fit import Fit, fit, largest, quantised, resized
from ..plan.smallest import Devices, Roomy, Smallest, catalogue
from ..tables.table import Column, Table
from ..timing.machine import Machine
from . import planned, runs
from .capacity import Place


class Asked(NamedTuple):
    """The question: a model, devices, a layout if one is given, a run."""

    name: str
    model: Any
    place: Place
    layout: Layout | None
    run: Any
    notes: tuple[str, ...] = ()

    def laid_out(self) -> tuple[Layout, Fit]:
        """The layout and what it holds; without a layout the one that leaves most room."""
        if self.layout is not None:
            return self.layout, fit(self.model, self.layout, self.run, self.place.available)
        devices = Devices(self.model, self.run)
        found = devices.roomiest(self.place.devices or 1, self.place.machine.domain, self.place.available)
        if found is None:
            raise InputError(f"--count {self.place.devices}: no such layout divides {self.name}: {devices.refused}")
        return found


class Answer(NamedTuple):
    """An object, tables, and whether the answer is yes."""

    data: dict[str, Any]
    tables: tuple[Table, ...]
    yes: bool


def memory(found: Fit) -> dict[str, Any]:
    """A fit as an object."""
    return {
        "fits": found.fits, "bytes": found.held.bytes, "available": found.available, "free": found.free,
        "rank": found.held.rank, "parts": dict(found.held.parts), "missing": found.missing(),
    }  # fmt: skip


def parts(found: Fit, notes: tuple[str, ...] = ()) -> Table:
    """Bytes by part, and of each those for which there is no room."""
    missing = found.missing()
    rows = [(name.replace("_", " "), size, missing.get(name)) for name, size in found.held.parts.items() if size]
    last = ("free", found.free, None) if found.fits else ("missing", -found.free, None)
    total = ("total", found.held.bytes, sum(missing.values()) or None), ("available", found.available, None), last
    title = "memory of one device: it fits" if found.fits else "memory of one device: it does not fit"
    return Table(title, (Column("part"), Column("bytes", "bytes"), Column("no room for", "bytes")), (*rows, *total), notes)


NOT_COUNTED = (
    "not counted: the driver's and libraries' own memory, and what an allocator cannot use; keep it free with --reserve"
)


def lines(asked: Asked, layout: Layout) -> tuple[str, ...]:
    """What the answer assumes."""
    return (
        asked.place.words, *planned.lines(planned.about(layout, asked.run)), *asked.notes,
        NOT_COUNTED,
    )


def about(asked: Asked, layout: Layout) -> dict[str, Any]:
    """What the answer assumes, as an object."""
    return {"model": asked.name, "machine": asked.place.facts, **planned.about(layout, asked.run), "notes": list(asked.notes)}


def question_fit(asked: Asked, what: Any) -> Answer:
    """Does it fit?"""
    layout, found = asked.laid_out()
    return Answer({**about(asked, layout), "memory": memory(found)}, (parts(found, lines(asked, layout)),), found.fits)


def question_largest(asked: Asked, what: Any) -> Answer:
    """How large may it be?"""
    layout, _ = asked.laid_out()
    found = largest(asked.model, layout, asked.run, asked.place.available, what)
    asked = asked._replace(run=resized(asked.run, what, max(found.at, found.unit), layout))
    if found.limit == "positions":
        note = f"the learned position table ends at {found.rows:,}: it is the limit, and memory is not"
        asked = asked._replace(notes=(note, *asked.notes))
    sizes = [(found.at, found.here), (found.at + found.unit, found.after)]
    rows = tuple((size, fit.held.bytes, fit.free, "yes" if fit.fits else "no") for size, fit in sizes if fit is not None)
    columns = Column(what, "size"), Column("bytes", "bytes"), Column("free", "bytes"), Column("fits")
    unit = f" of multiples of {found.unit}" if found.unit > 1 else ""
    title = f"largest {what}{unit}: {found.at:,}" if found.at else f"no {what} fits"
    if found.limit is None:
        title = f"every {what} fits up to {found.at:,}, the largest size there is"
    data: dict[str, Any] = {"what": what, "value": found.at, "unit": found.unit, "bounded": found.limit is not None}
    data |= {"limit": found.limit, "looked_at": found.looked}
    data |= {"at": found.here and memory(found.here), "next": found.after and memory(found.after)}
    return Answer({**about(asked, layout), "largest": data}, (Table(title, columns, rows, lines(asked, layout)),), found.at > 0)


def question_devices(asked: Asked, what: Any) -> Answer:
    """How few devices?"""
    found = Devices(asked.model, asked.run).smallest(asked.place.machine, asked.place.available)
    if found.found is None:
        note = f"no number of devices up to {found.tried:,} fits"
        table = Table(note, (Column("machine"), Column("devices tried", "size")), ((found.machine.name, found.tried),))
        return Answer({**about(asked, Layout()), "smallest": _smallest(found)}, (table,), False)
    notes = lines(asked, found.found.layout)
    table = parts(found.found.fit, notes)._replace(title=f"{found.devices:,} devices, the fewest; memory of one")
    return Answer({**about(asked, found.found.layout), "smallest": _smallest(found)}, (table,), True)


def _smallest(found: Smallest) -> dict[str, Any]:
    roomy: Roomy | None = found.found
    return {
        "machine": found.machine.name, "devices": found.devices, "tried": found.tried,
        "layout": roomy and runs.describe(roomy.layout), "memory": roomy and memory(roomy.fit),
    }  # fmt: skip


def machines(name: str, model: Any, run: Any, free: Callable[[Machine], int]) -> Answer:
    """Which machines of the list, and how few of each? *free* are the bytes that a device of one may hold."""
    found = catalogue(model, run, free)
    columns = (
        Column("machine"), Column("devices", "size"), Column("layout"), Column("bytes of one", "bytes"),
        Column("free", "bytes"),
    )  # fmt: skip
    rows = tuple(
        (one.machine.name, one.devices, _words(one.found.layout), one.found.fit.held.bytes, one.found.fit.free)
        if one.found else (one.machine.name, None, f"none up to {one.tried}", None, None)
        for one in found
    )  # fmt: skip
    facts = planned.about(Layout(), run)
    said = (
        "Of each the fewest devices, in the layout that leaves most room; those of the least memory in all first. Memory is all"
        " that is asked: not whether a machine has the types.",
        *planned.lines(facts)[1:], NOT_COUNTED,
    )  # fmt: skip
    del facts["layout"]
    data = {"model": name, **facts, "machines": [_smallest(one) for one in found]}
    return Answer(data, (Table("machines on which it fits", columns, rows, said),), any(one.found for one in found))


def _words(layout: Layout) -> str:
    facts = runs.describe(layout)
    return ", ".join(f"{name} {facts[name]}" for name in ("tp", "pp", "dp", "cp", "ep", "zero") if facts[name] > 1) or "one"


def question_formats(asked: Asked, what: Any) -> Answer:
    """Which format of the weights?"""
    layout, _ = asked.laid_out()
    found = quantised(asked.model, layout, asked.run, asked.place.available)
    best = next((one.name for one in found if one.fit and one.fit.fits), None)
    columns = (
        Column("format"), Column("bits a weight", "ratio"), Column("bytes", "bytes"), Column("free", "bytes"), Column("fits"),
    )  # fmt: skip
    rows = tuple(
        (one.name, one.format.bits_per_weight, one.fit and one.fit.held.bytes, one.fit and one.fit.free,
         ("yes" if one.fit.fits else "no") if one.fit else one.refused)
        for one in found
    )  # fmt: skip
    data = [
        {"format": one.name, "bits_per_weight": float(one.format.bits_per_weight), "refused": one.refused or None,
         "memory": one.fit and memory(one.fit)}
        for one in found
    ]  # fmt: skip
    title = f"the widest format that fits: {best}" if best else "no format fits"
    notes = ("Matrices in the format; what a checkpoint of it leaves wide stays so.", *lines(asked, layout))
    table = Table(title, columns, rows, notes)
    return Answer({**about(asked, layout), "best": best, "formats": data}, (table,), best is not None)


QUESTIONS: Mapping[str, Callable[[Asked, Any], Answer]] = {
    "fit": question_fit, "largest": question_largest, "devices": question_devices, "formats": question_formats,
}  # fmt: skip
