"""LLaMA and the dense decoders that are LLaMA with a few changes: pre-norm RMSNorm, rotary positions, gated feed-forward."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import HeadsNorm, LayerNorm, RMSNorm
from . import decoder as d
from .config import derived, fixed, flag, layers, number, size, word
from .family import (
    ACTIVATIONS,
    BARE,
    CAUSAL,
    NO_TABLE,
    SEQUENCE,
    TOKEN,
    Family,
    after_some,
    alternating,
    by_type,
    dense_everywhere,
    even,
    every_nth_full,
    full_everywhere,
    full_head,
    rotary_everywhere,
    rotated,
    split_head,
    window_everywhere,
)
from .heads import token_bias

LLAMA = Family(d.decoder, MappingProxyType(dict(
    prefix="Llama", classes=CAUSAL, also=NO_TABLE, attention=d.grouped_attention, wiring=d.pre_norm,
    v=size("vocab_size", 32000), d=size("hidden_size", 4096), f=size("intermediate_size", 11008),
    l=layers("num_hidden_layers", 32), n=size("num_attention_heads", 32),
    k=size("num_key_value_heads", lambda r: r.n, null=lambda r: r.n),
    h=size("head_dim", split_head, null=split_head), r=full_head,
    act=word("hidden_act", "silu", ACTIVATIONS), gated=True, tied=flag("tie_word_embeddings", False),
    norm=RMSNorm(), final_norm=derived(lambda r: r.norm), embedding_norm=None, position=None,
    narrow=None, alibi=False, cached_whole=False, token_bias=derived(token_bias),
    qkv_bias=flag("attention_bias", False), o_bias=derived(lambda r: r.qkv_bias),
    mlp_bias=flag("mlp_bias", False), head_bias=False, qk_norm=None, norm_last=False, clip=None, sinks=False,
    softcap=None, logit_softcap=None, windows=full_everywhere, local_rotary=False, sparse=dense_everywhere, predictors=0,
    rotaries=rotary_everywhere,
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

PHI3 = LLAMA.but(
    prefix="Phi3", classes=TOKEN, v=size("vocab_size", 32064), d=size("hidden_size", 3072),
    f=size("intermediate_size", 8192), h=size("head_dim", split_head), rotated=rotated(1.0), r=derived(even),
    qkv_bias=False, mlp_bias=False, w=size("sliding_window", None, null=None), windows=window_everywhere,
)  # fmt: skip

GRANITE = LLAMA.but(prefix="Granite", classes=BARE, h=size("head_dim", split_head))

# -- Gemma: tied, gains of 1 + w, heads wider than d/n ------------------------------------------------------------------

GEMMA = LLAMA.but(
    prefix="Gemma", classes=TOKEN, also=(*NO_TABLE, "hidden_activation"), v=size("vocab_size", 256000),
    d=size("hidden_size", 3072), f=size("intermediate_size", 24576), l=layers("num_hidden_layers", 28),
    n=size("num_attention_heads", 16), k=size("num_key_value_heads", 16), h=size("head_dim", 256), mlp_bias=False,
    act=word("hidden_act", "gelu_pytorch_tanh", {**ACTIVATIONS, "gelu": ACTIVATIONS["gelu_pytorch_tanh"]}),
    norm=RMSNorm(offset=True), tied=flag("tie_word_embeddings", True),
    both_ways=fixed("use_bidirectional_attention", False, "Gemma read here is causal"),
)  # fmt: skip

GEMMA2 = GEMMA.but(
    prefix="Gemma2", also=NO_TABLE, wiring=d.sandwich, d=size("hidden_size", 2304), f=size("intermediate_size", 9216),
    l=layers("num_hidden_layers", 26), n=size("num_attention_heads", 8), k=size("num_key_value_heads", 4),
    act=word("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS),
    softcap=number("attn_logit_softcapping", 50.0), logit_softcap=number("final_logit_softcapping", 30.0),
    w=size("sliding_window", 4096, null=None), windows=by_type(alternating),
)  # fmt: skip

GEMMA3 = GEMMA2.but(
    prefix="Gemma3", classes=("ForCausalLM", "TextModel", "TextForSequenceClassification"), v=size("vocab_size", 262208),
    qk_norm=RMSNorm(offset=True), softcap=None, logit_softcap=number("final_logit_softcapping", None),
    unused=number("attn_logit_softcapping", None),  # transformers reads it and caps nothing
    w=size("sliding_window", 4096), pattern=size("sliding_window_pattern", 6), windows=by_type(every_nth_full),
    local_rotary=True,
)  # fmt: skip

# -- LayerNorm, and no norm's gain --------------------------------------------------------------------------------------

STABLELM = LLAMA.but(
    prefix="StableLm", classes=TOKEN, v=size("vocab_size", 50304), d=size("hidden_size", 2560),
    f=size("intermediate_size", 6912), k=size("num_key_value_heads", 32), h=derived(split_head), r=rotated(0.25),
    norm=LayerNorm(), qkv_bias=flag("use_qkv_bias", False), o_bias=False, mlp_bias=False,
    head_norms=flag("qk_layernorm", False), parallel=flag("use_parallel_residual", False),
    qk_norm=derived(lambda r: LayerNorm(bias=False, heads=True) if r.head_norms else None),
    wiring=derived(lambda r: d.parallel if r.parallel else d.pre_norm),
)  # fmt: skip

STARCODER2 = LLAMA.but(
    prefix="Starcoder2", classes=TOKEN, v=size("vocab_size", 49152), d=size("hidden_size", 3072),
    f=size("intermediate_size", 12288), l=layers("num_hidden_layers", 30), n=size("num_attention_heads", 24),
    k=size("num_key_value_heads", 2), norm=LayerNorm(), gated=False, qkv_bias=flag("use_bias", True),
    mlp_bias=derived(lambda r: r.qkv_bias), act=word("hidden_act", "gelu_pytorch_tanh", ACTIVATIONS),
    tied=flag("tie_word_embeddings", True), w=size("sliding_window", None, null=None), windows=window_everywhere,
)  # fmt: skip

COHERE = LLAMA.but(
    prefix="Cohere", classes=BARE, wiring=d.parallel, v=size("vocab_size", 256000), d=size("hidden_size", 8192),
    f=size("intermediate_size", 22528), l=layers("num_hidden_layers", 40), n=size("num_attention_heads", 64),
    h=size("head_dim", split_head), norm=LayerNorm(bias=False), mlp_bias=False, tied=flag("tie_word_embeddings", True),
    head_norms=flag("use_qk_norm", False, null=False),
    qk_norm=derived(lambda r: LayerNorm(bias=False, heads=True) if r.head_norms else None),
)  # fmt: skip

OLMO = LLAMA.but(
    prefix="Olmo", classes=SEQUENCE, v=size("vocab_size", 50304), h=size("head_dim", split_head), mlp_bias=False,
    norm=LayerNorm(gain=False, bias=False), clip=number("clip_qkv", None),
)  # fmt: skip

OLMO2 = OLMO.but(prefix="Olmo2", wiring=d.behind, norm=RMSNorm(), qk_norm=HeadsNorm(), clip=None)

NANOCHAT = LLAMA.but(
    prefix="NanoChat", classes=BARE, v=size("vocab_size", 50304), d=size("hidden_size", 768),
    f=size("intermediate_size", 8192), l=layers("num_hidden_layers", 12), n=size("num_attention_heads", 6),
    h=size("head_dim", split_head), gated=False, mlp_bias=False, act=word("hidden_act", "relu2", ACTIVATIONS),
    norm=RMSNorm(gain=False), embedding_norm=RMSNorm(gain=False), qk_norm=RMSNorm(gain=False), norm_last=True,
    logit_softcap=number("final_logit_softcapping", 15.0),
)  # fmt: skip

FAMILIES = {
    "cohere": COHERE, "gemma": GEMMA, "gemma2": GEMMA2, "gemma3_text": GEMMA3, "granite": GRANITE, "llama": LLAMA,
    "mistral": MISTRAL, "nanochat": NANOCHAT, "olmo": OLMO, "olmo2": OLMO2, "phi3": PHI3, "qwen2": QWEN2, "qwen3": QWEN3,
    "stablelm": STABLELM, "starcoder2": STARCODER2,
}  # fmt: skip
