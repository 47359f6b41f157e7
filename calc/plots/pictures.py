"""The pictures that need budgets and nothing else. Each takes budgets by the name of their model and returns a Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ..budget import Budget, Policy, Widths, widths
from ..errors import InputError
from ..tables.table import Column
from . import parts
from .figure import Axis, Figure

Rows: TypeAlias = tuple[tuple[Any, ...], ...]
Quantity: TypeAlias = Literal["params", "kv", "activations"]

PICTURES = {
    "params": "Parameters by component, a bar for each model.",
    "kv": "KV cache against the context.",
    "flops": "Shares of the FLOPs against the sequence length.",
    "activations": "Activation memory by attention kernel and recompute mode.",
    "roofline": "FLOPs a byte of each operation, under what a machine attains.",
    "layers": "Parameters, KV cache or activations of each layer.",
}


def params(budgets: Mapping[str, Budget]) -> Figure:
    """Parameters by component, one bar a model; their sum is the total."""
    rows: Rows = tuple(
        (name, part, stored, active)
        for name, budget in budgets.items() for part, (stored, active) in parts.parameters(budget).items()
    )  # fmt: skip
    return Figure(
        name="params", title="Parameters by component", kind="bars", series="component",
        x=Axis(column="model", label=""), y=Axis(column="params", label="parameters", unit="parameters"),
        columns=(Column("model"), Column("component"), Column("params", "count"), Column("active", "count")),
        rows=_filled(rows, 1, 2),
        notes=("All that are stored, a tied table once; routers and shared experts are feed-forward.",),
    )  # fmt: skip


def kv(
    budgets: Mapping[str, Sequence[Budget]], dtype: str = "bf16", policy: Policy = "minimal",
    scale: Literal["log", "linear"] = "log",
) -> Figure:  # fmt: skip
    """Bytes of the cache at the context of each budget. Raises InputError for a model that keeps none."""
    rows: Rows = tuple(
        (name, budget.step.s, sum(budget.cache(widths(dtype), policy).values()))
        for name, many in budgets.items() for budget in many
    )  # fmt: skip
    for name, _, size in rows:
        if not size:
            raise InputError(f"{name}: it keeps no cache to draw")
    return Figure(
        name="kv", title="KV cache against context", kind="lines", series="model",
        x=Axis(column="context", label="context", unit="tokens", scale=scale),
        y=Axis(column="bytes", label="KV cache", unit="bytes", scale=scale),
        columns=(Column("model"), Column("context", "count"), Column("bytes", "bytes")), rows=rows,
        notes=(f"Batch {_one(budgets).step.b}; {dtype}; policy {policy}: {POLICIES[policy]}.",),
    )  # fmt: skip


POLICIES: Mapping[Policy, str] = {
    "minimal": "a layer with a window of w holds at most w tokens",
    "transformers": "a layer with a window of w holds at most w − 1 tokens",
    "static": "allocated for the context, a layer with a window of w for at most w tokens",
    "unified": "every layer holds every token",
}


def flops(budgets: Mapping[str, Sequence[Budget]]) -> Figure:
    """Shares of the FLOPs at the sequence length, or when decoding the context, of each budget; a panel a model."""
    one = _one(budgets)
    length = "context" if one.step.cache else "sequence"
    rows: Rows = tuple(
        (name, budget.step.s, part, count)
        for name, many in budgets.items() for budget in many for part, count in parts.work(budget).items()
    )  # fmt: skip
    of = "a training step" if one.step.training else f"{'a decode step' if one.step.cache else 'a forward pass'}"
    return Figure(
        name="flops", title=f"Where the FLOPs of {of} go", kind="areas", series="part", panel="model",
        x=Axis(column=length, label=length, unit="tokens", scale="log"),
        y=Axis(column="flops", label="", unit="share of FLOPs"),
        columns=(Column("model"), Column(length, "count"), Column("part"), Column("flops", "flops")), rows=_filled(rows, 2, 3),
        notes=(f"Batch {one.step.b}; convention torch: two FLOPs a multiply-add, full attention squares, the head on every"
               " position. Attention scores are both products, of queries with keys and of scores with values; routers are"
               " feed-forward.",),
    )  # fmt: skip


def _kept_widths(dtype: str) -> Widths:
    if dtype in ("fp8", "int8"):
        raise InputError(f"dtype {dtype!r}: activations are kept in fp32, bf16 or fp16")
    return widths(dtype)


def activations(budgets: Mapping[str, Sequence[Budget]], dtype: str = "bf16", notes: Sequence[str] = ()) -> Figure:
    """What autograd keeps, for each budget's attention kernel and recompute mode; a panel a model.

    *notes* say which budgets there are not, such as those of a kernel that is not defined for a model.
    """
    rows: list[tuple[Any, ...]] = []
    for name, many in budgets.items():
        for budget in many:
            found, mode = budget.activations(_kept_widths(dtype)), f"{budget.kernels.attention}, {budget.recompute}"
            inside = {"layers": sum(found.per_layer), "outside the layers": found.rest}
            rows += [(name, mode, part, size) for part, size in
                     (*inside.items(), ("loss", found.loss), ("buffers", found.buffers))]  # fmt: skip
    step = _one(budgets).step
    return Figure(
        name="activations", title="Activation memory by attention kernel and recompute mode", kind="bars", series="part",
        panel="model", x=Axis(column="mode", label="attention, recompute"),
        y=Axis(column="bytes", label="kept for backward", unit="bytes"),
        columns=(Column("model"), Column("mode"), Column("part"), Column("bytes", "bytes")), rows=_filled(tuple(rows), 2, 3),
        notes=(f"Batch {step.b}, sequence {step.t:,}; {dtype}; RMSNorm out of elementary operations. Recompute selective"
               " runs the core attention again, full each layer. Buffers: rotary tables and masks.", *notes),
    )  # fmt: skip


def layers(budgets: Mapping[str, Budget], of: Quantity, dtype: str = "bf16", policy: Policy = "minimal") -> Figure:
    """One column a layer, encoder first, coloured by the distinct layer that it is; a panel a model.

    Activations need budgets of training steps, a cache needs those at a context.
    """
    rows: list[tuple[Any, ...]] = []
    for name, budget in budgets.items():
        kinds = [kind for kind, count in budget.order() for _ in range(count)]
        if not kinds:
            raise InputError(f"{name}: a block by itself has no layers to draw")
        if of == "activations":
            sizes = list(budget.activations(_kept_widths(dtype)).per_layer)
        else:
            each = {kind: _of_layer(budget, kind, kinds.count(kind), of, dtype, policy) for kind in dict.fromkeys(kinds)}
            sizes = [each[kind] for kind in kinds]
        rows += [(name, number, kind, size) for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True))]
    step, (label, column) = _one({name: [budget] for name, budget in budgets.items()}).step, QUANTITIES[of]
    about = {"kv": f"{dtype}; policy {policy}: {POLICIES[policy]}", "activations": f"{dtype}; what layers share is the first's"}
    return Figure(
        name="layers", title=f"{label[0].upper()}{label[1:]} of each layer", kind="columns", series="kind", panel="model",
        x=Axis(column="layer", label="layer"),
        y=Axis(column=column.name, label=label, unit="parameters" if of == "params" else "bytes"),
        columns=(Column("model"), Column("layer", "count"), Column("kind"), column), rows=tuple(rows),
        notes=(f"Batch {step.b}, {'context' if of == 'kv' else 'sequence'} {step.s:,}; {about[of]}.",) if of in about else (),
    )  # fmt: skip


QUANTITIES: Mapping[Quantity, tuple[str, Column]] = {
    "params": ("parameters", Column("params", "count")), "kv": ("KV cache", Column("bytes", "bytes")),
    "activations": ("activations", Column("bytes", "bytes")),
}  # fmt: skip


def _of_layer(budget: Budget, kind: str, count: int, of: Quantity, dtype: str, policy: Policy) -> Any:
    """The parameters or the cache of one of *count* equal layers: a part of what the lines of all of them sum up to."""
    lines = [line for line in budget.lines if line.layer == kind]
    if of == "params" and any(weight.copies % line.copies for line in lines for weight in line.weights):
        raise InputError(f"layers: the {count} layers {kind} share their weights, so that none has a number of its own")
    part = Budget(lines, (), (), budget.step, budget.kernels, budget.recompute)
    whole = part.parameters().total if of == "params" else sum(part.cache(widths(dtype), policy).values())
    assert whole % count == 0, (kind, whole, count)
    return whole // count


def _filled(rows: Rows, label: int, value: int) -> Rows:
    """Without the parts that are zero in every row."""
    used = {row[label] for row in rows if row[value]}
    return tuple(row for row in rows if row[label] in used)


def _one(budgets: Mapping[str, Sequence[Budget]]) -> Budget:
    """Any of them, for what they have in common: the batch and the mode."""
    return next(iter(budgets.values()))[0]
