"""What is drawn for the families with convolutions and state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drawn_sizes import ABSENT, Draw, Sizes, maybe, of, yes_or_no
from hypothesis import strategies as st


def some(word: str, *others: str) -> Callable[..., Any]:
    """One of the words a layer, the first in some: transformers cannot decode without any attention."""

    def drawn(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
        return draw(st.lists(of(word, *others), min_size=s.l, max_size=s.l).filter(lambda found: word in found))

    return drawn


def attention_at(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """LFM2's layers of attention, by a word a layer, by their numbers, or all."""
    if draw(yes_or_no):
        config["layer_types"] = some("full_attention", "conv")(draw, s, config)
    return draw(maybe(st.lists(st.integers(0, s.l - 1), min_size=1, unique=True)))


def block_width(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """f by its usual name, or by LFM2's own."""
    config["block_ff_dim" if draw(yes_or_no) else "intermediate_size"] = s.f
    return config.get("intermediate_size", ABSENT)


short = {
    "conv_L_cache": of(2, 3, 4, 5), "conv_bias": maybe(yes_or_no), "tie_embedding": maybe(yes_or_no),
    "tie_word_embeddings": None,
}  # fmt: skip

hybrid = {
    "mamba_n_heads": "n", "mamba_n_groups": "k", "mamba_d_state": of(5, 7, 9), "mamba_d_conv": of(2, 3, 4, 5),
    "mamba_expand": maybe(of(1, 2, 3)), "mamba_chunk_size": of(2, 3, 5, 16), "mamba_d_head": maybe(st.just("auto")),
    "mamba_conv_bias": maybe(yes_or_no), "mamba_proj_bias": maybe(yes_or_no),
}  # fmt: skip
channels = {
    "expand": of(1, 2, 3), "intermediate_size": maybe(of(19, 23)), "state_size": of(5, 7, 9), "conv_kernel": of(2, 3, 4, 5),
    "time_step_rank": maybe(of("auto", 3)), "use_conv_bias": maybe(yes_or_no),
}  # fmt: skip

STATES: dict[str, dict[str, Any]] = {
    "bamba": {
        **hybrid,
        "attn_layer_indices": lambda draw, s, config: draw(st.lists(st.integers(0, s.l - 1), min_size=1, unique=True)),
    },
    "falcon_h1": {
        **hybrid, "mamba_d_ssm": lambda draw, s, config: s.n * s.u if draw(yes_or_no) else None,
        "projectors_bias": maybe(yes_or_no), "mamba_rms_norm": maybe(yes_or_no), "mamba_norm_before_gate": maybe(yes_or_no),
    },
    "granitemoehybrid": {
        **hybrid, "layer_types": some("full_attention", "linear_attention", "attention", "mamba"),
        "num_local_experts": lambda draw, s, config: s.e if draw(yes_or_no) else 0, "shared_intermediate_size": "f_2",
        "position_embedding_type": maybe(of(None, "rope", "nope")),
    },
    "falcon_mamba": channels,
    "jamba": {
        **{field: rule for field, rule in hybrid.items() if field.split("_")[1] in ("d", "expand", "conv", "proj")},
        "mamba_d_head": None, "mamba_dt_rank": maybe(of("auto", 3)), "attn_layer_period": of(1, 2),
        "attn_layer_offset": st.just(0), "expert_layer_period": of(1, 2), "expert_layer_offset": st.just(0),
        "num_experts": lambda draw, s, config: draw(of(1, s.e)), "num_experts_per_tok": "a",
    },
    "lfm2": {
        **short, "layer_types": None, "full_attn_idxs": attention_at,
        "block_ffn_dim_multiplier": maybe(of(1, 0.7, 1.3)), "block_multiple_of": of(4, 8),
        "block_auto_adjust_ff_dim": maybe(yes_or_no), "intermediate_size": block_width,
    },
    "lfm2_moe": {**short, "layer_types": some("full_attention", "conv"), "num_dense_layers": maybe(of(0, 1, 2))},
    "mamba": channels,
    "mamba2": {
        "expand": of(1, 2, 3), "num_heads": "n", "head_dim": lambda draw, s, config: config["expand"] * s.d // s.n,
        "n_groups": "k", "state_size": of(5, 7, 9), "conv_kernel": of(2, 3, 4, 5), "chunk_size": of(2, 3, 5, 16),
        "use_conv_bias": maybe(yes_or_no), "residual_in_fp32": maybe(yes_or_no),
    },
    "nemotron_h": {
        "layers_block_type": some("full_attention", "linear_attention", "moe", "mlp", "mamba", "attention"),
        "num_hidden_layers": None, "mamba_num_heads": "n", "mamba_head_dim": "u", "n_groups": "k",
        "ssm_state_size": of(5, 7, 9), "conv_kernel": of(2, 3, 4, 5), "chunk_size": of(2, 3, 5, 16),
        "use_conv_bias": maybe(yes_or_no), "head_dim": "h", "num_key_value_heads": "k",
        "moe_latent_size": lambda draw, s, config: draw(of(None, s.c)),
        "moe_shared_expert_intermediate_size": "f_2", "mlp_hidden_act": maybe(of("relu2", "silu")),
        "mamba_hidden_act": maybe(of("silu", "gelu")),
        "mlp_bias": lambda draw, s, config: draw(maybe(yes_or_no)) if config["moe_latent_size"] is None else ABSENT,
    },
}  # fmt: skip
