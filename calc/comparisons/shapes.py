"""Shapes of models: depth, width, heads, and how parameters are shared between attention and feed-forward."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from ..blocks.attention import Attention
from ..blocks.mla import MLA
from ..blocks.mlp import MLP, ClampedGatedMLP, GatedMLP
from ..budget import Budget
from ..model import Model
from ..tables.table import Table
from ..tensor import Step
from .comparison import Asked, Comparison, Quantity, loaded, parts, pieces, tabulate


class Shape(NamedTuple):
    """A row: a model's main stack, and the model's budget."""

    model: Model
    budget: Budget

    @property
    def d(self) -> int:
        """Width."""
        return int(self.model.embedding.d)

    @property
    def layers(self) -> int:
        """Blocks, equal and different ones."""
        return sum(layer.l for layer in self.model.stack.layers)

    @property
    def heads(self) -> tuple[int, ...]:
        """Query heads, one number unless blocks differ."""
        return _distinct(one.n for one in pieces(self.model.stack, Attention, MLA))

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Width of a query head."""
        found = pieces(self.model.stack, Attention, MLA)
        return _distinct(one.h if isinstance(one, Attention) else one.p + one.r for one in found)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Hidden widths of the feed-forwards, experts one by one."""
        return _distinct(one.f for one in pieces(self.model.stack, MLP, GatedMLP, ClampedGatedMLP))


def _distinct(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(sizes))


def _listed(sizes: tuple[int, ...]) -> Any:
    """A number where there is one, else all of them as text."""
    return sizes[0] if len(sizes) == 1 else ", ".join(f"{size:,}" for size in sizes)


def _over(sizes: tuple[int, ...], d: int) -> Fraction | None:
    return Fraction(sizes[0], d) if len(sizes) == 1 else None


def _split(shape: Shape) -> Fraction | None:
    """Parameters of the feed-forwards over those of the attentions."""
    attention = parts(shape.budget, "attention")
    return Fraction(parts(shape.budget, "mlp"), attention) if attention else None


QUANTITIES = (
    Quantity("layers l", "size", lambda x: x.layers),
    Quantity("width d", "size", lambda x: x.d),
    Quantity("d/l", "ratio", lambda x: Fraction(x.d, x.layers)),
    Quantity("heads n", "size", lambda x: _listed(x.heads)),
    Quantity("head width h", "size", lambda x: _listed(x.head_widths)),
    Quantity("hidden f", "size", lambda x: _listed(x.hidden)),
    Quantity("f/d", "ratio", lambda x: _over(x.hidden, x.d)),
    Quantity("attention", "count", lambda x: parts(x.budget, "attention")),
    Quantity("feed-forward", "count", lambda x: parts(x.budget, "mlp")),
    Quantity("feed-forward/attention", "ratio", _split),
)  # fmt: skip


def draw(asked: Asked) -> tuple[Table, ...]:
    """A row a model."""
    rows = ((name, Shape(model, model.budget(Step.forward(1, 1)))) for name, model in loaded(asked.models))
    notes = (
        "sizes of the main stack; where its blocks differ all are listed, dense ones and experts; h: width of a query head",
        "attention and feed-forward: parameters in all blocks, biases and all experts included, cross-attention and norms not",
    )
    return (tabulate("shapes of models", "model", rows, QUANTITIES, notes),)


COMPARISON = Comparison(
    Asked(models=(
        "transformer-base", "bert-base", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b", "palm-540b", "llama-7b",
        "llama-13b", "llama-30b", "llama-65b", "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.1-405b", "mistral-7b",
        "gemma-7b", "gemma-2-9b", "qwen2-7b", "qwen2.5-72b", "qwen3-0.6b", "qwen3-8b", "mixtral-8x7b", "deepseek-v3",
    )),
    draw,
)  # fmt: skip
