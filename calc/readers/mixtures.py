"""Decoders whose feed-forwards are mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..blocks.norm import HeadsNorm, LayerNorm, RMSNorm
from . import decoder as d
from .config import Reading, Rule, derived, each_layer, fixed, flag, indices, layers, number, size
from .family import (
    BARE,
    SEQUENCE,
    TOKEN,
    Family,
    after_some,
    alternating,
    alternating_at_first,
    by_type,
    even,
    full_everywhere,
    rotated,
    sparse_everywhere,
    split_head,
    window_everywhere,
    without_default,
)
from .llama import GRANITE, LLAMA, MISTRAL, QWEN2, QWEN3


def mixture(family: Family) -> Family:
    """The family with a plain mixture in every layer, experts as wide as its feed-forward was."""
    return family.but(
        sparse=sparse_everywhere, expert=d.feed_forward, f_expert=derived(lambda r: r.f), f_shared=None, shared_gate=False,
        router_bias=False, choice_bias=False, score="softmax", renormalise=True, every_expert=False,
    )  # fmt: skip


# Mixtures in every ``decoder_sparse_step``-th layer but in those of ``mlp_only_layers``.
EVERY_NTH = dict(
    every=size("decoder_sparse_step", 1), dense_layers=indices("mlp_only_layers", frozenset()),
    sparse=derived(lambda r: [i not in r.dense_layers and (i + 1) % r.every == 0 for i in range(r.l)]),
)  # fmt: skip


def by_kind(default: Callable[[Reading], list[Any]]) -> Rule:
    """Which layers are mixtures, from ``mlp_layer_types``."""
    return each_layer("mlp_layer_types", {"dense": False, "sparse": True}, default)


first_dense = by_kind(lambda r: [i > 0 for i in range(r.l)])


def _as_listed(r: Reading) -> None:
    found = r.config["first_k_dense_replace"]
    if type(found) is not int or [i >= found for i in range(r.l)] != r.sparse:
        raise r.refuse("first_k_dense_replace", "what mlp_layer_types, or without it one dense layer, says: only that is read")


as_listed = Rule(("first_k_dense_replace",), _as_listed)
"""A number of dense layers that a config states and transformers reads from ``mlp_layer_types`` alone."""


def window_in_use(r: Reading) -> int:
    """The window, asked for only where a layer has one; a config without any may say 0."""
    if not r.sliding:
        raise r.refuse("layer_types", "full_attention alone: use_sliding_window is false")
    if not r.w_field:
        raise r.refuse("sliding_window", "a whole number from 1 to 2**40")
    return int(r.w_field)


MIXTRAL = mixture(MISTRAL).but(
    prefix="Mixtral", w=size("sliding_window", None, null=None),
    e=size(("num_local_experts", "num_experts"), 8), a=size("num_experts_per_tok", 2),
)  # fmt: skip

OLMOE = mixture(LLAMA).but(
    prefix="Olmoe", classes=BARE, v=size("vocab_size", 50304), d=size("hidden_size", 2048), f=size("intermediate_size", 2048),
    l=layers("num_hidden_layers", 16), n=size("num_attention_heads", 16), h=derived(split_head), mlp_bias=False,
    qk_norm=HeadsNorm(), clip=number("clip_qkv", None), e=size(("num_experts", "num_local_experts"), 64),
    a=size("num_experts_per_tok", 8), renormalise=flag("norm_topk_prob", False),
)  # fmt: skip

GPT_OSS = mixture(LLAMA).but(
    prefix="GptOss", classes=TOKEN, v=size("vocab_size", 201088), d=size("hidden_size", 2880),
    f=size("intermediate_size", 2880), l=layers("num_hidden_layers", 36), n=size("num_attention_heads", 64),
    k=size("num_key_value_heads", 8), h=size("head_dim", 64), qkv_bias=flag("attention_bias", True), mlp_bias=False, sinks=True,
    w=size("sliding_window", 128), windows=by_type(alternating), expert=d.clamped, router_bias=True,
    e=size(("num_local_experts", "num_experts"), 128), a=size("num_experts_per_tok", 4), score="softmax_of_chosen",
    renormalise=False,
)  # fmt: skip

QWEN3_MOE = mixture(QWEN3).but(
    prefix="Qwen3Moe", d=size("hidden_size", 2048), f=size("intermediate_size", 6144), l=layers("num_hidden_layers", 24),
    k=size("num_key_value_heads", 4, null=lambda r: r.n), h=size("head_dim", split_head, null=split_head),
    windows=window_everywhere, e=size(("num_experts", "num_local_experts"), 128), a=size("num_experts_per_tok", 8),
    f_expert=size("moe_intermediate_size", 768),
    always_normed=fixed("use_qk_norm", True, "Qwen3 norms queries and keys"),
    renormalise=flag("norm_topk_prob", False), **EVERY_NTH,
)  # fmt: skip

QWEN2_MOE = mixture(QWEN2).but(
    prefix="Qwen2Moe", d=size("hidden_size", 2048), f=size("intermediate_size", 5632), l=layers("num_hidden_layers", 24),
    n=size("num_attention_heads", 16), k=size("num_key_value_heads", 16), qkv_bias=flag("qkv_bias", True), always_biased=None,
    windows=by_type(alternating_at_first), w=derived(window_in_use), w_field=size("sliding_window", 4096, least=0),
    e=size("num_experts", 60), a=size("num_experts_per_tok", 4), f_expert=size("moe_intermediate_size", 1408),
    f_shared=size("shared_expert_intermediate_size", 5632), shared_gate=True,
    renormalise=flag("norm_topk_prob", False), **EVERY_NTH,
)  # fmt: skip

DEEPSEEK_V3 = mixture(LLAMA).but(
    prefix="DeepseekV3", classes=TOKEN, attention=d.latent_attention, v=size("vocab_size", 129280),
    d=size("hidden_size", 7168), f=size("intermediate_size", 18432), l=layers("num_hidden_layers", 61),
    n=size("num_attention_heads", 128), c=size("kv_lora_rank", 512), q=size("q_lora_rank", 1536, null=None),
    p=size("qk_nope_head_dim", 128), r=size("qk_rope_head_dim", 64), u=size("v_head_dim", 128), mlp_bias=False,
    e=size(("n_routed_experts", "num_local_experts"), 256), a=size("num_experts_per_tok", 8),
    f_expert=size("moe_intermediate_size", 2048), n_shared=size("n_shared_experts", 1, null=0, least=0),
    f_shared=derived(lambda r: r.f_expert * r.n_shared), score="sigmoid", renormalise=flag("norm_topk_prob", True),
    dense_first=size("first_k_dense_replace", 3, least=0),
    every=fixed("moe_layer_freq", 1, "every layer after the first is a mixture"),
    sparse=derived(lambda r: [i >= r.dense_first for i in range(r.l)]), 
    # no field of transformers', which builds none, whatever a file's num_nextn_predict_layers says
    predictors=layers("mtp_modules", 0, null=0, least=0, most=64),
)  # fmt: skip

DEEPSEEK_V2 = DEEPSEEK_V3.but(
    prefix="DeepseekV2", classes=SEQUENCE, v=size("vocab_size", 102400), d=size("hidden_size", 4096),
    f=size("intermediate_size", 11008), l=layers("num_hidden_layers", 32), n=size("num_attention_heads", 32),
    mlp_bias=flag("mlp_bias", False), expert=d.without_bias, e=size(("n_routed_experts", "num_experts"), 64),
    a=size("num_experts_per_tok", without_default("num_experts_per_tok")), f_expert=size("moe_intermediate_size", 1407),
    n_shared=size("n_shared_experts", 2), score="softmax", renormalise=flag("norm_topk_prob", False, null=False),
    dense_first=size("first_k_dense_replace", 0, least=0), predictors=0,
)  # fmt: skip

GLM4_MOE = DEEPSEEK_V3.but(
    prefix="Glm4Moe", classes=BARE, attention=d.grouped_attention, v=size("vocab_size", 151552), d=size("hidden_size", 4096),
    f=size("intermediate_size", 10944), l=layers("num_hidden_layers", 46), n=size("num_attention_heads", 96),
    k=size("num_key_value_heads", 8), h=size("head_dim", lambda r: r.d // r.n), rotated=rotated(0.5), r=derived(even),
    o_bias=False, head_norms=flag("use_qk_norm", False), qk_norm=derived(lambda r: RMSNorm() if r.head_norms else None),
    c=None, q=None, p=None, u=None, e=size(("n_routed_experts", "num_local_experts"), 128),
    f_expert=size("moe_intermediate_size", 1408), n_shared=size("n_shared_experts", 1, least=0),
    dense_first=size("first_k_dense_replace", 1, least=0),
)  # fmt: skip

# -- with the routers of DeepSeek-V3, and attention of their own --------------------------------------------------------

GLM4V_MOE_TEXT = GLM4_MOE.but(
    prefix="Glm4vMoe", classes=("TextModel",), v=size("vocab_size", 151424), qkv_bias=flag("attention_bias", True),
    qk_norm=None, head_norms=None, predictors=0,
    never_normed=fixed("use_qk_norm", False, "GLM-4.5V norms neither queries nor keys"),
)  # fmt: skip

GLM4_MOE_LITE = DEEPSEEK_V3.but(
    prefix="Glm4MoeLite", classes=BARE, v=size("vocab_size", 154880), d=size("hidden_size", 2048),
    f=size("intermediate_size", 10240), l=layers("num_hidden_layers", 47), n=size("num_attention_heads", 20),
    q=size("q_lora_rank", 768, null=None), p=size("qk_nope_head_dim", 192), r=size(("qk_rope_head_dim", "head_dim"), 64),
    u=size("v_head_dim", 256), h=None, e=size(("n_routed_experts", "num_local_experts"), 64), a=size("num_experts_per_tok", 4),
    f_expert=size("moe_intermediate_size", 1536), n_shared=size("n_shared_experts", 1, least=0), sparse=first_dense,
    dense_first=as_listed, whole=fixed("partial_rotary_factor", 1.0, "a head's rotary part is as wide as qk_rope_head_dim"),
)  # fmt: skip

DOTS1 = DEEPSEEK_V3.but(
    prefix="Dots1", classes=BARE, attention=d.grouped_attention, v=size("vocab_size", 152064), d=size("hidden_size", 4608),
    f=size("intermediate_size", 10944), l=layers("num_hidden_layers", 62), n=size("num_attention_heads", 32),
    k=size("num_key_value_heads", 32, null=lambda r: r.n), h=size("head_dim", split_head), r=derived(lambda r: r.h),
    qk_norm=RMSNorm(), c=None, q=None, p=None, u=None, w=size("sliding_window", 4096, null=None),
    full_first=size("max_window_layers", 62, least=0), windows=by_type(after_some),
    e=size(("n_routed_experts", "num_local_experts"), without_default("n_routed_experts")),
    a=size("num_experts_per_tok", without_default("num_experts_per_tok")),
    n_shared=size("n_shared_experts", without_default("n_shared_experts"), least=0),
    f_expert=size("moe_intermediate_size", 1408), renormalise=flag("norm_topk_prob", False),
    dense_first=size("first_k_dense_replace", 0, least=0), predictors=0,
)  # fmt: skip

HY_V3 = mixture(LLAMA).but(
    prefix="HYV3", classes=BARE, v=size("vocab_size", 120832), f=size("intermediate_size", 13312),
    l=layers("num_hidden_layers", 80), n=size("num_attention_heads", 64), k=size("num_key_value_heads", 8),
    h=size("head_dim", 128), qk_norm=RMSNorm(), always_normed=fixed("qk_norm", True, "Hy3 norms queries and keys"),
    e=size(("num_experts", "num_local_experts"), 192), a=size("num_experts_per_tok", 8), expert=d.without_bias,
    f_expert=size("moe_intermediate_size", 1536), n_shared=size("num_shared_experts", 1, least=0),
    # none is one as wide as a dense layer
    f_shared=derived(lambda r: r.f_expert * r.n_shared or r.f), score="sigmoid", sparse=first_dense, dense_first=as_listed,
)  # fmt: skip

# -- without shared experts, or with one -----------------------------------------------------------------------------------

QWEN3_VL_MOE_TEXT = QWEN3_MOE.but(
    prefix="Qwen3VLMoe", classes=("TextModel",), f=size("intermediate_size", 5632), n=size("num_attention_heads", 16),
    k=size("num_key_value_heads", 16, null=lambda r: r.n), windows=full_everywhere, w=None, w_field=None, sliding=None,
    full_first=None, e=size(("num_experts", "num_local_experts"), 60), a=size("num_experts_per_tok", 4),
    f_expert=size("moe_intermediate_size", 1408), renormalise=True,
    always_renormalised=fixed("norm_topk_prob", True, "Qwen3-VL divides the chosen experts' weights by their sum"),
)  # fmt: skip

PHIMOE = mixture(LLAMA).but(
    prefix="Phimoe", classes=SEQUENCE, v=size("vocab_size", 32064), f=size("intermediate_size", 6400),
    k=size("num_key_value_heads", 8, null=lambda r: r.n), h=size("head_dim", split_head), norm=LayerNorm(), mlp_bias=False,
    head_bias=flag("lm_head_bias", False), w=size("sliding_window", None, null=None), windows=window_everywhere,
    e=size("num_local_experts", 16), a=fixed("num_experts_per_tok", 2, "its router, SparseMixer, chooses two"),
    renormalise=False,
)  # fmt: skip

def _turned(r: Reading) -> int:
    """``rotary_dim`` of a file that names no part of a head, in whole pairs."""
    inner = r.config.get("rope_scaling") or r.config.get("rope_parameters") or {}
    told = any("partial_rotary_factor" in place for place in (r.config, inner))
    found = int(r.rotated if told else r.rotated_field)
    return found + found % 2


MINIMAX_M2 = mixture(LLAMA).but(
    prefix="MiniMaxM2", classes=BARE, v=size("vocab_size", 200064), d=size("hidden_size", 3072),
    f=size("intermediate_size", 1536), l=layers("num_hidden_layers", 62), n=size("num_attention_heads", 48),
    k=size("num_key_value_heads", 8), h=size("head_dim", 128), rotated=rotated(1.0),
    rotated_field=size("rotary_dim", lambda r: r.rotated, null=lambda r: r.rotated), r=derived(_turned),
    qkv_bias=False, mlp_bias=False, qk_norm=HeadsNorm(),
    always_normed=fixed("use_qk_norm", True, "MiniMax-M2 norms queries and keys"),
    normed_at_once=fixed("qk_norm_type", "per_layer", "MiniMax-M2 norms all heads at once"),
    e=size(("num_local_experts", "num_experts"), 256), a=size("num_experts_per_tok", 8), score="sigmoid",
)  # fmt: skip

FLEX_OLMO = OLMOE.but(
    prefix="FlexOlmo", wiring=d.behind, v=size("vocab_size", 100352), d=size("hidden_size", 4096),
    f=size("intermediate_size", 11008), l=layers("num_hidden_layers", 32), n=size("num_attention_heads", 32),
    h=size("head_dim", split_head), clip=None, e=size(("num_experts", "num_local_experts"), 7),
    a=size("num_experts_per_tok", 5),
)  # fmt: skip

GRANITEMOE = mixture(GRANITE).but(
    prefix="GraniteMoe", mlp_bias=False, e=size("num_local_experts", 8), a=size("num_experts_per_tok", 2),
    score="softmax_of_chosen", renormalise=False,
)  # fmt: skip

GRANITEMOESHARED = GRANITEMOE.but(prefix="GraniteMoeShared", f_shared=size("shared_intermediate_size", 0, least=0))

FAMILIES = {
    "deepseek_v2": DEEPSEEK_V2, "deepseek_v3": DEEPSEEK_V3, "dots1": DOTS1, "flex_olmo": FLEX_OLMO, "glm4_moe": GLM4_MOE,
    "glm4_moe_lite": GLM4_MOE_LITE, "glm4v_moe_text": GLM4V_MOE_TEXT, "gpt_oss": GPT_OSS, "granitemoe": GRANITEMOE,
    "granitemoeshared": GRANITEMOESHARED, "hy_v3": HY_V3, "minimax_m2": MINIMAX_M2, "mixtral": MIXTRAL, "olmoe": OLMOE,
    "phimoe": PHIMOE, "qwen2_moe": QWEN2_MOE, "qwen3_moe": QWEN3_MOE, "qwen3_vl_moe_text": QWEN3_VL_MOE_TEXT,
}  # fmt: skip
