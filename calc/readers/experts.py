"""Mixtures with fields, layers or routers of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..blocks.attention import Attention
from ..blocks.norm import LayerNorm, RMSNorm
from . import decoder as d
from .config import Reading, Rule, derived, each_layer, fixed, flag, indices, inside, layers, number, size, word
from .dense import EXAONE4, HUNYUAN, SMOLLM3, by_interval
from .family import ACTIVATIONS, BARE, NO_TABLE, split_head
from .llama import LLAMA
from .mixtures import by_kind, mixture

# -- Llama 4: chunks where a layer rotates, every expert on every token -----------------------------------------------------


def chunked_attention(r: Reading, chunk: int | None, rotary: bool) -> Attention:
    """Attention within chunks, or to all; queries and keys that are rotated are normed behind it, without a gain."""
    return replace(
        d.grouped_attention(r, None, rotary), chunk=chunk, norm_last=True,
        qk_norm=RMSNorm(gain=False) if rotary and r.head_norms else None,
    )  # fmt: skip


def _listed_chunk(r: Reading) -> int:
    if r.w is None:
        raise r.refuse("attention_chunk_size", "a whole number, for layer_types has chunks")
    return int(r.w)


def _every_nth(r: Reading) -> frozenset[int]:
    if not r.every:
        raise r.refuse("interleave_moe_layer_step", "a whole number from 1, or a list moe_layers")
    return frozenset(range(r.every - 1, r.l, r.every))


def _if_mixtures(r: Reading) -> int:
    """The least number of experts: none where no layer is a mixture."""
    return int(any(r.sparse))


def _rotary_layers(r: Reading) -> Any:
    """The layers that rotate, no more of them listed than there are layers; an empty list is none."""
    found = r.config.get("no_rope_layers")
    if found == []:
        return by_interval(r)
    if isinstance(found, list) and len(found) > r.l:
        raise r.refuse("no_rope_layers", f"a list of {r.l} entries, one a layer (num_hidden_layers)")
    return SMOLLM3.knobs["rotaries"].read(r)


LLAMA4_TEXT = mixture(LLAMA).but(
    prefix="Llama4", classes=("ForCausalLM", "TextModel"), attention=chunked_attention, v=size("vocab_size", 202048),
    d=size("hidden_size", 5120), f=size("intermediate_size_mlp", 16384), l=layers("num_hidden_layers", 48),
    n=size("num_attention_heads", 40), k=size("num_key_value_heads", 8, null=lambda r: r.n),
    h=size("head_dim", 128, null=split_head), mlp_bias=False, head_norms=flag("use_qk_norm", True),
    interval=size("no_rope_layer_interval", 4), rotaries=Rule(("no_rope_layers",), _rotary_layers),
    w=size("attention_chunk_size", 8192, null=None),
    windows=each_layer(
        "layer_types", {"full_attention": None, "chunked_attention": _listed_chunk},
        lambda r: [r.w if rotary else None for rotary in r.rotaries],
    ),
    e=size("num_local_experts", 16, least=_if_mixtures), a=size("num_experts_per_tok", 1, least=_if_mixtures),
    f_expert=size("intermediate_size", 8192), f_shared=derived(lambda r: r.f_expert), every_expert=True,
    every=size("interleave_moe_layer_step", 1, least=0), mixtures=indices("moe_layers", _every_nth),
    sparse=derived(lambda r: [i in r.mixtures for i in range(r.l)]),
)  # fmt: skip

# -- DBRX: its attention's and its experts' fields in objects of their own --------------------------------------------------


def of_attention(rule: Rule) -> Rule:
    """A field of ``attn_config``."""
    return inside("attn_config", rule)


def of_experts(rule: Rule) -> Rule:
    """A field of ``ffn_config``."""
    return inside("ffn_config", rule)


def _chosen(r: Reading) -> Any:
    """The active experts, not more than there are."""
    e, a = size("moe_num_experts", 4).read(r), size("moe_top_k", 1).read(r)
    if a > e:
        raise r.refuse("moe_top_k", f"at most moe_num_experts = {e}")
    return a


DBRX = mixture(LLAMA).but(
    prefix="Dbrx", classes=BARE, also=(*NO_TABLE, "max_seq_len", "num_key_value_heads"),  # the last a copy of kv_n_heads
    d=size("d_model", 2048), l=layers(("n_layers", "num_hidden_layers"), 24),
    n=size(("n_heads", "num_attention_heads"), 16), h=derived(split_head), k=of_attention(size("kv_n_heads", 1)),
    clip=of_attention(number("clip_qkv", None)), qkv_bias=False, mlp_bias=False, norm=LayerNorm(bias=False),
    tied=fixed("tie_word_embeddings", False, "transformers ties no DBRX"),
    act=of_experts(inside("ffn_act_fn", word("name", "silu", ACTIVATIONS))), f=of_experts(size("ffn_hidden_size", 3584)),
    e=of_experts(size("moe_num_experts", 4)), a=of_experts(Rule(("moe_top_k",), _chosen)),
    norm_of_weights=of_experts(number("moe_normalize_expert_weights", 1.0)),
    renormalise=derived(lambda r: r.norm_of_weights is not None),
)  # fmt: skip

# -- Hunyuan: numbers that may be lists, one a layer ------------------------------------------------------------------------


def same_everywhere(fields: tuple[str, ...], default: Any) -> Rule:
    """A whole number, or a list with the same one for each layer."""
    one = size(fields, default)

    def read(r: Reading) -> Any:
        field, found = r.find(fields)
        if not isinstance(found, list):
            return one.read(r)
        if len(found) != r.l or any(type(entry) is not int or entry != found[0] for entry in found):
            raise r.refuse(field, f"a number, or a list with the same one for each of the {r.l} layers")
        return one.read(Reading(r.knobs, {field: found[0]}, r.where))

    return Rule(fields, read)


def _as_wide(r: Reading) -> None:
    if same_everywhere(("moe_intermediate_size",), 1).read(r) != r.f:
        raise r.refuse("moe_intermediate_size", f"intermediate_size = {r.f}: transformers reads only that")


def _one_shared(r: Reading) -> None:
    if same_everywhere(("num_shared_expert",), 1).read(r) != 1:
        raise r.refuse("num_shared_expert", "1: transformers builds one")


HUNYUAN_MOE = mixture(HUNYUAN).but(
    prefix="HunYuanMoEV1", e=size(("num_experts", "num_local_experts"), 1),
    a=same_everywhere(("moe_topk", "num_experts_per_tok"), 1), f_shared=derived(lambda r: r.f),
    as_wide=Rule(("moe_intermediate_size",), _as_wide), one_shared=Rule(("num_shared_expert",), _one_shared),
    own_keys=fixed("use_cla", False, "keys and values that layers share are not read"),
    always_renormalised=fixed("norm_topk_prob", True, "transformers divides the chosen experts' weights by their sum"),
)  # fmt: skip

# -- EXAONE 4 with norms before the branches --------------------------------------------------------------------------------

EXAONE_MOE = mixture(EXAONE4).but(
    prefix="ExaoneMoe", classes=BARE, wiring=d.pre_norm, w=size("sliding_window", 4096), e=size("num_experts", 64),
    a=size("num_experts_per_tok", 8), f_expert=size("moe_intermediate_size", 1024),
    n_shared=size("num_shared_experts", 1, least=0), f_shared=derived(lambda r: r.f_expert * r.n_shared), score="sigmoid",
    renormalise=flag("norm_topk_prob", True), dense_first=size("first_k_dense_replace", 1, least=0),
    sparse=by_kind(lambda r: [i >= r.dense_first for i in range(r.l)]),
)  # fmt: skip

# -- ERNIE 4.5 --------------------------------------------------------------------------------------------------------------

ERNIE4_5 = LLAMA.but(
    prefix="Ernie4_5", classes=BARE, v=size("vocab_size", 103424), d=size("hidden_size", 1024),
    f=size("intermediate_size", 3072), l=layers("num_hidden_layers", 18), n=size("num_attention_heads", 16),
    k=size("num_key_value_heads", 2, null=lambda r: r.n), h=size("head_dim", 128, null=split_head),
    tied=flag("tie_word_embeddings", True), qkv_bias=flag("use_bias", False), mlp_bias=derived(lambda r: r.qkv_bias),
)  # fmt: skip


def _last_mixture(r: Reading) -> int:
    found = size("moe_layer_end_index", -1, least=-1).read(r)
    return int(r.l - 1 if found == -1 else found)


ERNIE4_5_MOE = mixture(ERNIE4_5).but(
    prefix="Ernie4_5_Moe", d=size("hidden_size", 2560), f=size("intermediate_size", 12288), l=layers("num_hidden_layers", 28),
    n=size("num_attention_heads", 20), k=size("num_key_value_heads", 4), h=size("head_dim", split_head),
    head_bias=derived(lambda r: r.qkv_bias), e=size(("moe_num_experts", "num_experts"), 64),
    a=size(("moe_k", "num_experts_per_tok"), 6), expert=d.without_bias, f_expert=size("moe_intermediate_size", 1536),
    n_shared=size("moe_num_shared_experts", 2, least=0), f_shared=derived(lambda r: r.f_expert * r.n_shared), choice_bias=True,
    first=size("moe_layer_start_index", 1, least=0), last=Rule(("moe_layer_end_index",), _last_mixture),
    every=size("moe_layer_interval", 1),
    sparse=derived(lambda r: [(i + 1) % r.every == 0 and r.first <= i <= r.last for i in range(r.l)]),
)  # fmt: skip

FAMILIES = {
    "dbrx": DBRX, "ernie4_5": ERNIE4_5, "ernie4_5_moe": ERNIE4_5_MOE, "exaone_moe": EXAONE_MOE, "hunyuan_v1_moe": HUNYUAN_MOE,
    "llama4_text": LLAMA4_TEXT,
}  # fmt: skip
