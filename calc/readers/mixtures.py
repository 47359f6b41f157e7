"""Decoders whose feed-forwards are mixtures of experts."""

from __future__ import annotations

from typing import NoReturn

from ..blocks.norm import HeadsNorm, RMSNorm
from . import decoder as d
from .config import Reading, derived, fixed, flag, indices, layers, number, size
from .family import (
    BARE,
    SEQUENCE,
    TOKEN,
    Family,
    alternating,
    alternating_at_first,
    by_type,
    even,
    rotated,
    sparse_everywhere,
    split_head,
    window_everywhere,
)
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3


def mixture(family: Family) -> Family:
    """The family with a plain mixture in every layer, experts as wide as its feed-forward was."""
    return family.but(
        sparse=sparse_everywhere, expert=d.feed_forward, f_expert=derived(lambda r: r.f), f_shared=None, shared_gate=False,
        router_bias=False, score="softmax", renormalise=True,
    )  # fmt: skip


# Mixtures in every ``decoder_sparse_step``-th layer but in those of ``mlp_only_layers``.
EVERY_NTH = dict(
    every=size("decoder_sparse_step", 1), dense_layers=indices("mlp_only_layers", frozenset()),
    sparse=derived(lambda r: [i not in r.dense_layers and (i + 1) % r.every == 0 for i in range(r.l)]),
)  # fmt: skip


def no_default(r: Reading) -> NoReturn:
    """DeepSeek-V2 has no number of active experts unless the config says one."""
    raise r.refuse("num_experts_per_tok", "a whole number: this family has no default")


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
    a=size("num_experts_per_tok", no_default), f_expert=size("moe_intermediate_size", 1407),
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

FAMILIES = {
    "deepseek_v2": DEEPSEEK_V2, "deepseek_v3": DEEPSEEK_V3, "glm4_moe": GLM4_MOE, "gpt_oss": GPT_OSS, "mixtral": MIXTRAL,
    "olmoe": OLMOE, "qwen2_moe": QWEN2_MOE, "qwen3_moe": QWEN3_MOE,
}  # fmt: skip
