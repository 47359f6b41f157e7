"""What part of a model an operation belongs to."""

from __future__ import annotations

from collections.abc import Mapping

from ..blocks.attention import Attention, CrossAttention
from ..blocks.embedding import ValueEmbedding
from ..blocks.linear_attention import GatedDeltaNet, LinearAttention
from ..blocks.mixer import SqueezeExcitation, TokenMixing
from ..blocks.mla import MLA
from ..blocks.mlp import MLP, ClampedGatedMLP, GatedMLP
from ..blocks.moe import MoE
from ..budget import Budget
from ..dims import Dim
from ..tensor import Line

ATTENTION = (Attention, CrossAttention, MLA, LinearAttention, GatedDeltaNet, ValueEmbedding)
FEED_FORWARD = (MLP, GatedMLP, ClampedGatedMLP, MoE, TokenMixing, SqueezeExcitation)

PARTS = ("embedding", "attention", "feed-forward", "routed experts", "norms", "head", "other")
WORK = ("attention scores", "attention projections", "feed-forward", "routed experts", "head", "other")


def part(line: Line) -> str:
    """One of PARTS. ``embedding`` is every look-up table and what maps the input to the model's width; routers and shared
    experts are feed-forward; an output matrix belongs to the head, a tied one to the table that it is."""
    places = line.path.split(".")
    if line.kind == "norm":
        return "norms"
    if places[0] in ("embedding", "encoder_embedding") or any(weight.role == "table" for weight in line.weights):
        return "head" if "head" in places else "embedding"
    if "head" in places or any(weight.role == "head" for weight in line.weights):
        return "head"
    if "experts" in places:
        return "routed experts"
    return "attention" if _is(line, ATTENTION) else "feed-forward" if _is(line, FEED_FORWARD) else "other"


def operation(line: Line) -> str:
    """One of WORK: as ``part``, but the products of queries with keys and of their scores with values stand apart."""
    found = part(line)
    if found == "attention":
        return "attention projections" if line.weights else "attention scores"
    return found if found in WORK else "other"


def _is(line: Line, types: tuple[type, ...]) -> bool:
    return line.origin is not None and issubclass(line.origin, types)


def parameters(budget: Budget) -> Mapping[str, tuple[Dim, Dim]]:
    """Stored and active parameters of each of PARTS; the sums are the budget's total and active."""
    parts = {line.path: part(line) for line in reversed(budget.lines) if line.weights}
    found: dict[str, tuple[Dim, Dim]] = dict.fromkeys(PARTS, (0, 0))
    for component in budget.components():
        stored, active = found[parts[component.path]]
        found[parts[component.path]] = stored + component.params, active + component.active
    return found


def work(budget: Budget) -> Mapping[str, Dim]:
    """FLOPs of each of WORK, two a multiply-add over full attention squares; the sum is that of the convention torch."""
    found: dict[str, Dim] = dict.fromkeys(WORK, 0)
    for line in budget.lines:
        if line.forward or line.dinput:
            found[operation(line)] += 2 * line.copies * line.pairs * multiply_adds(line, training=budget.step.training)
    return found


def multiply_adds(line: Line, *, training: bool) -> Dim:
    """Those of a pair: forward, what a checkpoint runs again, and in training all gradients."""
    again = line.forward if line.recomputed else 0
    return line.forward + again + (line.dinput + line.dweight if training else 0)
