"""What models and blocks are compared in, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from ..budget import Budget, Policy, widths
from ..convention import flops, named
from ..dims import Dim
from ..errors import InputError
from ..recorder import Recompute
from ..tables.table import Column, Table, Unit, plain
from ..tensor import Kernels, Step
from .comparison import Costed


class Setting(NamedTuple):
    """The step and all that a number depends on besides."""

    step: Step
    context: int  # tokens in the cache
    kernels: Kernels = Kernels()
    recompute: Recompute = "none"
    convention: str = "torch"
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    policy: Policy = "minimal"

    def check(self) -> None:
        """Raises InputError for a convention or a type that is none, whether a number depends on it or not."""
        named(self.convention)
        for dtype in (self.dtype, self.kv_dtype):
            widths(dtype)

    def run(self, one: Costed) -> Budget:
        """The budget of the step itself."""
        return one.budget(self.step, self.kernels, self.recompute)

    def filled(self, one: Costed) -> Budget:
        """The budget with a cache of the context."""
        source = self.step.source if self.context == self.step.s else self.context
        return one.budget(Step.prefill(self.step.b, self.context, source=source))

    def trained(self, one: Costed) -> Budget:
        """The budget of a training step of the same size."""
        return one.budget(Step.train(self.step.b, self.step.t, self.step.source), self.kernels, self.recompute)


class Metric(NamedTuple):
    """A number to compare: its name, its heading, its unit, and how it is counted."""

    name: str
    heading: str
    unit: Unit
    of: Callable[[Costed, Setting], Dim]


def _kept(one: Costed, at: Setting) -> Dim:
    if at.dtype in ("fp8", "int8"):
        raise InputError(f"dtype {at.dtype!r}: activations are kept in fp32, bf16 or fp16")
    return at.trained(one).activations(widths(at.dtype)).bytes


METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in (
    Metric("params", "parameters", "count", lambda one, at: at.run(one).parameters().total),
    Metric("active", "active", "count", lambda one, at: at.run(one).parameters().active),
    Metric(
        "active_without_input", "active without input", "count", lambda one, at: at.run(one).parameters().active_without_input
    ),
    Metric("embedding", "embedding", "count", lambda one, at: at.run(one).parameters().embedding),
    Metric("head", "head", "count", lambda one, at: at.run(one).parameters().head),
    Metric("non_embedding", "non-embedding", "count", lambda one, at: at.run(one).parameters().non_embedding),
    Metric("weights", "weights", "bytes", lambda one, at: at.run(one).parameters().total * widths(at.dtype)["matrix"]),
    Metric("flops", "FLOPs", "flops", lambda one, at: flops(at.run(one), at.convention).total),
    Metric("macs", "multiply-adds", "count", lambda one, at: flops(at.run(one), at.convention).macs),
    Metric("kv", "KV cache", "bytes", lambda one, at: sum(at.filled(one).cache(widths(at.kv_dtype), at.policy).values())),
    Metric(
        "kv_per_token", "one more token", "bytes",
        lambda one, at: at.filled(one).cache_per_token(widths(at.kv_dtype), at.policy),
    ),
    Metric("activations", "activations", "bytes", _kept),
)})  # fmt: skip

USUAL = ("params", "active", "flops", "kv", "kv_per_token", "activations")
"""The metrics that are compared unless others are asked for."""


def chosen(names: Sequence[str]) -> list[Metric]:
    """The metrics of these names, or the usual ones. Raises InputError for an unknown name."""
    for name in names:
        if name not in METRICS:
            from difflib import get_close_matches

            near = get_close_matches(name, METRICS, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(METRICS)}"
            raise InputError(f"--metric {name}: no such metric; {hint}")
    return [METRICS[name] for name in dict.fromkeys(names or USUAL)]


def compared(
    names: Sequence[str], metrics: Sequence[Metric], counts: Sequence[Mapping[str, Dim]], relative: bool, notes: tuple[str, ...]
) -> tuple[Table, list[dict[str, Any]]]:
    """The counts as a table, and as shares of the first one's; *relative*: the table has the shares too.

    A share is None where the first has nothing.
    """
    first = counts[0]
    shares = [{name: Fraction(own[name], first[name]) if first[name] else None for name in own} for own in counts]
    columns = [Column("model")]
    rows: list[list[Any]] = [[name] for name in names]
    for metric in metrics:
        columns += [Column(metric.heading, metric.unit)] + ([Column(f"{metric.heading}, times", "ratio")] if relative else [])
        for row, own, share in zip(rows, counts, shares, strict=True):
            row += [own[metric.name], *([share[metric.name]] if relative else [])]
    table = Table("", tuple(columns), tuple(map(tuple, rows)), notes, compared=True)
    return table, [{name: plain(share) for name, share in one.items()} for one in shares]
