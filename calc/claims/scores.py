"""Claims on attention scores and on positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..blocks.attention import Attention
from ..blocks.norm import RMSNorm
from ..blocks.position import LearnedPositions, RelativeBias, RelativeKeys, Rotary, Sinusoidal
from ..catalogue import BLOCKS
from ..dims import Dim
from ..freedom import score_freedom
from ..model import Layer, Stack, trace
from ..tensor import Step
from .fact import B, D, Fact, H, L, M, N, T, fact, form, model


def qkv_identity() -> list[Fact]:
    """Projections that are the identity have no parameters."""
    leaves = trace(BLOCKS["identity"].make(D, N), Step.forward(B, T), D).components()
    return [
        fact("parameters of the projections", sum(leaf.params for leaf in leaves if leaf.path in ("q", "k", "v")), 0),
        fact("parameters with W_O", form("identity")),
    ]


def symmetric_score() -> list[Fact]:
    """What tying saves."""
    return [fact("parameters less than with separate W_Q and W_K", form("mha") - form("tied-qk"))]


def asymmetric_freedom() -> list[Fact]:
    """Dimensions of the sets of score forms, of a head as wide as the model and of a narrower one."""

    def free(h: Dim) -> Dim:
        return score_freedom(Attention(n=1, k=1, h=h), D)

    def tied(h: Dim) -> Dim:
        return score_freedom(Attention(n=1, k=1, h=h, qk_tied=True), D)

    claimed = D * (D - 1) / 2
    return [
        fact("free, one head with h = d", free(D), D**2, condition=True),
        fact("tied, one head with h = d", tied(D), D * (D + 1) / 2, condition=True),
        fact("lost, one head with h = d", free(D) - tied(D), claimed, condition=True),
        fact("free, a head h wide", free(H)),
        fact("tied, a head h wide", tied(H)),
        fact("lost, a head h wide", free(H) - tied(H), claimed),
        fact("lost by one of GPT-2's heads", (free(H) - tied(H)).subs({D: 768, H: 64}), of=free(H) - tied(H)),
    ]


def symmetric_dimension() -> list[Fact]:
    """The dimension of what W_Q = W_K reaches is that of all symmetric forms."""
    tied = score_freedom(Attention(n=1, k=1, h=D, qk_tied=True), D)
    return [fact("dimension of the forms W Wᵀ", tied, D * (D + 1) / 2)]


def normed_scores() -> list[Fact]:
    """A norm of queries and keys leaves the projections as they are."""
    plain, normed = (Attention(n=N, k=N, h=H, qk_norm=norm) for norm in (None, RMSNorm(gain=False)))
    return [fact("parameters that a norm without gains adds", form(normed) - form(plain), 0)]


def causal_pairs() -> list[Fact]:
    """Pairs of queries and keys that are computed, and those that the mask lets through."""
    lines = trace(BLOCKS["mha"].make(D, N), Step.forward(B, T), D).lines
    (scores,) = (line for line in lines if line.path == "scores")
    return [
        fact("pairs that the mask lets through", scores.visible, T * (T + 1) / 2, condition=True),
        fact("pairs that the written-out product computes", scores.pairs, T * (T + 1) / 2),
    ]


def positions() -> list[Fact]:
    """Parameters of each way of telling positions apart."""
    plain = Attention(n=N, k=N, h=H)
    stack = [
        Stack(name="encoder", layers=(Layer(block=Attention(n=N, k=N, h=H, position=position), l=L),))
        for position in (None, RelativeBias(m=M, n=N), RelativeBias(m=M, n=N, each_layer=True))
    ]
    shaw = form(Attention(n=N, k=N, h=H, position=RelativeKeys(m=M))) - form(plain)
    return [
        fact("sinusoids", form(Sinusoidal()), 0),
        fact("learned vectors, m positions", form(LearnedPositions(m=M)), M * D),
        fact("vectors by distance on keys and values, m = 2c + 1 (Shaw), a layer", shaw),
        fact("bias by bucket, m buckets (T5), once a stack of l layers", form(stack[1]) - form(stack[0])),
        fact("bias by offset, m = (2w − 1)² (Swin), in each of l layers", form(stack[2]) - form(stack[0])),
        fact("rotations", form(Attention(n=N, k=N, h=H, position=Rotary(r=2 * M))) - form(plain), 0),
        fact("slopes (ALiBi)", form("alibi") - form("mha"), 0),
    ]


def learned_table() -> list[Fact]:
    """The last position that a table knows."""
    return [fact("positions in GPT-2's table", model("gpt2").positions), fact("in BERT's", model("bert-base").positions)]


FACTS: Mapping[str, Callable[[], list[Fact]]] = MappingProxyType({
    "qkv-identity": qkv_identity, "symmetric-score": symmetric_score, "asymmetric-dof": asymmetric_freedom,
    "symmetric-psd": symmetric_dimension, "qk-norm-asymmetry": normed_scores, "causal-half": causal_pairs,
    "positions": positions, "learned-extrapolation": learned_table,
})  # fmt: skip
