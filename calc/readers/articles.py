"""Models that no config of transformers describes, by the fields of their papers and public code."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..blocks.attention import Attention, CrossAttention
from ..blocks.embedding import Patches, ValueEmbedding
from ..blocks.mixer import Smear, TokenMixing
from ..blocks.mlp import MLP, gelu, relu_squared
from ..blocks.norm import LayerNorm, RMSNorm
from ..blocks.position import Rotary, Sinusoidal
from ..blocks.wiring import Backout, Blended, Block, Residual
from ..heads import MeanHead
from ..model import Embedding, Layer, LMHead, Model, Stack
from .config import Reading, Rule, derived, flag, layers, pair, size
from .decoder import stack
from .family import Family, split_head
from .heads import labels

# -- MLP-Mixer ----------------------------------------------------------------------------------------------------------


def _mixer(r: Reading) -> Model:
    """Patches, token and channel mixing, the mean of the positions. Tolstikhin et al. 2021, arXiv:2105.01601, figure 1."""
    (height, width), (tall, wide) = r.image, r.patch
    if height % tall or width % wide:
        raise r.refuse("patch_size", f"a divisor of the {height} × {width} pixels of image_size")
    m = (height // tall) * (width // wide)
    block = Block(branches=(
        Residual(name="token_mixing", branch=TokenMixing(f=r.f_token), before=LayerNorm()),
        Residual(name="mlp", branch=MLP(f=r.f, act=gelu, bias=True), before=LayerNorm()),
    ))  # fmt: skip
    return Model(
        name=r.where,
        embedding=Patches(d=r.d, m=m, y=tall * wide, x=r.channels, class_token=False, positions=False),
        stack=Stack(name="mixer", layers=(Layer(block=block, l=r.l),), norm=LayerNorm()),
        head=MeanHead(v=None if r.config.get("num_labels") == 0 else labels(r, 1000)),
    )


MIXER = Family(_mixer, MappingProxyType(dict(
    also=(), image=pair("image_size", 224), patch=pair("patch_size", 16), channels=size("num_channels", 3),
    d=size("hidden_size", 768), f_token=size("tokens_mlp_dim", 384), f=size("channels_mlp_dim", 3072),
    l=layers("num_layers", 12),
)))  # fmt: skip

# -- the original Transformer -------------------------------------------------------------------------------------------


def _transformer(r: Reading) -> Model:
    """Post-norm encoder and decoder over one table. Vaswani et al. 2017, arXiv:1706.03762, section 3 and table 3.

    As its equations have it, the projections of attention are without biases and the feed-forward has both.
    """
    embedding = Embedding(v=r.v, d=r.d, position=Sinusoidal())
    encoder, decoder = (
        Stack(name=name, layers=(Layer(block=_post_norm(r, name == "decoder"), l=r.l),)) for name in ("encoder", "decoder")
    )
    return Model(
        name=r.where, embedding=embedding, stack=decoder, head=LMHead(v=r.v, tied=r.tied), encoder=encoder,
        encoder_embedding=None if r.tied else embedding,
    )  # fmt: skip


def _post_norm(r: Reading, decodes: bool) -> Block:
    sizes, biased = dict(n=r.n, k=r.n, h=r.h), r.attention_bias
    branches: list[tuple[str, Any]] = [("attention", Attention(**sizes, causal=decodes, qkv_bias=biased, o_bias=biased))]
    if decodes:
        cross = CrossAttention(**sizes, q_bias=biased, k_bias=biased, v_bias=biased, o_bias=biased)
        branches.append(("cross_attention", cross))
    branches.append(("mlp", MLP(f=r.f, bias=True)))
    return Block(branches=tuple(Residual(name=name, branch=branch, outer=LayerNorm()) for name, branch in branches))


TRANSFORMER = Family(_transformer, MappingProxyType(dict(
    also=(), v=size("vocab_size", 37000), d=size("d_model", 512), n=size("num_heads", 8), h=derived(split_head),
    f=size("d_ff", 2048), l=layers("num_layers", 6), attention_bias=flag("attention_bias", False), tied=flag("tie", True),
)))  # fmt: skip

# -- nanochat, as its repository has it today ---------------------------------------------------------------------------


def _pattern(r: Reading) -> str:
    """Letters of short and long windows, one a layer, over and over."""
    found = r.config.get("window_pattern", "SSSL")
    if not isinstance(found, str) or not found or set(found.upper()) - {"S", "L"}:
        raise r.refuse("window_pattern", "the letters S and L, such as SSSL")
    return found.upper()


def _short_window(r: Reading) -> int:
    """A quarter of the sequence in whole tiles of 128 positions before the query's own."""
    return int(-(-r.context // 512) * 128 + 1)


def _nanochat(r: Reading) -> Model:
    """github.com/karpathy/nanochat, nanochat/gpt.py: GPTConfig and GPT. Layers of a long window are full attention, which
    they are up to sequence_len positions.

    Every other layer, the last among them, has a value embedding; the vocabulary is filled up to a multiple of 64.
    """
    if r.d < 24:
        raise r.refuse("n_embd", "at least 24, the entries that the smear gate reads")
    r.check_divides("n", "k")
    v, norm = -(-r.v // 64) * 64, RMSNorm(gain=False)
    kinds = [
        (None if i == r.l - 1 or r.pattern[i % len(r.pattern)] == "L" else r.w, (r.l - 1 - i) % 2 == 0) for i in range(r.l)
    ]
    blocks = {kind: _nanochat_block(r, v, *kind) for kind in dict.fromkeys(kinds)}
    names = {kind: ("window" if kind[0] else "full") + ("_value" if kind[1] else "") for kind in blocks}
    layers = stack("decoder", kinds, blocks, lambda kind: names[kind], norm)
    return Model(
        name=r.where,
        embedding=Embedding(v=v, d=r.d, norm=norm, smear=Smear()),
        stack=replace(layers, exit=Backout(last=r.l <= 2)),
        head=LMHead(v=v, tied=False, softcap=True, used=None if v == r.v else r.v, wide=True),
    )


def _nanochat_block(r: Reading, v: int, window: int | None, valued: bool) -> Blended:
    norm = RMSNorm(gain=False)
    attention = Attention(
        n=r.n, k=r.k, h=r.h, w=window, position=Rotary(r=r.h), qk_norm=RMSNorm(gain=False, scaled=True), norm_last=True,
        value_embedding=ValueEmbedding(v=v) if valued else None,
    )  # fmt: skip
    return Blended(block=Block(branches=(
        Residual(name="attention", branch=attention, before=norm),
        Residual(name="mlp", branch=MLP(f=4 * r.d, act=relu_squared), before=norm),
    )))  # fmt: skip


NANOCHAT = Family(_nanochat, MappingProxyType(dict(
    also=(), context=size("sequence_len", 2048), v=size("vocab_size", 32768), l=layers("n_layer", 12), n=size("n_head", 6),
    k=size("n_kv_head", 6), d=size("n_embd", 768), h=derived(split_head), w=derived(_short_window),
    pattern=Rule(("window_pattern",), _pattern),
)))  # fmt: skip

FAMILIES = {"karpathy_nanochat": NANOCHAT, "mlp_mixer": MIXER, "transformer": TRANSFORMER}
