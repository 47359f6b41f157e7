"""BERT and its like: encoders alone."""

from __future__ import annotations

from types import MappingProxyType

from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions
from .config import derived, fixed, flag, layers, size, word
from .encoder import encoder
from .family import ACTIVATIONS, Family

BERT = Family(encoder, MappingProxyType(dict(
    prefix="Bert", also=(), classes=("ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    v=size("vocab_size", 30522), d=size("hidden_size", 768), l=layers("num_hidden_layers", 12),
    n=size("num_attention_heads", 12), f=size("intermediate_size", 3072), gated=False, mlp_bias=True,
    act=word("hidden_act", "gelu", ACTIVATIONS), tied=flag("tie_word_embeddings", True), norm=LayerNorm(),
    m=size("max_position_embeddings", 512), types=size("type_vocab_size", 2),
    position=derived(lambda r: LearnedPositions(m=r.m)),
    one_way=fixed("is_decoder", False, "BERT read here is an encoder"),
    alone=fixed("add_cross_attention", False, "BERT read here is an encoder alone"),
    absolute=fixed("position_embedding_type", "absolute", "relative position embeddings are not read"),
)))  # fmt: skip

FAMILIES = {"bert": BERT}
