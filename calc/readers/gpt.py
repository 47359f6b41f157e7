"""GPT-2 and the decoders of its time: LayerNorm with biases, plain feed-forward."""

from __future__ import annotations

from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions
from .config import derived, fixed, flag, layers, size, word
from .family import ACTIVATIONS, split_head
from .llama import LLAMA

GPT2 = LLAMA.but(
    prefix="GPT2", classes=("LMHeadModel", "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    v=size("vocab_size", 50257), d=size(("n_embd", "hidden_size"), 768), l=layers(("n_layer", "num_hidden_layers"), 12),
    n=size(("n_head", "num_attention_heads"), 12), k=derived(lambda r: r.n), h=derived(split_head), r=None,
    f=size("n_inner", lambda r: 4 * r.d, null=lambda r: 4 * r.d), gated=False,
    act=word("activation_function", "gelu_new", ACTIVATIONS), tied=flag("tie_word_embeddings", True),
    norm=LayerNorm(), qkv_bias=True, mlp_bias=True, m=size(("n_positions", "max_position_embeddings"), 1024),
    position=derived(lambda r: LearnedPositions(m=r.m)),
    alone=fixed("add_cross_attention", False, "GPT-2 read here is a decoder alone"),
)  # fmt: skip

FAMILIES = {"gpt2": GPT2}
