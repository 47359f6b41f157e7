"""From a reading of any decoder-only family to a Model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..blocks.attention import Attention
from ..blocks.mlp import MLP, ClampedGatedMLP, GatedMLP
from ..blocks.position import ALiBi, Rotary
from ..blocks.wiring import Block, Parallel, Residual
from ..errors import InputError
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading
from .heads import head_of

if TYPE_CHECKING:
    from ..blocks.mla import MLA
    from ..blocks.moe import DenseMoE, MoE
    from ..blocks.prediction import MultiTokenPrediction


def decoder(r: Reading) -> Model:
    """Token and perhaps position vectors, one stack, a head."""
    kinds = list(zip(r.windows, r.sparse, r.rotaries, strict=True))
    blocks = {kind: _block(r, *kind) for kind in dict.fromkeys(kinds)}
    return Model(
        name=r.where,
        embedding=Embedding(v=r.v, d=r.d, i=r.narrow, position=r.position, norm=r.embedding_norm),
        stack=stack("decoder", kinds, blocks, lambda kind: _name(kind, blocks), r.final_norm, r.narrow),
        head=head_of(r, LMHead(v=r.v, tied=r.tied, bias=r.head_bias, softcap=r.logit_softcap is not None)),
        predictors=(_predictor(r, blocks[kinds[-1]]),) * r.predictors if r.predictors else (),
    )


def stack(
    name: str, kinds: Sequence[Any], blocks: dict[Any, Any], name_of: Callable[[Any], str], norm: Any, i: int | None = None
) -> Stack:
    """A stack of the blocks in the order of *kinds*, one a layer."""
    layers = tuple(Layer(block=block, l=kinds.count(kind), name=name_of(kind)) for kind, block in blocks.items())
    if len(layers) == 1:
        return Stack(name=name, layers=layers, norm=norm, i=i)
    names = {kind: name_of(kind) for kind in blocks}
    runs = ((run, len(list(same))) for run, same in groupby(names[kind] for kind in kinds))
    return Stack(name=name, layers=layers, norm=norm, i=i, order=tuple(runs))


def _predictor(r: Reading, block: Any) -> MultiTokenPrediction:
    """The module of one further token, around a block like the last."""
    from ..blocks.prediction import MultiTokenPrediction

    return MultiTokenPrediction(block=block, norm=r.norm, last=r.final_norm)


def _name(kind: tuple[Any, bool, bool], blocks: dict[Any, Any]) -> str:
    """What tells this layer from the stack's others: its mask (or the word for what is not attention), its feed-forward, and
    its rotation where these do not."""
    window, sparse, rotary = kind
    parts = []
    if len({other for other, _, _ in blocks}) > 1:
        parts.append("full" if window is None else "window" if type(window) is int else window)
    if len({other for _, other, _ in blocks}) > 1:
        parts.append("moe" if sparse else "dense")
    if len({other[:2] for other in blocks}) < len(blocks):
        parts.append("rope" if rotary else "nope")
    return "_".join(parts) or "layer"


def _block(r: Reading, window: Any, sparse: bool, rotary: bool) -> Any:
    attention = r.attention(r, window, rotary)
    mlp = mixture(r) if sparse else feed_forward(r, r.f)
    return r.wiring(r, attention, mlp)


def grouped_attention(r: Reading, window: int | None, rotary: bool) -> Attention:
    """Multi-head, grouped or multi-query attention."""
    r.check_divides("n", "k")
    return Attention(
        n=r.n, k=r.k, h=r.h, w=window, position=_position(r, window, rotary), qkv_bias=r.qkv_bias, o_bias=r.o_bias,
        cached_whole=r.cached_whole,
        qk_norm=r.qk_norm, norm_last=r.norm_last, clip=r.clip is not None, softcap=r.softcap is not None, sinks=r.sinks,
    )  # fmt: skip


def _position(r: Reading, window: int | None, rotary: bool) -> Rotary | ALiBi | None:
    if r.alibi or not r.r or not rotary:
        return ALiBi(n=r.n) if r.alibi else None
    if r.r > r.h:
        raise InputError(f"{r.where}: {r.r} entries of a head would be rotated, but a head is only {r.h} wide")
    return Rotary(r=r.r, local=r.local_rotary and window is not None)


def latent_attention(r: Reading, window: int | None, rotary: bool) -> MLA:
    """DeepSeek's attention."""
    from ..blocks.mla import MLA

    if r.r % 2:
        raise r.refuse(r.field_of("r"), "an even number: rotations turn pairs")
    return MLA(n=r.n, c=r.c, q=r.q, p=r.p, r=r.r, u=r.u, bias=r.qkv_bias)


