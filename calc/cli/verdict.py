"""Memory and verdict of ``blockcalc budget``: what its step holds on the devices of a layout, or of a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..memory.held import Serving, Training, heaviest
from ..model import Model
from ..parallel.layout import Layout
from ..plan.fit import Fit
from ..plan.smallest import Devices
from ..storage.precision import Precision, named
from ..tables.table import Table
from ..tensor import Step
from ..timing.machine import machine
from . import fits, options, planned, runs


def verdict(
    subject: options.Subject, step: Step, how: runs.Memory, layout: Layout | None, gpu: str | None, count: int | None
) -> tuple[dict[str, Any], Table]:
    """A training step with its optimizer, or weights, cache and a pass; without a layout in the one that leaves most room."""
    model = runs.as_run(subject)
    run = _run(runs.settled(model, step), how)
    if layout is None:
        assert gpu is not None
        return _roomiest(subject.name, model, run, gpu, count or 1)
    if gpu is None:
        data, (table, *_) = planned.memory(subject.name, layout, run, planned.held(model, layout, run))
        return {"memory": {**data["memory"], "layout": runs.describe(layout)}}, table
    if count not in (None, layout.devices):
        raise InputError(f"--count {count}: the layout has {layout.devices} devices")
    device = machine(gpu)
    found = Fit(heaviest(planned.held(model, layout, run)), device.memory_bytes)
    return _said(layout, run, found, gpu)


def _run(step: Step, how: runs.Memory) -> Training | Serving:
    if step.training:
        if how.quant is not None:
            raise InputError(f"--quant {how.quant}: weights in it do not train; --dtype is the type of all")
        optimizer = planned.optimizer(how.optimizer or "adamw-mixed")
        precision = Precision.of(named(how.dtype))
        return Training(step=step, kernels=how.kernels, recompute=how.recompute, precision=precision, optimizer=optimizer)
    if how.optimizer is not None:
        raise InputError(f"--optimizer {how.optimizer}: an option of --mode train")
    precision = replace(Precision.of(named(how.quant or how.dtype), named(how.dtype)), key_value=named(how.kv_dtype))
    served = step if step.cache else Step.prefill(step.b, step.t, source=step.source)
    return Serving(step=served, kernels=how.kernels, precision=precision, policy=how.policy)


def _roomiest(name: str, model: Model, run: Training | Serving, gpu: str, count: int) -> tuple[dict[str, Any], Table]:
    device, devices = machine(gpu), Devices(model, run)
    found = devices.roomiest(count, device.domain, device.memory_bytes)
    if found is None:
        raise InputError(f"--count {count}: no layout of so many devices divides {name}: {devices.refused}")
    return _said(found.layout, run, found.fit, gpu)


def _said(layout: Layout, run: Training | Serving, fit: Fit, gpu: str) -> tuple[dict[str, Any], Table]:
    name = machine(gpu).name
    said = {"fits": fit.fits, "machine": name, "devices": layout.devices, "free": fit.free, "missing": fit.missing()}
    table = fits.parts(fit, (f"{layout.devices:,} × {name}", *planned.lines(planned.about(layout, run))))
    return {"memory": {**fits.memory(fit), "layout": runs.describe(layout)}, "verdict": said}, table
