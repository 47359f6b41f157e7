"""Encoder-decoders: T5 with its biases by distance, BART and Whisper with theirs on every matrix."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import LayerNorm, RMSNorm
from ..blocks.position import LearnedPositions, Sinusoidal
from .config import Reading, Rule, derived, fixed, flag, layers, size, word
from .encoder_decoder import (
    biased_encoder_decoder,
    frames,
    norm_before,
    norm_behind,
    own_tokens,
    relative_encoder_decoder,
    same_tokens,
)
from .family import ACTIVATIONS, Family

FEED_FORWARDS = {
    name: (gated, "gelu_new" if name == "gated-gelu" else act)
    for act in ("relu", "gelu", "gelu_new", "silu")
    for name, gated in ((act, False), (f"gated-{act}", True))
}
"""What ``feed_forward_proj`` says: whether there is a gate, and the activation. Fields of their own go before it."""


def _as_many(r: Reading) -> int:
    """As many layers in the decoder as ``num_layers`` says: by that name alone, for so it is in transformers."""
    return int(r.l if r.config.get("num_layers") is not None else r.usual_l)


T5 = Family(relative_encoder_decoder, MappingProxyType(dict(
    prefix="T5", also=("n_positions", "tie_word_embeddings"), classes=("ForConditionalGeneration", "Model", "EncoderModel"),
    v=size("vocab_size", 32128), d=size(("d_model", "hidden_size"), 512), h=size(("d_kv", "head_dim"), 64),
    f=size("d_ff", 2048), l=layers(("num_layers", "num_hidden_layers"), 6),
    usual_l=6, l_decoder=layers("num_decoder_layers", _as_many, null=_as_many),
    n=size(("num_heads", "num_attention_heads"), 8), buckets=size("relative_attention_num_buckets", 32),
    forward_words=word("feed_forward_proj", "relu", FEED_FORWARDS),
    gated=flag("is_gated_act", lambda r: r.forward_words[0], null=False),
    act=word("dense_act_fn", lambda r: r.forward_words[1], ACTIVATIONS),
    each_layer=False, mlp_bias=False, norm=RMSNorm(), tied=True,  # whatever the file says: transformers 5 always ties T5
)))  # fmt: skip

MT5 = T5.but(
    prefix="MT5", v=size("vocab_size", 250112), f=size("d_ff", 1024), l=layers(("num_layers", "num_hidden_layers"), 8),
    usual_l=8, n=size(("num_heads", "num_attention_heads"), 6),
    forward_words=word("feed_forward_proj", "gated-gelu", FEED_FORWARDS),
)  # fmt: skip

UMT5 = MT5.but(prefix="UMT5", each_layer=True)


def _learned(r: Reading) -> LearnedPositions:
    """Learned positions, and two rows that no position has."""
    return LearnedPositions(m=r.m + 2, reserved=2)


def _wired(name: str, *, before: bool, final: bool, normed: bool, sines: bool) -> dict[str, Rule]:
    """Fields of old files that say what the class does in any case."""
    return {
        "before": fixed("normalize_before", before, f"{name} has its norms {'before' if before else 'behind'} its branches"),
        "final": fixed("add_final_layer_norm", final, f"{name} has {'a' if final else 'no'} norm behind its stacks"),
        "normed": fixed("normalize_embedding", normed, f"{name} {'norms' if normed else 'does not norm'} its embeddings"),
        "sines": fixed("static_position_embeddings", sines, f"{name}'s positions are {'fixed' if sines else 'learned'}"),
    }


BART = Family(biased_encoder_decoder, MappingProxyType(dict(
    prefix="Bart", also=("is_decoder",),
    classes=("ForConditionalGeneration", "Model", "ForSequenceClassification", "ForQuestionAnswering"),
    v=size("vocab_size", 50265), d=size(("d_model", "hidden_size"), 1024),
    l=layers(("encoder_layers", "num_hidden_layers"), 12), n=size(("encoder_attention_heads", "num_attention_heads"), 16),
    f=size("encoder_ffn_dim", 4096), l_decoder=layers("decoder_layers", 12), n_decoder=size("decoder_attention_heads", 16),
    f_decoder=size("decoder_ffn_dim", 4096), gated=False, mlp_bias=True, act=word("activation_function", "gelu", ACTIVATIONS),
    k_bias=True, norm=LayerNorm(), residual=norm_behind, embedding_norm=LayerNorm(), final_norm=None,
    v_decoder=derived(lambda r: r.v), source=same_tokens,
    m=size("max_position_embeddings", 1024), position=derived(_learned),
    usual_labels=3,
    tied=fixed("tie_word_embeddings", True, "untied, transformers stores a fourth token table that nothing reads"),
    **_wired("BART", before=False, final=False, normed=True, sines=False),
)))  # fmt: skip

MBART = BART.but(
    prefix="MBart", usual_labels=2, residual=norm_before, final_norm=LayerNorm(),
    **_wired("MBART", before=True, final=True, normed=True, sines=False),
)  # fmt: skip

BLENDERBOT = MBART.but(
    prefix="Blenderbot", classes=("ForConditionalGeneration", "Model"), v=size("vocab_size", 8008),
    d=size(("d_model", "hidden_size"), 2560), l=layers(("encoder_layers", "num_hidden_layers"), 2),
    n=size(("encoder_attention_heads", "num_attention_heads"), 32), f=size("encoder_ffn_dim", 10240),
    l_decoder=layers("decoder_layers", 24), n_decoder=size("decoder_attention_heads", 32),
    f_decoder=size("decoder_ffn_dim", 10240), embedding_norm=None, m=size("max_position_embeddings", 128),
    position=derived(lambda r: LearnedPositions(m=r.m)),
    **_wired("Blenderbot", before=True, final=True, normed=False, sines=False),
)  # fmt: skip

BLENDERBOT_SMALL = BART.but(
    prefix="BlenderbotSmall", classes=("ForConditionalGeneration", "Model"), d=size(("d_model", "hidden_size"), 512),
    l=layers(("encoder_layers", "num_hidden_layers"), 8), f=size("encoder_ffn_dim", 2048),
    l_decoder=layers("decoder_layers", 8), f_decoder=size("decoder_ffn_dim", 2048), m=size("max_position_embeddings", 512),
    position=derived(lambda r: LearnedPositions(m=r.m)),
)  # fmt: skip

PEGASUS = MBART.but(
    prefix="Pegasus", classes=("ForConditionalGeneration", "Model"), embedding_norm=None,
    position=derived(lambda r: Sinusoidal(m=r.m)),
    **_wired("Pegasus", before=True, final=True, normed=False, sines=True),
)  # fmt: skip

M2M_100 = PEGASUS.but(
    prefix="M2M100", v=size("vocab_size", 128112), act=word("activation_function", "relu", ACTIVATIONS),
    position=Sinusoidal(), **_wired("M2M100", before=True, final=True, normed=False, sines=True),
)  # fmt: skip

MARIAN = BART.but(
    prefix="Marian", classes=("MTModel", "Model"), v=size("vocab_size", 58101), embedding_norm=None,
    position=derived(lambda r: Sinusoidal(m=r.m)), tied=flag("tie_word_embeddings", True),
    shared=flag("share_encoder_decoder_embeddings", True), second_v=size("decoder_vocab_size", None, null=None),
    v_decoder=derived(lambda r: r.v if r.shared else r.second_v or r.v), source=own_tokens,
    **_wired("Marian", before=False, final=False, normed=False, sines=True),
)  # fmt: skip

WHISPER = BART.but(
    prefix="Whisper", also=(), classes=("ForConditionalGeneration", "Model"), v=size("vocab_size", 51865),
    d=size(("d_model", "hidden_size"), 384), l=layers(("encoder_layers", "num_hidden_layers"), 4),
    n=size(("encoder_attention_heads", "num_attention_heads", "num_key_value_heads"), 6), f=size("encoder_ffn_dim", 1536),
    l_decoder=layers("decoder_layers", 4), n_decoder=size("decoder_attention_heads", 6),
    f_decoder=size("decoder_ffn_dim", 1536), k_bias=False, residual=norm_before, embedding_norm=None, final_norm=LayerNorm(),
    source=frames, frames=size("max_source_positions", 1500), channels=size("num_mel_bins", 80),
    m=size("max_target_positions", 448), position=derived(lambda r: LearnedPositions(m=r.m)),
    tied=flag("tie_word_embeddings", True), before=None, final=None, normed=None, sines=None,
)  # fmt: skip

FAMILIES = {
    "bart": BART, "blenderbot": BLENDERBOT, "blenderbot-small": BLENDERBOT_SMALL, "m2m_100": M2M_100, "marian": MARIAN,
    "mbart": MBART, "mt5": MT5, "pegasus": PEGASUS, "t5": T5, "umt5": UMT5, "whisper": WHISPER,
}  # fmt: skip
