"""What the ledgers answer, as JSON objects and as tables. No arithmetic: only names for what a Budget returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..budget import Budget, Policy, widths
from ..errors import InputError
from ..tables.table import Column, Table
from ..tensor import Kernels, Step

MOST_PRINTED_LAYERS = 12


def describe(step: Step) -> dict[str, Any]:
    """The step in words, as it stands beside each number."""
    mode = "train" if step.training else "forward"
    if step.cache:
        mode = "decode" if step.source_new == 0 and step.t == 1 else "prefill"
    found = {"mode": mode, "batch": step.b, "seq": step.t, "context": step.s}
    if step.source != step.s:
        found["encoder_seq"] = step.source
    return found | ({"head": "last"} if step.head == "last" else {})


def in_words(facts: Mapping[str, Any]) -> str:
    """``batch 1, seq 2048``."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())


def kernels(chosen: Kernels) -> dict[str, str]:
    """Which kernel of each kind."""
    return {name: getattr(chosen, name) for name in ("attention", "norm", "gated", "loss", "dropout")}


def in_kernels(chosen: Kernels) -> str:
    """``attention flash; loss fused``: that of attention, and those that are not the plain ones."""
    plain = kernels(Kernels())
    return "; ".join(f"{name} {one}" for name, one in kernels(chosen).items() if name == "attention" or one != plain[name])


def params(budget: Budget) -> tuple[dict[str, Any], list[Table]]:
    """The parameter counts and their components."""
    counts = budget.parameters()._asdict()
    components = [component._asdict() for component in budget.components()]
    summary = Table("parameters", (Column("parameters"), Column("count", "count")), tuple(
        (name.replace("_", " "), count) for name, count in counts.items()
    ))  # fmt: skip
    listing = Table(
        "components", (Column("component"), Column("params", "count"), Column("active", "count")),
        tuple(tuple(component.values()) for component in components),
    )  # fmt: skip
    return {"params": counts, "components": components}, [summary, listing]


def flops(budget: Budget, convention: str) -> tuple[dict[str, Any], list[Table]]:
    """FLOPs under a convention, which stands beside them."""
    from ..convention import CONVENTIONS
    from ..convention import flops as count

    found = count(budget, convention)
    named = CONVENTIONS[convention]
    counts = {"forward": found.forward, "backward": found.backward, "recompute": found.recompute, "total": found.total}
    rows = [(name, value) for name, value in counts.items() if value is not None]
    table = Table(
        "FLOPs", (Column("pass"), Column("FLOPs", "flops")), (*rows, ("multiply-adds in the total", found.macs)),
        (f"{in_words(describe(budget.step))}; {in_kernels(budget.kernels)}; recompute {budget.recompute}",
         f"convention {named.name}: {named.formula}; {named.counts}"),
    )  # fmt: skip
    about = {"name": named.name, "formula": named.formula, "counts": named.counts, "source": named.source}
    return {"flops": counts, "macs": found.macs, "convention": about}, [table]


def kv(budget: Budget, dtype: str, policy: Policy) -> tuple[dict[str, Any], list[Table]]:
    """The cache at the step's context."""
    kinds = budget.cache(widths(dtype), policy)
    total, more = sum(kinds.values()), budget.cache_per_token(widths(dtype), policy)
    rows = [(f"{kind} layers" if kind in ("full", "window") else kind, size) for kind, size in kinds.items() if size]
    step = budget.step
    table = Table(
        "KV cache", (Column("cache"), Column("bytes", "bytes")),
        (*rows, ("total", total), ("one more token of one sequence", more)),
        (f"batch {step.b}, context {step.s}, {dtype}, policy {policy}",),
    )  # fmt: skip
    return {"kv_cache": {"bytes": total, "bytes_per_token": more, "by_kind": kinds}}, [table]


def activations(budget: Budget, dtype: str) -> tuple[dict[str, Any], list[Table]]:
    """What autograd keeps, by layer and by the operation that keeps it first."""
    if dtype in ("fp8", "int8"):
        raise InputError(f"dtype {dtype!r}: activations are kept in fp32, bf16 or fp16")
    found = budget.activations(widths(dtype))
    components = [{"path": path, "bytes": size} for path, size in found.paths.items() if size]
    layers = [(f"{layer.layer}, each", layer.further) for layer in found.layers]
    step = budget.step
    table = Table(
        "activations", (Column("kept for backward"), Column("bytes", "bytes")),
        (*layers, ("all layers", sum(found.per_layer)), ("outside the layers", found.rest), ("loss", found.loss),
         ("buffers: rotary tables, masks", found.buffers), ("total", found.bytes)),
        (f"{in_words(describe(step))}; {dtype}; {in_kernels(budget.kernels)}; recompute {budget.recompute}",),
    )  # fmt: skip
    listing = Table(
        "kept by", (Column("operation"), Column("bytes", "bytes")), tuple(tuple(part.values()) for part in components)
    )
    sizes = {
        "bytes": found.bytes, "per_layer": list(found.per_layer), "buffers": found.buffers, "loss": found.loss,
        "rest": found.rest,
    }  # fmt: skip
    return {"activations": sizes, "components": components}, [table, listing]
