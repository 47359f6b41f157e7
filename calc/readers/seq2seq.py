"""Encoder-decoders: T5 with its biases by distance, BART and Whisper with theirs on every matrix."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import LayerNorm, RMSNorm
from ..blocks.position import LearnedPositions
from .config import Reading, derived, fixed, flag, layers, size, word
from .encoder_decoder import biased_encoder_decoder, norm_before, norm_behind, relative_encoder_decoder
from .family import ACTIVATIONS, Family

T5_ACTIVATIONS = {
    name: (gated, ACTIVATIONS["gelu_new" if name == "gated-gelu" else word])
    for word in ("relu", "gelu", "gelu_new", "silu")
    for name, gated in ((word, False), (f"gated-{word}", True))
}


def _as_many(r: Reading) -> int:
    """As many layers in the decoder as ``num_layers`` says: by that name alone, for so it is in transformers."""
    return int(r.l if r.config.get("num_layers") is not None else r.usual_l)


T5 = Family(relative_encoder_decoder, MappingProxyType(dict(
    prefix="T5", also=("n_positions", "tie_word_embeddings"), classes=("ForConditionalGeneration", "Model", "EncoderModel"),
    v=size("vocab_size", 32128), d=size(("d_model", "hidden_size"), 512), h=size(("d_kv", "head_dim"), 64),
    f=size("d_ff", 2048), l=layers(("num_layers", "num_hidden_layers"), 6),
    usual_l=6, l_decoder=layers("num_decoder_layers", _as_many, null=_as_many),
    n=size(("num_heads", "num_attention_heads"), 8), buckets=size("relative_attention_num_buckets", 32),
    forward_words=word("feed_forward_proj", "relu", {name: name for name in T5_ACTIVATIONS}),
    gated=derived(lambda r: T5_ACTIVATIONS[r.forward_words][0]), act=derived(lambda r: T5_ACTIVATIONS[r.forward_words][1]),
    mlp_bias=False, norm=RMSNorm(), tied=True,  # whatever the file says: transformers 5 always ties T5
)))  # fmt: skip


def _learned(r: Reading) -> LearnedPositions:
    """Learned positions, and two rows that no position has."""
    return LearnedPositions(m=r.m + 2, reserved=2)


BART = Family(biased_encoder_decoder, MappingProxyType(dict(
    prefix="Bart", also=("is_decoder",),
    classes=("ForConditionalGeneration", "Model", "ForSequenceClassification", "ForQuestionAnswering"),
    v=size("vocab_size", 50265), d=size(("d_model", "hidden_size"), 1024),
    l=layers(("encoder_layers", "num_hidden_layers"), 12), n=size(("encoder_attention_heads", "num_attention_heads"), 16),
    f=size("encoder_ffn_dim", 4096), l_decoder=layers("decoder_layers", 12), n_decoder=size("decoder_attention_heads", 16),
    f_decoder=size("decoder_ffn_dim", 4096), gated=False, mlp_bias=True, act=word("activation_function", "gelu", ACTIVATIONS),
    k_bias=True, norm=LayerNorm(), residual=norm_behind, embedding_norm=LayerNorm(), final_norm=None, frames=None,
    m=size("max_position_embeddings", 1024), position=derived(_learned),
    tied=fixed("tie_word_embeddings", True, "untied, transformers stores a fourth token table that nothing reads"),
    behind=fixed("normalize_before", False, "BART has its norms behind its branches"),
    no_final_norm=fixed("add_final_layer_norm", False, "BART has no norm behind its stacks"),
    normed=fixed("normalize_embedding", True, "BART norms its embeddings"),
    learned=fixed("static_position_embeddings", False, "BART's positions are learned"),
)))  # fmt: skip

WHISPER = BART.but(
    prefix="Whisper", also=(), classes=("ForConditionalGeneration", "Model"), v=size("vocab_size", 51865),
    d=size(("d_model", "hidden_size"), 384), l=layers(("encoder_layers", "num_hidden_layers"), 4),
    n=size(("encoder_attention_heads", "num_attention_heads", "num_key_value_heads"), 6), f=size("encoder_ffn_dim", 1536),
    l_decoder=layers("decoder_layers", 4), n_decoder=size("decoder_attention_heads", 6),
    f_decoder=size("decoder_ffn_dim", 1536), k_bias=False, residual=norm_before, embedding_norm=None, final_norm=LayerNorm(),
    frames=size("max_source_positions", 1500), channels=size("num_mel_bins", 80), m=size("max_target_positions", 448),
    position=derived(lambda r: LearnedPositions(m=r.m)), tied=flag("tie_word_embeddings", True),
    behind=None, no_final_norm=None, normed=None, learned=None,
)  # fmt: skip

FAMILIES = {"bart": BART, "t5": T5, "whisper": WHISPER}
