"""BERT and its like: encoders alone, of tokens or of images."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.mlp import gelu, tanh
from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions
from . import decoder as d
from .config import MOST_LAYERS, Reading, derived, fixed, flag, layers, pair, size, word
from .encoder import encoder, vision
from .family import ACTIVATIONS, CAUSAL, Family, split_head

BERT = Family(encoder, MappingProxyType(dict(
    prefix="Bert", also=(), classes=("ForMaskedLM", *CAUSAL[1:]), wiring=d.post_norm,
    v=size("vocab_size", 30522), d=size("hidden_size", 768), l=layers("num_hidden_layers", 12),
    n=size("num_attention_heads", 12), h=derived(split_head), f=size("intermediate_size", 3072), gated=False, mlp_bias=True,
    act=word("hidden_act", "gelu", ACTIVATIONS), tied=flag("tie_word_embeddings", True), norm=LayerNorm(), final_norm=None,
    qkv_bias=True, m=size("max_position_embeddings", 512), types=size("type_vocab_size", 2),
    position=derived(lambda r: LearnedPositions(m=r.m)), narrow=None, sets=None,
    head_act=derived(lambda r: r.act), pooled=None, pooled_act=tanh,
    one_way=fixed("is_decoder", False, "BERT read here is an encoder"),
    alone=fixed("add_cross_attention", False, "BERT read here is an encoder alone"),
    absolute=fixed("position_embedding_type", "absolute", "relative position embeddings are not read"),
)))  # fmt: skip

ROBERTA = BERT.but(
    prefix="Roberta", v=size("vocab_size", 50265), head_act=gelu,
    position=derived(lambda r: LearnedPositions(m=r.m, reserved=2)),
)  # fmt: skip


def _all_layers(r: Reading) -> int:
    """Those of ``num_hidden_layers`` are ``inner_group_num`` layers each."""
    if r.outer * r.inner > MOST_LAYERS:
        raise r.refuse("inner_group_num", f"at most {MOST_LAYERS} layers in all")
    return int(r.outer * r.inner)


def _sets(r: Reading) -> int:
    """Sets of weights: the inner layers of each group."""
    if r.groups > r.outer:
        raise r.refuse("num_hidden_groups", f"at most the {r.outer} layers of num_hidden_layers")
    return int(r.groups * r.inner)


ALBERT = BERT.but(
    prefix="Albert", v=size("vocab_size", 30000), d=size("hidden_size", 4096), narrow=size("embedding_size", 128),
    n=size("num_attention_heads", 64), f=size("intermediate_size", 16384), act=word("hidden_act", "gelu_new", ACTIVATIONS),
    outer=layers("num_hidden_layers", 12), inner=layers("inner_group_num", 1), groups=layers("num_hidden_groups", 1),
    l=derived(_all_layers), sets=derived(_sets),
)  # fmt: skip

VIT = Family(vision, BERT.knobs).but(
    prefix="ViT", classes=("ForImageClassification", "Model"), also=("tie_word_embeddings",), wiring=d.pre_norm,
    final_norm=LayerNorm(), qkv_bias=flag("qkv_bias", True), h=size("head_dim", split_head), image=pair("image_size", 224),
    patch=pair("patch_size", 16), channels=size("num_channels", 3),
    pooled_width=size("pooler_output_size", None, null=None, least=0), pooled=derived(lambda r: r.pooled_width or None),
    pooled_act=word("pooler_act", "tanh", ACTIVATIONS),
    v=None, m=None, types=None, tied=None, position=None, one_way=None, alone=None, absolute=None,
)  # fmt: skip

FAMILIES = {"albert": ALBERT, "bert": BERT, "roberta": ROBERTA, "vit": VIT}
