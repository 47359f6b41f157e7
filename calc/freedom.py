"""Degrees of freedom of attention scores: parameters minus the dimension of the group that leaves the scores unchanged."""

from __future__ import annotations

from .blocks.attention import Attention
from .dims import Dim, half, product
from .errors import UndefinedError
from .model import trace
from .tensor import Step


def general_linear(h: Dim) -> Dim:
    """The dimension of GL(h), all invertible h × h matrices: h²."""
    return h * h


def orthogonal(h: Dim) -> Dim:
    """The dimension of O(h), the h × h matrices with A Aᵀ = 1: h(h − 1)/2."""
    return half(h * (h - 1))


def score_freedom(attention: Attention, d: Dim) -> Dim:
    """The dimension of the set of score matrices x W_Q W_Kᵀ xᵀ that the parameters reach, for heads at most d wide.

    W_Q → W_Q A, W_K → W_K A⁻ᵀ leaves the scores unchanged for any invertible A, one a key-value head; with W_Q = W_K
    only an orthogonal A does. At n = k = 1 and h = d: d² free and d(d + 1)/2 tied, d(d − 1)/2 apart.
    Raises UndefinedError where position or a norm stands between the projections and the scores.
    """
    if attention.position is not None or attention.qk_norm is not None or attention.qkv_bias or attention.clip:
        raise UndefinedError("score freedom: defined for q and k that are multiplied as they are projected")
    budget = trace(attention, Step.forward(1, 1), d)
    weights = {line.weights[0] for line in budget.lines if line.path in ("q", "k") and line.weights}
    parameters = sum((product(weight.sizes) for weight in weights), 0)
    group = orthogonal(attention.h) * attention.n if attention.qk_tied else general_linear(attention.h) * attention.k
    return parameters - group
