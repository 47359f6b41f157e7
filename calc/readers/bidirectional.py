"""BERT and its like: encoders alone, of tokens or of images."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.mlp import gelu, relu, silu, tanh
from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions, RelativeBias, Rotary
from . import decoder as d
from .config import MOST_LAYERS, Reading, derived, fixed, flag, layers, pair, size, word
from .encoder import encoder, equal_layers, scaled_branches, usual_head, vision, windows_and_full
from .family import ACTIVATIONS, CAUSAL, Family, by_type, split_head

BERT = Family(encoder, MappingProxyType(dict(
    prefix="Bert", also=(), classes=("ForMaskedLM", *CAUSAL[1:]), wiring=d.post_norm,
    v=size("vocab_size", 30522), d=size("hidden_size", 768), l=layers("num_hidden_layers", 12),
    n=size("num_attention_heads", 12), h=derived(split_head), f=size("intermediate_size", 3072), gated=False, mlp_bias=True,
    act=word("hidden_act", "gelu", ACTIVATIONS), tied=flag("tie_word_embeddings", True), norm=LayerNorm(),
    embedding_norm=derived(lambda r: r.norm), final_norm=None, qkv_bias=True, o_bias=True,
    m=size("max_position_embeddings", 512), types=size("type_vocab_size", 2),
    position=derived(lambda r: LearnedPositions(m=r.m)), narrow=None, sets=None,
    layers=equal_layers, stack="encoder", causal=False, inner=None, head=usual_head, second_bias=True, head_bias=True,
    hidden_bias=True, hidden=MappingProxyType({}), head_act=derived(lambda r: r.act), class_act=tanh, pooler=True, pooled=None,
    pooled_act=tanh,
    one_way=fixed("is_decoder", False, "BERT read here is an encoder"),
    alone=fixed("add_cross_attention", False, "BERT read here is an encoder alone"),
    absolute=fixed("position_embedding_type", "absolute", "relative position embeddings are not read"),
)))  # fmt: skip

ROBERTA = BERT.but(
    prefix="Roberta", v=size("vocab_size", 50265), head_act=gelu,
    position=derived(lambda r: LearnedPositions(m=r.m, reserved=2)),
)  # fmt: skip

XLM_ROBERTA = ROBERTA.but(prefix="XLMRoberta", v=size("vocab_size", 30522))

XLM_ROBERTA_XL = ROBERTA.but(
    prefix="XLMRobertaXL", wiring=d.pre_norm, v=size("vocab_size", 250880), d=size("hidden_size", 2560),
    l=layers("num_hidden_layers", 36), n=size("num_attention_heads", 32), f=size("intermediate_size", 10240),
    types=size("type_vocab_size", 1), m=size("max_position_embeddings", 514), embedding_norm=None, final_norm=LayerNorm(),
)  # fmt: skip

NOMIC_BERT = BERT.but(
    prefix="NomicBert", classes=("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification"),
    also=("max_position_embeddings",), v=size("vocab_size", 30528), h=size("head_dim", split_head, null=split_head), gated=True,
    mlp_bias=False, act=word("hidden_act", "silu", ACTIVATIONS), qkv_bias=False, o_bias=False,
    inner=derived(lambda r: Rotary(r=r.h)), pooler=False, m=None, position=None, one_way=None, alone=None, absolute=None,
)  # fmt: skip

CAMEMBERT = XLM_ROBERTA.but(prefix="Camembert")

MPNET = ROBERTA.but(
    prefix="MPNet", v=size("vocab_size", 30527), types=None,
    buckets=size("relative_attention_num_buckets", 32), inner=derived(lambda r: RelativeBias(m=r.buckets, n=r.n)),
    one_way=None, alone=None,
)  # fmt: skip

DISTILBERT = BERT.but(
    prefix="DistilBert", d=size(("dim", "hidden_size"), 768),
    l=layers(("n_layers", "num_hidden_layers"), 6), n=size(("n_heads", "num_attention_heads"), 12), f=size("hidden_dim", 3072),
    act=word("activation", "gelu", ACTIVATIONS), types=None, second_bias=False, class_act=relu, pooler=False,
    one_way=None, alone=None,
)  # fmt: skip

ELECTRA = BERT.but(
    prefix="Electra", classes=("ForMaskedLM", "ForPreTraining", *CAUSAL[1:]), table=size("embedding_size", 128),
    narrow=derived(lambda r: None if r.table == r.d else r.table), d=size("hidden_size", 256), n=size("num_attention_heads", 4),
    f=size("intermediate_size", 1024), second_bias=False, head_act=gelu, class_act=gelu, pooler=False,
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
    pooled_act=word("pooler_act", "tanh", ACTIVATIONS), mask_token=False, patch_bias=True,
    patch_norm=None,
    v=None, m=None, types=None, tied=None, position=None, one_way=None, alone=None, absolute=None,
)  # fmt: skip


def _square(r: Reading) -> tuple[int, int]:
    """An image whose sides are equal: the positions of others are made of a square's."""
    height, width = r.sides
    if height != width:
        raise r.refuse("image_size", "equal sides: transformers has positions for a square alone")
    return height, width


