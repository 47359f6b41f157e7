"""Small configs drawn at random, for any family: sizes all different and mostly prime, flags and optional fields drawn too.

A field is drawn by its name, in whatever family it stands (``FIELDS``); what one family does otherwise stands in
``FAMILY``. A family that is in neither is drawn by the names its config class has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import transformers
from hypothesis import strategies as st
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()  # it warns of class defaults of its own

ABSENT = object()
"""The field is left out of the config."""


class Sizes(NamedTuple):
    """One draw of all letters. Names ending in ``_2`` are another stack's."""

    k: int  # key-value heads
    g: int  # query heads a key-value head
    h: int  # head width
    wide: bool  # the head width stands in its own field, and is not d / n
    x: int  # d / n when it is not the head width
    f: int
    f_2: int
    f_expert: int
    v: int
    m: int
    m_2: int
    l: int
    l_2: int
    groups: int  # groups of experts
    e_group: int  # experts a group
    choice: int  # decides how many are active
    w: int
    c: int
    q: int
    p: int
    r: int
    u: int

    n = property(lambda self: self.g * self.k)
    d = property(lambda self: self.n * (self.x if self.wide else self.h))
    e = property(lambda self: self.groups * self.e_group)
    a = property(lambda self: 1 + self.choice % self.e)


def _of(*values: Any) -> Any:
    return st.sampled_from(values)


SIZES = dict(
    k=_of(1, 2, 3), g=_of(1, 2, 3, 5), h=_of(6, 10, 14, 22), x=_of(7, 11, 13), f=_of(47, 53, 59), f_2=_of(61, 67, 71),
    f_expert=_of(17, 19, 23), v=_of(101, 103, 107, 109), m=_of(73, 79), m_2=_of(83, 89), l=_of(1, 2, 3, 4), l_2=_of(1, 2, 3, 4),
    groups=_of(1, 2), e_group=_of(3, 4, 5), choice=st.integers(0, 9), w=st.integers(1, 17), c=_of(29, 31), q=_of(37, 41),
    p=_of(9, 15, 21), r=_of(4, 12, 20), u=_of(5, 7, 11),
)  # fmt: skip

Draw = Callable[[Any], Any]
"""Hypothesis's ``draw``."""

yes_or_no = st.booleans()


def maybe(strategy: Any) -> Any:
    """What is drawn, or the field is left out."""
    return st.just(ABSENT) | strategy


def null_or(letter: str) -> Callable[..., Any]:
    """null, or the letter."""
    return lambda draw, s, config: getattr(s, letter) if draw(yes_or_no) else None


def key_value_heads(draw: Draw, s: Sizes, config: dict[str, Any]) -> int | None:
    """k; with as many as query heads null too where the config class takes that."""
    takes_null = getattr(CONFIG_MAPPING[config["model_type"]], "num_key_value_heads", None) is None
    return None if s.k == s.n and takes_null and draw(yes_or_no) else s.k


