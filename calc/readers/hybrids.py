"""Decoders with linear attention in most layers and full attention in some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..blocks.linear_attention import GatedDeltaNet
from ..blocks.norm import RMSNorm
from . import decoder as d
from .config import Reading, derived, each_layer, fixed, flag, layers, size
from .family import BARE, CAUSAL, even, rotated, sparse_everywhere
from .llama import LLAMA
from .mixtures import EVERY_NTH, mixture


def gated_attention(r: Reading, window: Any, rotary: bool) -> Any:
    """The gated delta rule, or attention with a gated output."""
    if window != "linear":
        return replace(d.grouped_attention(r, window, rotary), output_gate=True)
    r.check_divides("n_linear", "k_linear")
    return GatedDeltaNet(n=r.n_linear, k=r.k_linear, h=r.h_linear, u=r.u_linear, g=r.g, act=r.act)


def every_fourth_full(r: Reading) -> list[str | None]:
    """Full attention in every fourth layer (or what ``full_attention_interval`` says), linear attention in the others."""
    return ["linear" if (i + 1) % r.interval else None for i in range(r.l)]


# Gated DeltaNet and gated attention over a feed-forward, norms as Gemma's.
QWEN3_5 = LLAMA.but(
    prefix="Qwen3_5", classes=(*BARE[:1], "TextModel", "TextForSequenceClassification"), attention=gated_attention,
    v=size("vocab_size", 248320), f=size("intermediate_size", 12288), n=size("num_attention_heads", 16),
    k=size("num_key_value_heads", 4), h=size("head_dim", 256), rotated=rotated(0.25), r=derived(even), mlp_bias=False,
    norm=RMSNorm(offset=True), qk_norm=RMSNorm(offset=True),
    always_gated=fixed("attn_output_gate", True, "attention has a gated output"),
    interval=size("full_attention_interval", 4),
    windows=each_layer("layer_types", {"full_attention": None, "linear_attention": "linear"}, every_fourth_full),
    n_linear=size("linear_num_value_heads", 32), k_linear=size("linear_num_key_heads", 16),
    h_linear=size("linear_key_head_dim", 128), u_linear=size("linear_value_head_dim", 128), g=size("linear_conv_kernel_dim", 4),
)  # fmt: skip

QWEN3_5_MOE = mixture(QWEN3_5).but(
    prefix="Qwen3_5Moe", classes=(*BARE[:1], "TextModel"), d=size("hidden_size", 2048), f=None,
    l=layers("num_hidden_layers", 40), k=size("num_key_value_heads", 2), e=size("num_experts", 256),
    a=size("num_experts_per_tok", 8), f_expert=size("moe_intermediate_size", 512),
    f_shared=size("shared_expert_intermediate_size", 512), shared_gate=True, sparse=sparse_everywhere,
)  # fmt: skip

QWEN3_NEXT = QWEN3_5_MOE.but(
    prefix="Qwen3Next", classes=CAUSAL, v=size("vocab_size", 151936), f=size("intermediate_size", 5632),
    l=layers("num_hidden_layers", 48), e=size("num_experts", 512), a=size("num_experts_per_tok", 10),
    renormalise=flag("norm_topk_prob", True), **EVERY_NTH,
)  # fmt: skip

FAMILIES = {"qwen3_5_moe_text": QWEN3_5_MOE, "qwen3_5_text": QWEN3_5, "qwen3_next": QWEN3_NEXT}