def _swiglu_width(r: Reading) -> int:
    """mlp_ratio·d, and with gates two thirds of it in whole eights."""
    f = int(r.d * r.ratio)
    return (int(f * 2 / 3) + 7) // 8 * 8 if r.gated else f


DINOV2 = VIT.but(
    prefix="Dinov2", classes=("Model",), also=(), wiring=scaled_branches, h=derived(split_head), sides=pair("image_size", 224),
    image=derived(_square), patch=pair("patch_size", 14), ratio=size("mlp_ratio", 4), gated=flag("use_swiglu_ffn", False),
    f=derived(_swiglu_width), plain_act=word("hidden_act", "gelu", ACTIVATIONS),
    act=derived(lambda r: silu if r.gated else r.plain_act), mask_token=flag("use_mask_token", True),
    pooler=False, pooled_width=None, pooled=None, pooled_act=None,
)  # fmt: skip


def _every_third_full(r: Reading) -> list[int | None]:
    """Full attention in every third layer (or what ``global_attn_every_n_layers`` says), the first among them."""
    return [r.w if i % r.pattern else None for i in range(r.l)]


MODERNBERT = BERT.but(
    prefix="ModernBert", also=("max_position_embeddings", "position_embedding_type"),
    v=size("vocab_size", 50368), l=layers("num_hidden_layers", 22), f=size("intermediate_size", 1152), gated=True,
    mlp_bias=flag("mlp_bias", False), qkv_bias=flag("attention_bias", False),
    act=word("hidden_activation", "gelu", ACTIVATIONS), layers=windows_and_full,
    span=size("local_attention", 128), w=derived(lambda r: r.span // 2 + 1), pattern=size("global_attn_every_n_layers", 3),
    windows=by_type(_every_third_full), norm_bias=flag("norm_bias", False),
    norm=derived(lambda r: LayerNorm(bias=r.norm_bias)), final_norm=derived(lambda r: r.norm),
    head_bias=flag("decoder_bias", True), hidden_bias=flag("classifier_bias", False), second_bias=False,
    head_act=word("classifier_activation", "gelu", ACTIVATIONS), pooler=False,
    mean=word("classifier_pooling", "cls", {"cls": False, "mean": True}),
    hidden=derived(lambda r: {"act": r.head_act, "norm": r.norm, "hidden_bias": r.hidden_bias}),
    m=None, types=None, position=None, one_way=None, alone=None, absolute=None,
)  # fmt: skip

FAMILIES = {
    "albert": ALBERT, "bert": BERT, "camembert": CAMEMBERT, "dinov2": DINOV2, "distilbert": DISTILBERT, "electra": ELECTRA,
    "modernbert": MODERNBERT, "mpnet": MPNET, "nomic_bert": NOMIC_BERT, "roberta": ROBERTA, "vit": VIT,
    "xlm-roberta": XLM_ROBERTA, "xlm-roberta-xl": XLM_ROBERTA_XL,
}  # fmt: skip
