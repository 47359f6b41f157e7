"""Mixtures of experts: what is stored, what a token uses, what a batch touches."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from ..blocks.moe import MoE
from ..errors import InputError
from ..model import Model
from ..tables.table import Table
from ..tensor import Step
from .comparison import Asked, Comparison, Quantity, loaded, pieces, tabulate

LARGEST_BATCH = 2**16
"""Powers of fractions grow with the batch, and so does the time that they take."""


class Bank(NamedTuple):
    """A row: a model, and the experts of one of its mixtures, which are all alike."""

    model: Model
    e: int
    a: int
    shared: bool


def bank(name: str, model: Model) -> Bank:
    """The model's experts. Raises InputError where there are none, or of several numbers."""
    found = {(one.e, one.a, one.shared is not None) for one in pieces(model, MoE)}
    if len(found) != 1:
        what = "more than one kind of" if found else "no"
        raise InputError(f"{name}: {what} mixture of experts, but the table mixtures compares models of one")
    return Bank(model, *found.pop())


def touched(e: int, a: int, tokens: int) -> Fraction:
    """Distinct experts that so many tokens are expected to use, each of a of the e with equal chances: e(1 − (1 − a/e)^b).

    >>> touched(8, 2, 1), touched(8, 2, 2)
    (Fraction(2, 1), Fraction(7, 2))
    """
    return e * (1 - (1 - Fraction(a, e)) ** tokens)


def _touched(tokens: int) -> Callable[[Bank], Fraction]:
    return lambda one: touched(one.e, one.a, tokens)


def draw(asked: Asked) -> tuple[Table, ...]:
    """Parameters, then experts touched over batches."""
    rows = [(name, bank(name, model)) for name, model in loaded(asked.models)]
    for tokens in asked.batches:
        if tokens > LARGEST_BATCH:
            raise InputError(f"--batch {tokens}: the table mixtures counts exactly, up to {LARGEST_BATCH:,} tokens")
    counts = {name: row.model.budget(Step.forward(1, 1)).parameters() for name, row in rows}
    parameters = (
        Quantity("total", "count", lambda x: x[0].total),
        Quantity("active", "count", lambda x: x[0].active),
        Quantity("active without input", "count", lambda x: x[0].active_without_input),
        Quantity("total/active", "ratio", lambda x: Fraction(x[0].total, x[0].active)),
        Quantity("experts e", "size", lambda x: x[1].e),
        Quantity("active a", "size", lambda x: x[1].a),
        Quantity("shared too", "", lambda x: "yes" if x[1].shared else "no"),
    )  # fmt: skip
    batches = tuple(Quantity(f"batch {tokens:,}", "ratio", _touched(tokens)) for tokens in asked.batches)
    notes = (
        "active: what one token's forward uses, embeddings and head, routers and shared experts in full, routed experts × a/e",
        "experts and active a: the routed ones of a layer",
    )
    expected = "e(1 − (1 − a/e)^b): each of b tokens takes a of e experts with equal chances; real routers are less even"
    return (
        tabulate("parameters of mixtures", "model", ((name, (counts[name], row)) for name, row in rows), parameters, notes),
        tabulate("distinct experts of a layer that a decoding step is expected to touch", "model", rows, batches, (expected,)),
    )


COMPARISON = Comparison(
    Asked(
        models=(
            "mixtral-8x7b", "mixtral-8x22b", "olmoe-1b-7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-20b", "gpt-oss-120b",
            "deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "glm-4.5-air", "glm-4.5", "kimi-k2",
        ),
        batches=(1, 8, 32, 128, 512),
    ),
    draw,
)  # fmt: skip
