"""T5 and its like: encoder-decoders."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import RMSNorm
from .config import derived, layers, size, word
from .encoder_decoder import relative_encoder_decoder
from .family import ACTIVATIONS, Family

T5_ACTIVATIONS = {
    name: (gated, ACTIVATIONS["gelu_new" if name == "gated-gelu" else word])
    for word in ("relu", "gelu", "gelu_new", "silu")
    for name, gated in ((word, False), (f"gated-{word}", True))
}

T5 = Family(relative_encoder_decoder, MappingProxyType(dict(
    prefix="T5", also=("n_positions", "tie_word_embeddings"), classes=("ForConditionalGeneration", "Model", "EncoderModel"),
    v=size("vocab_size", 32128), d=size(("d_model", "hidden_size"), 512), h=size(("d_kv", "head_dim"), 64),
    f=size("d_ff", 2048), l=layers(("num_layers", "num_hidden_layers"), 6),
    l_decoder=layers("num_decoder_layers", lambda r: r.l, null=lambda r: r.l),
    n=size(("num_heads", "num_attention_heads"), 8), buckets=size("relative_attention_num_buckets", 32),
    forward_words=word("feed_forward_proj", "relu", {name: name for name in T5_ACTIVATIONS}),
    gated=derived(lambda r: T5_ACTIVATIONS[r.forward_words][0]), act=derived(lambda r: T5_ACTIVATIONS[r.forward_words][1]),
    mlp_bias=False, norm=RMSNorm(), tied=True,  # whatever the file says: transformers 5 always ties T5
)))  # fmt: skip

FAMILIES = {"t5": T5}
