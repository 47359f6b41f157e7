"""Decoders whose feed-forwards are mixtures of experts."""

from __future__ import annotations

from . import decoder as d
from .config import derived, fixed, flag, indices, layers, size
from .family import sparse_everywhere, split_head, window_everywhere
from .llama import LLAMA, MISTRAL, QWEN3

MIXTRAL = MISTRAL.but(
    prefix="Mixtral", w=size("sliding_window", None, null=None), sparse=sparse_everywhere,
    e=size(("num_local_experts", "num_experts"), 8), a=size("num_experts_per_tok", 2),
    f_expert=derived(lambda r: r.f), f_shared=None, score="softmax", renormalise=True,
)  # fmt: skip

QWEN3_MOE = QWEN3.but(
    prefix="Qwen3Moe", d=size("hidden_size", 2048), f=size("intermediate_size", 6144), l=layers("num_hidden_layers", 24),
    k=size("num_key_value_heads", 4, null=lambda r: r.n), h=size("head_dim", split_head, null=split_head),
    windows=window_everywhere, e=size(("num_experts", "num_local_experts"), 128), a=size("num_experts_per_tok", 8),
    f_expert=size("moe_intermediate_size", 768), f_shared=None, score="softmax",
    always_normed=fixed("use_qk_norm", True, "Qwen3 norms queries and keys"),
    renormalise=flag("norm_topk_prob", False), every=size("decoder_sparse_step", 1),
    dense_layers=indices("mlp_only_layers", frozenset()),
    sparse=derived(lambda r: [i not in r.dense_layers and (i + 1) % r.every == 0 for i in range(r.l)]),
)  # fmt: skip

DEEPSEEK_V3 = LLAMA.but(
    prefix="DeepseekV3", attention=d.latent_attention, v=size("vocab_size", 129280), d=size("hidden_size", 7168),
    f=size("intermediate_size", 18432), l=layers("num_hidden_layers", 61), n=size("num_attention_heads", 128),
    c=size("kv_lora_rank", 512), q=size("q_lora_rank", 1536, null=None), p=size("qk_nope_head_dim", 128),
    r=size("qk_rope_head_dim", 64), u=size("v_head_dim", 128), mlp_bias=False,
    e=size(("n_routed_experts", "num_local_experts"), 256), a=size("num_experts_per_tok", 8),
    f_expert=size("moe_intermediate_size", 2048), n_shared=size("n_shared_experts", 1, null=0, least=0),
    f_shared=derived(lambda r: r.f_expert * r.n_shared), score="sigmoid", renormalise=flag("norm_topk_prob", True),
    dense_first=size("first_k_dense_replace", 3, least=0), every=fixed("moe_layer_freq", 1, "every layer after the first is a mixture"),
    sparse=derived(lambda r: [i >= r.dense_first for i in range(r.l)]),
)  # fmt: skip

FAMILIES = {"deepseek_v3": DEEPSEEK_V3, "mixtral": MIXTRAL, "qwen3_moe": QWEN3_MOE}