def head_width(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """h, or nothing where d / n is meant; null only where the config class has the field."""
    declared = hasattr(CONFIG_MAPPING[config["model_type"]], "head_dim")
    return s.h if s.wide else draw(_of(ABSENT, None) if declared else st.just(ABSENT))


def window(draw: Draw, s: Sizes, config: dict[str, Any]) -> int | None:
    """w, or null in families where no layer's kind asks for a window by default."""
    listed = "layer_types" in CONFIG_MAPPING[config["model_type"]]().to_dict()
    return s.w if listed and "use_sliding_window" not in config else null_or("w")(draw, s, config)


def layer_types(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A kind of attention a layer, or nothing; windows where there is one."""
    windows = config.get("use_sliding_window", True) is True and config["sliding_window"] is not None
    words = ("full_attention", "sliding_attention") if windows else ("full_attention",)
    return draw(maybe(st.lists(st.sampled_from(words), min_size=s.l, max_size=s.l)))


def labels(draw: Draw, s: Sizes, config: dict[str, Any]) -> int:
    """Classes; an answer has two ends."""
    return 2 if "QuestionAnswering" in str(config["architectures"]) else draw(_of(2, 3, 5))


def names(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A name a class, mostly without ``num_labels``, which goes before."""
    if not draw(yes_or_no):
        return ABSENT
    count = config["num_labels"] if draw(yes_or_no) else config.pop("num_labels")
    return {str(i): f"class {i}" for i in range(count)}


def rotated(default: float) -> Any:
    """Rotary parameters that name the part of a head that is rotated, which is *default* when they do not."""
    rest = {"rope_type": "default", "rope_theta": 1e4}
    return maybe(_of(default, 0.5, 1.0).map(lambda part: {**rest, "partial_rotary_factor": part}))


def global_and_local(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """GPT-Neo's kinds of attention: words, and how often they stand; nothing where there is already a word a layer."""
    words = draw(st.lists(_of("global", "local"), min_size=s.l, max_size=s.l))
    if draw(yes_or_no):
        config["attention_layers"] = words
        return ABSENT
    return draw(_of([[words, 1]], [[[word], 1] for word in words], [[["local"], s.l]]))


def if_new(new: Any, old: Any) -> Callable[..., Any]:
    """One of Falcon's two architectures decides."""
    return lambda draw, s, config: draw(new(s) if config["new_decoder_architecture"] is True else old(s))


def unless_wide(strategy: Any) -> Callable[..., Any]:
    """Drawn only where heads are d / n wide."""
    return lambda draw, s, config: ABSENT if s.wide else draw(strategy)


# By field: a letter, a strategy, or a function of (draw, sizes, the config so far). In the order in which they are drawn.
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("vocab_size",), "v"),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), "d"),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "ffn_hidden_size"), "f"),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), "l"),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), "n"),
    "num_key_value_heads": key_value_heads, "num_kv_heads": key_value_heads, "head_dim": head_width, "d_kv": "h",
    "n_inner": null_or("f"), "decoder_ffn_dim": "f_2", "decoder_layers": "l_2", "decoder_attention_heads": "g",
    "num_decoder_layers": null_or("l_2"),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions"), "m"),
    "max_source_positions": _of(13, 17), "num_mel_bins": _of(3, 7), "type_vocab_size": _of(1, 2, 3),
    "relative_attention_num_buckets": _of(8, 10, 12),
    "kv_lora_rank": "c", "q_lora_rank": null_or("q"), "qk_nope_head_dim": "p", "qk_rope_head_dim": "r", "v_head_dim": "u",
    **dict.fromkeys(("n_routed_experts", "num_local_experts", "num_experts"), "e"),
    "num_experts_per_tok": "a", "n_group": "groups", "topk_group": lambda draw, s, config: draw(st.integers(1, s.groups)),
    "moe_intermediate_size": "f_expert", "shared_expert_intermediate_size": "f_2", "n_shared_experts": maybe(_of(0, 1, 2)),
    "first_k_dense_replace": lambda draw, s, config: draw(st.integers(0, s.l)),
    "decoder_sparse_step": maybe(_of(1, 2, 3)),
    "mlp_only_layers": lambda draw, s, config: draw(maybe(st.lists(st.integers(0, s.l - 1), unique=True))),
    "use_sliding_window": yes_or_no, "sliding_window": window, "window_size": "w",
    "max_window_layers": lambda draw, s, config: draw(st.integers(0, s.l + 1)),
    "layer_types": layer_types, "num_labels": labels, "id2label": names,
    "image_size": _of(24, 30, [24, 30]), "patch_size": _of(6), "num_channels": _of(1, 3), "pad_token_id": st.just(0),
    **dict.fromkeys((
        "tie_word_embeddings", "attention_bias", "mlp_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias", "norm_topk_prob",
        "use_parallel_residual", "qk_layernorm", "use_qk_norm", "parallel_attn", "new_decoder_architecture", "multi_query",
        "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "scale_embedding",
    ), maybe(yes_or_no)),
    "hidden_act": maybe(_of("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")),
    "hidden_activation": maybe(_of("silu", "gelu_pytorch_tanh", "relu")),
    "activation_function": maybe(_of("gelu", "gelu_new", "relu")),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), maybe(st.none() | _of(30.0))),
}  # fmt: skip

tied_alone = {"tie_word_embeddings": maybe(st.just(True))}
clipped = {"clip_qkv": maybe(_of(None, 6.0))}
latent = {"num_key_value_heads": "n", "head_dim": None, "layer_types": None}
eighths = _of(8, 24, 40)

