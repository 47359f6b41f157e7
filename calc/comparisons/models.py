"""Models against each other in their main totals."""

from __future__ import annotations

from ..tables.table import Table
from ..tensor import Step
from .comparison import Asked, Comparison, Quantity, beyond, loaded, tabulate
from .metrics import METRICS, USUAL, Metric, Setting


def _quantity(metric: Metric, at: Setting) -> Quantity:
    return Quantity(metric.heading, metric.unit, lambda model: metric.of(model, at))


def draw(asked: Asked) -> tuple[Table, ...]:
    """The totals of a training step, and of a cache."""
    b, t, s, dtype, models = asked.batch, asked.seq or 0, asked.context, asked.dtype or "", loaded(asked.models)
    at = Setting(Step.train(b, t), s, dtype=dtype, kv_dtype=dtype)
    notes = (
        f"a training step, batch {b}, seq {t:,}: FLOPs forward and backward under torch's convention, activations kept with"
        f" attention math; a cache of {s:,} tokens; {dtype}",
        *beyond(models, max(t, s)),
    )
    return (tabulate("models", "model", models, (_quantity(METRICS[name], at) for name in USUAL), notes),)


COMPARISON = Comparison(
    Asked(
        models=(
            "gpt2-xl", "gpt3-175b", "llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mistral-7b", "qwen3-8b",
            "gemma-2-9b", "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3",
        ),
        contexts=(8192,), batches=(1,), seq=2048, dtype="bf16",
    ),
    draw,
)  # fmt: skip
