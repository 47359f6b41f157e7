"""The KV cache of models over contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..budget import widths
from ..model import Model
from ..tables.table import Table
from ..tensor import Step
from .comparison import Asked, Comparison, Quantity, beyond, loaded, tabulate


def draw(asked: Asked) -> tuple[Table, ...]:
    """A row a model, a column a context."""
    b, dtype, models = asked.batch, asked.dtype or "", loaded(asked.models)
    roles, longest = widths(dtype), max(asked.contexts)

    def bytes_at(context: int) -> Callable[[Model], Any]:
        return lambda model: sum(model.budget(Step.prefill(b, context)).cache(roles).values())

    def one_more(context: int) -> Callable[[Model], Any]:
        return lambda model: model.budget(Step.prefill(b, context)).cache_per_token(roles)

    quantities = (
        Quantity("first token", "bytes", lambda model: sum(model.budget(Step.prefill(1, 1)).cache(roles).values())),
        Quantity(f"token after {longest:,}", "bytes", one_more(longest)),
        *(Quantity(f"at {context:,}", "bytes", bytes_at(context)) for context in asked.contexts),
    )
    notes = (
        f"bytes, batch {b}, {dtype}; a layer holds its window and no more, latent attention the latents",
        "first token: of one sequence; the token after the longest context costs less where windows are full",
        *beyond(models, longest),
    )
    return (tabulate("KV cache", "model", models, quantities, notes),)


COMPARISON = Comparison(
    Asked(
        models=(
            "llama-2-7b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mistral-7b", "mistral-7b-v0.3",
            "mixtral-8x7b", "qwen3-8b", "qwen3-32b", "qwen3-235b-a22b", "gemma-2-9b", "gemma-3-27b", "phi-3-mini-128k",
            "gpt-oss-120b", "falcon-7b", "deepseek-v3",
        ),
        contexts=tuple(2048 << power for power in range(10)), batches=(1,), dtype="bf16",
    ),
    draw,
)  # fmt: skip