# By family, what is drawn otherwise, and first; None leaves a field to its default. A letter redraws a size.
FAMILY: dict[str, dict[str, Any]] = {
    "albert": {
        **tied_alone, "embedding_size": "c", "inner_group_num": maybe(_of(1, 2)),
        "num_hidden_groups": lambda draw, s, config: draw(maybe(st.integers(1, s.l))),
    },
    "bart": tied_alone,
    "bert": tied_alone,
    "deepseek_v2": {
        **latent, "n_shared_experts": maybe(_of(1, 2)), "topk_method": maybe(_of("greedy", "group_limited_greedy")),
    },
    "deepseek_v3": latent,
    "falcon": {
        "new_decoder_architecture": yes_or_no, "num_kv_heads": if_new(lambda s: st.just(s.k), lambda s: st.just(s.n)),
        "parallel_attn": if_new(lambda s: maybe(st.just(True)), lambda s: maybe(yes_or_no)), "alibi": maybe(yes_or_no),
        "num_ln_in_parallel_attn": if_new(lambda s: maybe(_of(None, 1, 2)), lambda s: st.just(ABSENT)),
        "activation": maybe(_of("gelu", "relu")),
    },
    "gemma3_text": {"attn_logit_softcapping": None, "sliding_window_pattern": maybe(_of(1, 2, 3))},
    "glm4_moe": {"h": eighths, "rope_parameters": rotated(0.5)},
    "gpt_neo": {"attention_types": global_and_local, "intermediate_size": null_or("f")},
    "gpt_neox": {"h": eighths, "rope_parameters": rotated(0.25)},
    "gptj": {"rotary_dim": _of(2, 4, 6)},
    "mpt": {"attn_config": maybe(_of({"clip_qkv": 6.0}, {"attn_type": "multihead_attention", "alibi": True}))},
    "olmo": clipped,
    "olmoe": clipped,
    "opt": {"word_embed_proj_dim": maybe(_of(5, 9)), "_remove_final_layer_norm": maybe(yes_or_no)},
    "phi": {"h": eighths, "rope_parameters": rotated(0.5), "qk_layernorm": unless_wide(maybe(yes_or_no))},
    "qwen2_moe": {"sliding_window": "w"},
    "roberta": tied_alone,
    "stablelm": {"h": eighths, "rope_parameters": rotated(0.25)},
    "t5": {"feed_forward_proj": maybe(_of("relu", "gelu", "gated-gelu", "gated-silu"))},
    "vit": {"pooler_output_size": null_or("c")},
}  # fmt: skip


def fields_of(kind: str, read: frozenset[str]) -> dict[str, Any]:
    """The fields that are drawn for a family, with what they are drawn from: those its class has, and a head width if read."""
    known = {*CONFIG_MAPPING[kind]().to_dict(), "num_labels", *({"head_dim"} & read)}
    own = {field: rule for field, rule in FAMILY.get(kind, {}).items() if field not in SIZES}
    return own | {field: rule for field, rule in FIELDS.items() if field in known and field not in own}


@st.composite
def configs(draw: Draw, kind: str, architectures: tuple[str, ...], read: frozenset[str]) -> dict[str, Any]:
    """A small config of the family, of its usual class (the first) or one of the others.

    *read* are the fields that the reader reads: where it knows two names of one, either may stand.
    """
    own, fields = FAMILY.get(kind, {}), fields_of(kind, read)
    letters = {letter: draw(own.get(letter, strategy)) for letter, strategy in SIZES.items()}
    default = getattr(CONFIG_MAPPING[kind], "head_dim", None)
    wide = fields.get("head_dim") is not None and (isinstance(default, int) or draw(yes_or_no))
    s = Sizes(**letters, wide=wide)
    usual, *others = architectures
    classes = st.none() | st.sampled_from([[usual], *([[name] for name in others])])
    config = {"model_type": kind, "architectures": draw(classes)}
    for field, rule in fields.items():
        if isinstance(rule, str):
            config[field] = getattr(s, rule)
        elif rule is not None:
            config[field] = rule(draw, s, config) if callable(rule) else draw(rule)
    for other, field in CONFIG_MAPPING[kind].attribute_map.items():
        if other in read and field in config and draw(yes_or_no):
            config[other] = config.pop(field)
    return {field: value for field, value in config.items() if value is not ABSENT}
