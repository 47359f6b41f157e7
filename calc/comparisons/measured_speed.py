"""Speed as public runs measured it, the bound that none beats, and the estimate, with factors fitted to some of the runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import correlation, median

from ..tables.table import Column, Table
from ..timing.efficiency import MEASURED, PROFILES, Profile
from ..timing.measured import Speed, Timed, timed
from .comparison import Asked, Comparison

COLUMNS = (
    Column("model"), Column("machine"), Column("devices", "size"), Column("run"), Column("measured", "size"), Column("unit"),
    Column("bound", "ratio"), Column("estimate", "ratio"), Column("error", "share"), Column("side"),
)  # fmt: skip
SOURCES = (
    Column("source"), Column("measures"), Column("rows", "size"), Column("of", "size"), Column("assumed, as not printed"),
    Column("convention of its FLOPs"),
)  # fmt: skip
KINDS = ("training", "first token", "generation", "decode")
ERRORS = (
    Column("profile"), Column("side"), Column("of"), Column("runs", "size"), Column("median |error|", "share"),
    Column("median error", "share"), Column("rank correlation", "ratio"),
)  # fmt: skip


def draw(asked: Asked) -> tuple[Table, ...]:
    """A table a source, then the sources, then how far the estimates are off."""
    every = timed()
    titles = dict.fromkeys(each.run.row["title"] for each in every)
    sources = [[each for each in every if each.run.row["title"] == title] for title in titles]
    return (
        *(Table(title, COLUMNS, tuple(map(_row, found))) for title, found in zip(titles, sources, strict=True)),
        Table("sources", SOURCES, tuple(map(_source, sources)), tuple(map(_where, sources))), _errors(every),
    )  # fmt: skip


def _source(found: Sequence[Timed]) -> tuple[object, ...]:
    row = found[0].run.row
    names = ("title", "measures", "eligible", "assumed", "convention")
    title, measures, eligible, *rest = (row.get(name) for name in names)
    return title, measures, len(found), eligible, *rest


def _where(found: Sequence[Timed]) -> str:
    row = found[0].run.row
    return f"{row['title']}: {row['source']}"


def _row(each: Timed) -> tuple[object, ...]:
    run, row = each.run, each.run.row
    printed = float(row["printed"])
    return (
        row["model"], run.setup.machine.name, run.devices, " ".join(_words(run)),
        int(printed) if printed.is_integer() else printed, row["unit"], run.shown(each.lower),
        run.shown(each.trial.seconds(MEASURED)), each.trial.error(MEASURED), run.side,
    )  # fmt: skip


def _words(run: Speed) -> Iterable[str]:
    """What ran, in the words of the row."""
    row, layout = run.row, run.setup.layout
    yield f"batch {row['batch']:,}"
    if run.kind == "training":
        yield f"of {row['microbatch']:,} on {layout.dp} × {row['seq']:,},"
    else:
        yield f"prompt {row['prompt']:,}" + (f" output {row['output']:,}," if "output" in row else ",")
    yield from (f"{name} {getattr(layout, name)}" for name in ("tp", "cp", "pp", "chunks", "ep") if getattr(layout, name) != 1)
    yield from (f"ZeRO {layout.zero}",) if layout.zero else ()
    yield row.get("weights") or row.get("products") or row.get("dtype", "bf16")
    yield from (f"recompute {row['recompute']}",) if "recompute" in row else ()


# -- how far off -------------------------------------------------------------------------------------------------------


def _errors(every: Sequence[Timed]) -> Table:
    rows = []
    for profile, side, kind in product(PROFILES.values(), ("fit", "test"), (*KINDS, "all")):
        chosen = [each for each in every if each.run.side == side and kind in (each.run.kind, "all")]
        if chosen:
            rows.append((profile.name, side, kind, len(chosen), *off(chosen, profile)))
    notes = (
        "error: estimated over measured time, less one, so that what is below nothing is estimated too fast; rank correlation:"
        " Spearman's, of tokens (or prompts) a second and device, of which the size of the models explains most",
        "the factors of the profile measured are fitted on the side fit and on no run of the side test; no model of a source is"
        " on both",
        *(f"{each.name}: {_factors(each)}" for each in PROFILES.values()),
    )
    return Table("how far the estimates are off", ERRORS, tuple(rows), notes)


def _factors(profile: Profile) -> str:
    return (
        f"{profile.product:.2f} of the best product on the machine, {profile.memory:.2f} of the bandwidth,"
        f" {profile.link:.2f} of the links, {profile.launch * 1e6:g} µs a kernel"
    )


def off(found: Sequence[Timed], profile: Profile) -> tuple[float, float, float | None]:
    """The medians of the absolute error and of the error; the rank correlation of three runs or more."""
    errors = [each.trial.error(profile) for each in found]
    rates = [(each.run.rate(each.run.measured), each.run.rate(each.trial.seconds(profile))) for each in found]
    measured, estimated = zip(*rates, strict=True)
    ranked = correlation(ranks(measured), ranks(estimated)) if len(found) > 2 else None
    return median(map(abs, errors)), median(errors), ranked


def ranks(values: Sequence[float]) -> list[float]:
    """Of each value its place in the order, equal ones the mean of theirs."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value) - 1) / 2 for value in values]


COMPARISON = Comparison(Asked(), draw)
