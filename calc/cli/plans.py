"""What ``blockcalc plan`` answers, as JSON objects and as tables."""

from __future__ import annotations

from typing import Any

from ..parallel.layout import Layout
from ..plan.deploy import Deployed, Lost, Served, Service
from ..plan.differences import longer_share, longer_wait, slower
from ..plan.search import Found, Timed
from ..plan.task import Task
from ..tables.table import Column, Table
from . import fits, panels, runs
from .capacity import NONE_FITS, Place

_SHOWN = ("tp", "sp", "pp", "chunks", "dp", "cp", "ep", "etp", "zero")


def words(layout: Layout) -> str:
    """A layout in one line: what is split."""
    facts = runs.describe(layout)
    if layout.expert_tp == layout.tp:
        del facts["etp"]
    split = {name: facts[name] for name in _SHOWN if facts.get(name, 1) is True or facts.get(name, 1) > 1}
    return ", ".join(name if size is True else f"{name} {size}" for name, size in split.items()) or "one device"


def _why(missing: dict[str, int]) -> str:
    from ..tables.table import rounded

    parts = (f"{name.replace('_', ' ')} {rounded(size, 'bytes') or size}" for name, size in missing.items())
    return f"no room for {', '.join(parts)}"


def _timed(one: Timed) -> dict[str, Any]:
    found = one.candidate
    return {
        "layout": runs.describe(one.layout), "recompute": found.recompute, "microbatch": found.microbatch,
        "microbatches": found.microbatches, "seconds": one.step.seconds, "lower_seconds": one.step.lower,
        "tokens_per_second": one.step.per_second, "bottleneck": one.step.microbatch.bottleneck, "memory": fits.memory(one.fit),
    }  # fmt: skip


def trained(name: str, place: Place, task: Task, found: Found, notes: tuple[str, ...]) -> fits.Answer:
    """The layouts of a training step."""
    first = found.best[0] if found.best else None
    facts, lines = panels.about(name, place, task.setup, first.run if first else task.run, notes)
    losers = [
        (one, slower(found.best[0].step, one.step, found.best[0].run.microbatches, one.run.microbatches))
        for one in found.best[1:]
    ]
    looked = {name: getattr(found, name) for name in ("candidates", "too_large", "timed", "sized")}
    data = {
        **facts, "batch": task.batch, "count": task.devices, "best": first and _timed(first),
        "next": [{**_timed(one), "slower_by": dict(terms)} for one, terms in losers],
        "do_not_fit": [_timed(one) for one in found.lost], "looked_at": looked, "refused": dict(found.refused),
    }  # fmt: skip
    del data["layout"], data["step"], data["recompute"], data["microbatches"]
    rows = [(one, _longer(terms, "a step")) for one, terms in losers]
    rows = [(first, "the best"), *rows] if first else rows
    rows += [(one, _why(one.fit.missing())) for one in found.lost]
    columns = (
        Column("layout"), Column("recompute"), Column("microbatch", "size"), Column("step, s", "ratio"),
        Column("bound, s", "ratio"), Column("tokens/s", "ratio"), Column("free", "bytes"), Column("why"),
    )  # fmt: skip
    table = Table("the fastest layouts" if first else "no layout fits", columns, tuple(
        (words(one.layout), one.candidate.recompute, one.candidate.microbatch, one.step.seconds, one.step.lower,
         one.step.per_second, one.fit.free, why)
        for one, why in rows
    ), (
        *([] if first else [NONE_FITS.format(f"{task.devices:,}")]),
        f"{task.devices:,} devices, {task.batch:,} sequences a step; {found.candidates:,} layouts, {found.too_large:,} of them"
        f" too large by weights and states alone, {found.timed:,} timed exactly, {found.sized:,} counted byte by byte",
        *(f"{count:,} × {why}" for why, count in found.refused.most_common(2)), *lines[:1], *lines[3:],
    ))  # fmt: skip
    return fits.Answer(data, (table,), first is not None)


def _served(one: Served) -> dict[str, Any]:
    return {
        "layout": runs.describe(one.layout), "batch": one.batch, "requests": one.batch * int(one.layout.dp),
        "time_to_first_token": one.first.seconds, "time_per_output_token": one.each.seconds,
        "lower_time_per_output_token": one.each.lower, "tokens_per_second": one.each.per_second,
        "bottleneck": one.each.time.bottleneck, "memory": fits.memory(one.fit),
    }  # fmt: skip


def served(name: str, place: Place, service: Service, found: Deployed, losers: int, notes: tuple[str, ...]) -> fits.Answer:
    """The layouts of a service."""
    facts, lines = panels.about(name, place, service.setup, service.run, notes)
    lost = found.lost[:losers]
    goals = {"goal": service.goal, "within": service.within, "first": service.first}
    data = {
        **facts, "prompt": service.prompt, "context": service.context, "count": service.devices, **goals,
        "best": _served(found.best[0]) if found.best else None, "next": [_served(one) for one in found.best[1:]],
        "lost": [{"why": one.why, **_served(one.served)} for one in lost],
        "looked_at": {"layouts": found.layouts, "timed": found.timed}, "refused": dict(found.refused),
    }  # fmt: skip
    del data["layout"], data["step"]
    rows = [(one, _than(found.best[0], one, service) if index else "the best") for index, one in enumerate(found.best)]
    rows += [(one.served, _lost(one, found, service)) for one in lost]
    columns = (
        Column("layout"), Column("batch", "size"), Column("tokens/s", "ratio"), Column("token, s", "ratio"),
        Column("bound, s", "ratio"), Column("first, s", "ratio"), Column("free", "bytes"), Column("why"),
    )  # fmt: skip
    title = "the layouts that serve best" if found.best else "no layout serves so"
    table = Table(title, columns, tuple(
        (words(one.layout), one.batch, one.each.per_second, one.each.seconds, one.each.lower, one.first.seconds, one.fit.free,
         why)
        for one, why in rows
    ), (
        f"{service.devices:,} devices; prompts of {service.prompt:,} tokens, every request at {service.context:,}; batch is a"
        f" data rank's; {found.layouts:,} layouts, {found.timed:,} batches timed",
        *(f"{count:,} × {why}" for why, count in found.refused.most_common(2)), *lines[:1], *lines[3:],
    ))  # fmt: skip
    return fits.Answer(data, (table,), bool(found.best))


def _than(best: Served, one: Served, service: Service) -> str:
    """By what an output token takes longer, or takes more of the devices' time."""
    terms = (longer_wait if service.goal == "latency" else longer_share)(best.each, one.each)
    return _longer(terms, "a token")


def _longer(terms: dict[str, float], of: str) -> str:
    """The worst term."""
    return next((f"{name} +{seconds:.3g} s {of}" for name, seconds in terms.items()), "as fast")


def _lost(one: Lost, found: Deployed, service: Service) -> str:
    if one.why == "memory":
        return _why(one.served.fit.missing())
    return "too slow" if one.why == "latency" else _than(found.best[0], one.served, service)
