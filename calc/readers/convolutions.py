"""LFM2: gated convolutions over the last few positions, and attention in some layers."""

from __future__ import annotations

from typing import Any, NoReturn

from ..blocks.norm import RMSNorm
from ..blocks.short_convolution import ShortConvolution
from ..dims import LARGEST_SIZE
from . import decoder as d
from .config import Reading, derived, each_layer, flag, indices, number, size
from .family import ACTIVATIONS, BARE, NO_TABLE, split_head
from .llama import LLAMA
from .mixtures import mixture


def _mixer(r: Reading, window: Any, rotary: bool) -> Any:
    """Attention, or a convolution."""
    return ShortConvolution(g=r.g, bias=r.conv_bias) if window == "conv" else d.grouped_attention(r, window, rotary)


def _width(r: Reading) -> int:
    """The width that the config names, or two thirds of it, times a factor, up to a multiple."""
    if not r.adjusted:
        return int(r.f_field)
    if r.factor is None or r.factor <= 0:
        raise r.refuse("block_ffn_dim_multiplier", "a number above 0")
    f = int(-(-int(r.factor * int(2 * r.f_field / 3)) // r.multiple) * r.multiple)
    if f > LARGEST_SIZE:
        raise r.refuse("block_ffn_dim_multiplier", "a number that makes a width of at most 2**40")
    return f


def _by_index(r: Reading) -> list[str | None]:
    """Attention in the layers of ``full_attn_idxs``, in all of them when there is no such list."""
    return [None if r.full is None or i in r.full else "conv" for i in range(r.l)]


def _no_default(r: Reading) -> NoReturn:
    raise r.refuse("layer_types", f"a list of {r.l} entries, 'full_attention' and 'conv': this family has no default")


MIXERS = {"full_attention": None, "conv": "conv"}

LFM2 = LLAMA.but(
    prefix="Lfm2", classes=BARE, attention=_mixer, wiring=d.mixed, mixer="convolution",
    also=(*NO_TABLE, "num_heads"), v=size("vocab_size", 65536), d=size("hidden_size", 2560),
    f=derived(_width), f_field=size(("block_ff_dim", "intermediate_size"), 12288),
    adjusted=flag("block_auto_adjust_ff_dim", True), factor=number("block_ffn_dim_multiplier", 1.0),
    multiple=size("block_multiple_of", 256), k=size("num_key_value_heads", 8), h=size("head_dim", split_head),
    act=ACTIVATIONS["silu"], tied=flag(("tie_embedding", "tie_word_embeddings"), True), qkv_bias=False, mlp_bias=False,
    qk_norm=RMSNorm(), g=size("conv_L_cache", 3), conv_bias=flag("conv_bias", False),
    full=indices("full_attn_idxs", None), windows=each_layer("layer_types", MIXERS, _by_index),
)  # fmt: skip

LFM2_MOE = mixture(LFM2).but(
    prefix="Lfm2Moe", also=NO_TABLE, d=size("hidden_size", 2048), f=size("intermediate_size", 7168), f_field=None,
    adjusted=None, factor=None, multiple=None, full=None, windows=each_layer("layer_types", MIXERS, _no_default),
    e=size("num_experts", 32), a=size("num_experts_per_tok", 4), f_expert=size("moe_intermediate_size", 1792),
    score="sigmoid", renormalise=flag("norm_topk_prob", True), dense_first=size("num_dense_layers", 2, least=0),
    sparse=derived(lambda r: [i >= r.dense_first for i in range(r.l)]),
)  # fmt: skip

FAMILIES = {"lfm2": LFM2, "lfm2_moe": LFM2_MOE}
