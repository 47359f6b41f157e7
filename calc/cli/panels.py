"""What ``blockcalc train`` and ``serve`` answer, as JSON objects and as tables."""

from __future__ import annotations

from typing import Any

from ..convention import CONVENTIONS
from ..plan.panel import Service, Trained, phases
from ..tables.table import Column, Table
from ..timing.chinchilla import Optimum
from ..timing.roofline import Setup
from ..timing.run import Run
from ..timing.serving import Tokens
from . import fits, planned
from .capacity import Place, assumed


def about(
    name: str, place: Place, setup: Setup, run: Any, notes: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an answer assumes, as an object and as lines."""
    facts, rates = planned.about(setup.layout, run), setup.attained
    factors = {key: getattr(rates, key) for key in ("compute", "memory", "link", "launch", "latency", "profile")}
    lines = place.words, *planned.lines(facts), *notes, *assumed(setup), fits.NOT_COUNTED
    found = {"model": name, "machine": place.facts, **facts, "efficiency": factors | {"hidden": sorted(rates.hidden)}}
    return found | {"fused": setup.counting.fused, "notes": [*notes, *assumed(setup)]}, lines


def costs(found: Run) -> dict[str, Any]:
    """A run as an object."""
    return {
        "days": found.days, "device_hours": found.device_hours, "kilowatt_hours": found.kilowatt_hours, "cost": found.cost,
    }  # fmt: skip


def _optimum(found: Optimum) -> dict[str, Any]:
    facts = {"n": found.n, "tokens": found.d, "tokens_per_parameter": found.tokens_per_parameter, "loss": found.loss}
    return facts | {"source": found.source}


def _shares(waits: dict[str, float], title: str, notes: tuple[str, ...] = ()) -> Table:
    """Seconds, and of them all."""
    total = sum(waits.values())
    rows = tuple((name, seconds, seconds / total if total else 0.0) for name, seconds in waits.items() if seconds)
    return Table(title, (Column("what"), Column("seconds", "ratio"), Column("share", "share")), rows, notes)


def train(
    name: str, place: Place, setup: Setup, run: Any, found: Trained, notes: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[Table, ...]]:
    """A training run."""
    facts, lines = about(name, place, setup, run, notes)
    step, use, named = found.step, found.use, CONVENTIONS[found.use.convention]
    waits = {str(key): run.microbatches * seconds for key, seconds in step.microbatch.waits().items()}
    times = phases(step, run.microbatches)
    rates = {
        "tokens_per_second": step.per_second, "tokens_per_second_per_device": step.per_device, "mfu": use.mfu, "hfu": use.hfu,
        "flops_per_step": use.flops, "peak_flops_per_second": use.peak,
    }  # fmt: skip
    data = {
        **facts, "memory": fits.memory(found.fit),
        "time": {"seconds": step.seconds, "lower_seconds": step.lower, "tokens": step.tokens, "devices": step.devices,
                 "phases": times, "waits": waits, "bottleneck": step.microbatch.bottleneck},
        **rates, "convention": {"name": named.name, "formula": named.formula, "counts": named.counts, "source": named.source},
        "run": {"steps": found.steps, "estimate": costs(found.run), "lower": costs(found.fastest)},
        "compute": {"six_nd": found.compute.six_nd, "exact": found.compute.exact},
        "optimal": [_optimum(one) for one in found.optima],
    }  # fmt: skip
    speed = Table("speed", (Column("what"), Column("estimate", "ratio"), Column("bound", "ratio")), (
        ("seconds a step", step.seconds, step.lower), ("tokens a second", step.per_second, step.tokens / step.lower),
        ("tokens a second and device", step.per_device, step.tokens / step.lower / step.devices),
        ("MFU, %", 100 * use.mfu, None), ("HFU, recomputation in, %", 100 * use.hfu, None),
        ("days", found.run.days, found.fastest.days), ("device hours", found.run.device_hours, found.fastest.device_hours),
        *_energy(found.run, found.fastest),
    ), (
        f"{found.steps:,} steps of {step.tokens:,} tokens on {step.devices:,} devices; waits longest for"
        f" {step.microbatch.bottleneck}",
        f"utilization of {use.peak:,} FLOP/s a device; convention {named.name}: {named.formula}; {named.counts}", *lines,
    ))  # fmt: skip
    scaling = Table("as many FLOPs, spent compute-optimally", (
        Column("law"), Column("parameters", "count"), Column("tokens", "count"), Column("tokens a parameter", "ratio"),
    ), tuple((one.source, round(one.n), round(one.d), one.tokens_per_parameter) for one in found.optima), (
        f"this run: 6·N·D = {found.compute.six_nd:,} with N active parameters; {found.compute.exact:,} as {named.name} counts",
    ))  # fmt: skip
    by_phase, by_wait = _shares(times, "time of a step by phase"), _shares(waits, "time of the lines by what they wait for")
    return data, (fits.parts(found.fit), by_phase, by_wait, scaling, speed)


def _energy(run: Run, fastest: Run) -> tuple[tuple[str, float | None, float | None], ...]:
    energy = "kilowatt hours, devices at their limit", run.kilowatt_hours, fastest.kilowatt_hours
    rows = energy, ("cost", run.cost, fastest.cost)
    return tuple(row for row in rows if row[1] is not None)


def _tokens(found: Tokens) -> dict[str, Any]:
    return {
        "seconds": found.seconds, "lower_seconds": found.lower, "tokens_per_second": found.per_second,
        "bottleneck": found.time.bottleneck, "waits": dict(found.time.waits()),
    }  # fmt: skip


def serve(
    name: str, place: Place, setup: Setup, run: Any, found: Service, lengths: tuple[int, int], notes: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[Table, ...]]:
    """A service."""
    facts, lines = about(name, place, setup, run, notes)
    prompt, output = lengths
    experts = [one._asdict() for one in found.experts]
    data = {
        **facts, "prompt": prompt, "output": output, "memory": fits.memory(found.fit),
        "time_to_first_token": _tokens(found.first),
        "time_per_output_token": {"first": _tokens(found.early), "last": _tokens(found.last)}, "request_seconds": found.seconds,
        "concurrency": found.concurrency, "experts": experts, "million_output_tokens": costs(found.run),
    }  # fmt: skip
    rows = [
        ("time to first token, one prompt alone", found.first.seconds, found.first.lower, found.first.time.bottleneck),
        ("time per output token, the first", found.early.seconds, found.early.lower, found.early.time.bottleneck),
        ("time per output token, the last", found.last.seconds, found.last.lower, found.last.time.bottleneck),
        ("tokens a second, at the first", found.early.per_second, None, None),
        ("tokens a second, at the last", found.last.per_second, None, None),
        ("seconds of a request", found.seconds, None, None),
        ("device hours of a million output tokens", found.run.device_hours, None, None),
        *((label, value, None, None) for label, value, _ in _energy(found.run, found.run)),
    ]  # fmt: skip
    more = [f"requests of {prompt + output:,} tokens that decode at once, all data ranks: {found.concurrency:,} fit"]
    more += [
        f"a step of a data rank reaches {one.touched:.2f} of {one.e} experts, {one.a} a token, routed evenly"
        for one in found.experts
    ]
    columns = Column("what"), Column("estimate, s", "ratio"), Column("bound, s", "ratio"), Column("waits for")
    return data, (fits.parts(found.fit), Table("speed", columns, tuple(rows), (*more, *lines)))
