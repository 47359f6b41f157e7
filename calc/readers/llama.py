"""LLaMA and the dense decoders that are LLaMA with a few changes: pre-norm RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import RMSNorm
from . import decoder as d
from .config import derived, fixed, flag, layers, number, size, word
from .family import (
    ACTIVATIONS,
    CAUSAL,
    NO_TABLE,
    Family,
    after_some,
    alternating,
    by_type,
    dense_everywhere,
    full_everywhere,
    full_head,
    split_head,
    window_everywhere,
)

LLAMA = Family(d.decoder, MappingProxyType(dict(
    prefix="Llama", classes=CAUSAL, also=NO_TABLE, attention=d.grouped_attention, wiring=d.pre_norm,
    v=size("vocab_size", 32000), d=size("hidden_size", 4096), f=size("intermediate_size", 11008),
    l=layers("num_hidden_layers", 32), n=size("num_attention_heads", 32),
    k=size("num_key_value_heads", lambda r: r.n, null=lambda r: r.n),
    h=size("head_dim", split_head, null=split_head), r=full_head,
    act=word("hidden_act", "silu", ACTIVATIONS), gated=True, tied=flag("tie_word_embeddings", False),
    norm=RMSNorm(), final_norm=derived(lambda r: r.norm), embedding_norm=None, position=None,
    qkv_bias=flag("attention_bias", False), o_bias=derived(lambda r: r.qkv_bias),
    mlp_bias=flag("mlp_bias", False), head_bias=False, qk_norm=None,
    softcap=None, logit_softcap=None, windows=full_everywhere, sparse=dense_everywhere,
)))  # fmt: skip

MISTRAL = LLAMA.but(
    prefix="Mistral", f=size("intermediate_size", 14336), k=size("num_key_value_heads", 8, null=lambda r: r.n),
    w=size("sliding_window", 4096, null=None), windows=window_everywhere, qkv_bias=False, mlp_bias=False,
)  # fmt: skip

QWEN2 = LLAMA.but(
    prefix="Qwen2", v=size("vocab_size", 151936), f=size("intermediate_size", 22016),
    k=size("num_key_value_heads", 32, null=lambda r: r.n), h=size("head_dim", split_head),
    qkv_bias=True, o_bias=False, mlp_bias=False, always_biased=fixed("attention_bias", True, "Qwen2 has biases on q, k and v"),
    sliding=flag("use_sliding_window", False), full_first=size("max_window_layers", 28, least=0),
    w=derived(lambda r: r.w_field if r.sliding else None), w_field=size("sliding_window", 4096, null=None),
    windows=by_type(after_some),
)  # fmt: skip

QWEN3 = QWEN2.but(
    prefix="Qwen3", h=size("head_dim", 128), qkv_bias=flag("attention_bias", False),
    o_bias=derived(lambda r: r.qkv_bias), always_biased=None, qk_norm=RMSNorm(),
)  # fmt: skip

GEMMA2 = LLAMA.but(
    prefix="Gemma2", wiring=d.sandwich, v=size("vocab_size", 256000), d=size("hidden_size", 2304),
    f=size("intermediate_size", 9216), l=layers("num_hidden_layers", 26), n=size("num_attention_heads", 8),
    k=size("num_key_value_heads", 4), h=size("head_dim", 256), mlp_bias=False,
    act=word("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS), tied=flag("tie_word_embeddings", True),
    softcap=number("attn_logit_softcapping", 50.0), logit_softcap=number("final_logit_softcapping", 30.0),
    w=size("sliding_window", 4096, null=None), windows=by_type(alternating),
    both_ways=fixed("use_bidirectional_attention", False, "Gemma 2 read here is causal"),
)  # fmt: skip

FAMILIES = {
    "gemma2": GEMMA2, "llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen3": QWEN3,
}  # fmt: skip
