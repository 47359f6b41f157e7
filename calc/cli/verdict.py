"""Memory and verdict of ``blockcalc budget``: what its step holds on a machine's devices."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..plan.machine import machine
from ..plan.memory import Serving, Training
from ..plan.precision import Precision, named
from ..plan.smallest import Devices
from ..tables.table import Table
from ..tensor import Step
from . import fits, options, planned, runs


def verdict(
    subject: options.Subject, step: Step, kernels: Any, recompute: Any, dtypes: tuple[str, str], policy: Any, gpu: str,
    count: int,
) -> tuple[dict[str, Any], Table]:  # fmt: skip
    """A training step with its optimizer, or weights, cache and a pass, in the layout that leaves most room."""
    if subject.width is not None:
        raise InputError(f"--gpu {gpu}: {subject.name} is a block; memory is that of a whole model")
    dtype, kv_dtype = map(named, dtypes)
    device, precision = machine(gpu), Precision.of(dtype)
    step = runs.settled(subject.component, step)
    run: Training | Serving
    if step.training:
        run = Training(step=step, kernels=kernels, recompute=recompute, precision=precision)
    else:
        served = step if step.cache else Step.prefill(step.b, step.t, source=step.source)
        run = Serving(step=served, kernels=kernels, precision=_cached(precision, kv_dtype), policy=policy)
    devices = Devices(subject.component, run)
    found = devices.roomiest(count, device.domain, device.memory_bytes)
    if found is None:
        raise InputError(f"--count {count}: no layout of so many devices divides {subject.name}: {devices.refused}")
    facts = planned.about(found.layout, run)
    said = {"fits": found.fit.fits, "machine": device.name, "devices": count, "free": found.fit.free}
    said |= {"missing": found.fit.missing()}
    table = fits.parts(found.fit, (f"{count:,} × {device.name}", *planned.lines(facts)))
    return {"memory": {**fits.memory(found.fit), "layout": runs.describe(found.layout)}, "verdict": said}, table


def _cached(precision: Precision, cache: Any) -> Precision:
    from dataclasses import replace

    return replace(precision, key_value=cache)