def feed_forward(r: Reading, f: int) -> MLP | GatedMLP:
    """The family's feed-forward at width f."""
    return (GatedMLP if r.gated else MLP)(f=f, act=r.act, bias=r.mlp_bias)


def without_bias(r: Reading, f: int) -> GatedMLP:
    """A gated expert without biases, whatever the dense layers have."""
    return GatedMLP(f=f, act=r.act)


def clamped(r: Reading, f: int) -> ClampedGatedMLP:
    """gpt-oss's expert."""
    return ClampedGatedMLP(f=f)


def mixture(r: Reading) -> MoE | DenseMoE:
    """The family's mixture of experts."""
    if r.a > r.e:
        raise r.refuse(r.field_of("a"), f"at most the {r.e} experts of {r.field_of('e')}")
    shared = feed_forward(r, r.f_shared) if r.f_shared else None
    from ..blocks.moe import DenseMoE, MoE

    if r.every_expert:
        return DenseMoE(e=r.e, a=r.a, expert=r.expert(r, r.f_expert), shared=shared)
    return MoE(
        e=r.e, a=r.a, expert=r.expert(r, r.f_expert), shared=shared, shared_gate=r.shared_gate, score=r.score,
        renormalise=r.renormalise, router_bias=r.router_bias, choice_bias=r.choice_bias,
    )  # fmt: skip


def pre_norm(r: Reading, attention: Any, mlp: Any) -> Block:
    """Norms before the branches."""
    return Block(branches=(
        Residual(name="attention", branch=attention, before=r.norm),
        Residual(name="mlp", branch=mlp, before=r.norm),
    ))  # fmt: skip


def mixed(r: Reading, mixer: Any, mlp: Any) -> Block:
    """Norms before the branches, the first of which is attention in some layers and has the family's word for it in others."""
    name = "attention" if isinstance(mixer, Attention) else r.mixer
    return Block(branches=(Residual(name=name, branch=mixer, before=r.norm), Residual(name="mlp", branch=mlp, before=r.norm)))


def sandwich(r: Reading, attention: Any, mlp: Any) -> Block:
    """Norms before the branches and behind them, inside the residual."""
    return Block(branches=(
        Residual(name="attention", branch=attention, before=r.norm, after=r.norm),
        Residual(name="mlp", branch=mlp, before=r.norm, after=r.norm),
    ))  # fmt: skip


def behind(r: Reading, attention: Any, mlp: Any) -> Block:
    """Norms behind the branches alone, inside the residual."""
    return Block(branches=(
        Residual(name="attention", branch=attention, after=r.norm),
        Residual(name="mlp", branch=mlp, after=r.norm),
    ))  # fmt: skip


def post_norm(r: Reading, attention: Any, mlp: Any) -> Block:
    """Norms behind the sums."""
    return Block(branches=(
        Residual(name="attention", branch=attention, outer=r.norm),
        Residual(name="mlp", branch=mlp, outer=r.norm),
    ))  # fmt: skip


def parallel_norms(r: Reading, attention: Any, mlp: Any) -> Parallel:
    """Both branches on the same input, each with its norm."""
    return Parallel(branches=(
        Residual(name="attention", branch=attention, before=r.norm),
        Residual(name="mlp", branch=mlp, before=r.norm),
    ))  # fmt: skip


def parallel(r: Reading, attention: Any, mlp: Any) -> Parallel:
    """Both branches on one norm of the same input."""
    branches = (Residual(name="attention", branch=attention), Residual(name="mlp", branch=mlp))
    return Parallel(branches=branches, norm=r.norm)
