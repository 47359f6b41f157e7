"""Small configs drawn at random, for any family: sizes all different and mostly prime, flags and optional fields drawn too.

A field is drawn by its name, in whatever family it stands (``FIELDS``); what one family does otherwise stands in
``FAMILY``. A family that is in neither is drawn by the names its config class has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers
from drawn_sizes import ABSENT, SIZES, Draw, Sizes, maybe, null_or, yes_or_no
from drawn_sizes import of as _of
from drawn_states import STATES
from hypothesis import strategies as st
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()  # it warns of class defaults of its own


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


def linear_or_full(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """Linear or full attention in each layer, or how often the full one stands, or nothing. transformers asks a full one how
    long the cache is, and so serves no model without any."""
    if draw(yes_or_no):
        if s.l < 4 or draw(yes_or_no):
            config["full_attention_interval"] = draw(st.integers(1, s.l))
        return draw(_of(ABSENT, None))
    words = draw(st.lists(_of("linear_attention", "full_attention"), min_size=s.l, max_size=s.l))
    words[draw(st.integers(0, s.l - 1))] = "full_attention"
    return words


def layer_types_if_no_window(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A kind of attention a layer, or nothing where there is a window."""
    found = layer_types(draw, s, config)
    return ["full_attention"] * s.l if found is ABSENT and config["sliding_window"] is None else found


def chunks(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A kind of Llama 4's attention a layer, or nothing; chunks where they have a size."""
    words = ("full_attention", "chunked_attention") if config["attention_chunk_size"] is not None else ("full_attention",)
    return draw(maybe(st.lists(_of(*words), min_size=s.l, max_size=s.l)))


def dbrx_experts(draw: Draw, s: Sizes, config: dict[str, Any]) -> dict[str, Any]:
    """DBRX's object of its experts' fields."""
    act = draw(_of({}, {"ffn_act_fn": {"name": "gelu"}}))
    divided = draw(_of({}, {"moe_normalize_expert_weights": None}))
    return {"ffn_hidden_size": s.f, "moe_num_experts": s.e, "moe_top_k": s.a, **act, **divided}


def borrowers(draw: Draw, s: Sizes, config: dict[str, Any]) -> int:
    """How many of the last layers borrow keys and values: one of each mask stands before them."""
    masks = config["layer_types"] if config["layer_types"] is not ABSENT else CONFIG_MAPPING[config["model_type"]](
        num_hidden_layers=s.l
    ).layer_types
    last = ["full_attention"] if config["model_type"] == "gemma4_text" else masks[-1:]
    masks = [*masks[:-1], *last]
    return draw(st.sampled_from([n for n in range(s.l) if {*masks[: s.l - n]} == {*masks}]))


def layer_input(draw: Draw, s: Sizes, config: dict[str, Any]) -> int:
    """Entries of a layer's input, or none; transformers cannot run borrowers without."""
    return draw(_of(5, 9) if config["num_kv_shared_layers"] else _of(0, 5, 9))


def labels(draw: Draw, s: Sizes, config: dict[str, Any]) -> int:
    """Classes; an answer has two ends."""
    return 2 if "QuestionAnswering" in str(config["architectures"]) else draw(_of(2, 3, 5))


def names(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A name a class, mostly without ``num_labels``, which goes before."""
    if not draw(yes_or_no):
        return ABSENT
    count = config["num_labels"] if draw(yes_or_no) else config.pop("num_labels")
    return {str(i): f"class {i}" for i in range(count)}


def feed_forwards(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """A kind of feed-forward a layer, or nothing."""
    return draw(maybe(st.lists(_of("dense", "sparse"), min_size=s.l, max_size=s.l)))


def rotated(default: float) -> Any:
    """Rotary parameters that name the part of a head that is rotated, which is *default* when they do not."""
    rest = {"rope_type": "default", "rope_theta": 1e4}
    return maybe(_of(default, 0.5, 1.0).map(lambda part: {**rest, "partial_rotary_factor": part}))


def half_in_sections(draw: Draw, s: Sizes, config: dict[str, Any]) -> dict[str, Any]:
    """Half a head is rotated: its frequencies in the three sections of time, height and width."""
    sections = [s.h // 4 - 2, 1, 1] if s.h > 8 else [1, 1, 0]
    return {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}


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
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "ffn_hidden_size", "dff"), "f"),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), "l"),
    **dict.fromkeys((
        "num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads",
    ), "n"),
    "num_key_value_heads": key_value_heads, "num_kv_heads": key_value_heads, "head_dim": head_width, "d_kv": "h",
    "n_inner": null_or("f"), "decoder_ffn_dim": "f_2", "decoder_layers": "l_2", "decoder_attention_heads": "g",
    "num_decoder_layers": null_or("l_2"),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions"), "m"),
    "max_source_positions": _of(13, 17), "num_mel_bins": _of(3, 7), "type_vocab_size": _of(1, 2, 3),
    "relative_attention_num_buckets": _of(8, 10, 12),
    "linear_num_key_heads": "k", "linear_num_value_heads": "n", "linear_key_head_dim": "p", "linear_value_head_dim": "u",
    "linear_conv_kernel_dim": maybe(_of(1, 2, 3, 5)),
    "kv_lora_rank": "c", "q_lora_rank": null_or("q"), "qk_nope_head_dim": "p", "qk_rope_head_dim": "r", "v_head_dim": "u",
    **dict.fromkeys(("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"), "e"),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), "a"), "n_group": "groups",
    "topk_group": lambda draw, s, config: draw(st.integers(1, s.groups)),
    "moe_intermediate_size": "f_expert", "shared_expert_intermediate_size": "f_2", "mlp_layer_types": feed_forwards,
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), maybe(_of(0, 1, 2))),
    "shared_intermediate_size": _of(0, 73),
    "first_k_dense_replace": lambda draw, s, config: draw(st.integers(0, s.l)),
    "decoder_sparse_step": maybe(_of(1, 2, 3)),
    "mlp_only_layers": lambda draw, s, config: draw(maybe(st.lists(st.integers(0, s.l - 1), unique=True))),
    "use_sliding_window": yes_or_no, "sliding_window": window, "window_size": "w",
    "max_window_layers": lambda draw, s, config: draw(st.integers(0, s.l + 1)),
    "layer_types": layer_types, "num_labels": labels, "id2label": names,
    "image_size": _of(24, 30, [24, 30]), "patch_size": _of(6), "num_channels": _of(1, 3), "pad_token_id": st.just(0),
    **dict.fromkeys((
        "tie_word_embeddings", "attention_bias", "attention_out_bias", "mlp_bias", "qkv_bias", "use_qkv_bias", "use_bias",
        "bias", "norm_topk_prob", "use_parallel_residual", "qk_layernorm", "use_qk_norm", "parallel_attn", 
        "new_decoder_architecture", "multi_query",
        "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "scale_embedding", "lm_head_bias",
    ), maybe(yes_or_no)),
    "hidden_act": maybe(_of("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")),
    "hidden_activation": maybe(_of("silu", "gelu_pytorch_tanh", "relu")),
    "activation_function": maybe(_of("gelu", "gelu_new", "relu")),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), maybe(st.none() | _of(30.0))),
}  # fmt: skip

tied_alone = {"tie_word_embeddings": maybe(st.just(True))}
clipped = {"clip_qkv": maybe(_of(None, 6.0))}
latent = {"num_key_value_heads": "n", "head_dim": None, "layer_types": None}
forward_words = {
    "feed_forward_proj": maybe(_of("relu", "gelu", "gated-gelu", "gated-silu")), "is_gated_act": maybe(yes_or_no),
    "dense_act_fn": maybe(_of("relu", "gelu_new")),
}  # fmt: skip
without_rotation = {
    "no_rope_layers": lambda draw, s, config: draw(maybe(st.lists(_of(0, 1), min_size=s.l, max_size=s.l + 1))),
    "no_rope_layer_interval": maybe(_of(1, 2, 3)),
}  # fmt: skip
linear = {"layer_types": linear_or_full, "rope_parameters": rotated(0.25)}
eighths = _of(8, 24, 40)

quick = maybe(_of("quick_gelu", "gelu"))
squares = {"image_size": _of(24, 30), "patch_size": _of(6, 7)}


def texts(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """CLIP's encoder of texts."""
    widths = {"hidden_size": s.d, "num_attention_heads": s.n, "intermediate_size": s.f}
    return {"vocab_size": s.v, "num_hidden_layers": s.l, "max_position_embeddings": s.m, **widths}


def images(draw: Draw, s: Sizes, config: dict[str, Any]) -> Any:
    """CLIP's encoder of images."""
    widths = {"hidden_size": 2 * s.g * s.h, "num_attention_heads": 2 * s.g, "intermediate_size": s.f_2}
    return {**widths, "num_hidden_layers": s.l_2, **{field: draw(sizes) for field, sizes in squares.items()}}


# By family, what is drawn otherwise, and first; None leaves a field to its default. A letter redraws a size.
FAMILY: dict[str, dict[str, Any]] = {
    **STATES,
    "albert": {
        **tied_alone, "embedding_size": "c", "inner_group_num": maybe(_of(1, 2)),
        "num_hidden_groups": lambda draw, s, config: draw(maybe(st.integers(1, s.l))),
    },
    "bart": tied_alone,
    "bert": tied_alone,
    **dict.fromkeys(("blenderbot", "blenderbot-small", "nomic_bert", "xlm-roberta-xl"), tied_alone),
    "camembert": tied_alone,
    "codegen": {"h": _of(4, 8, 12), "rotary_dim": _of(2, 4)},
    "cohere2": {"sliding_window_pattern": maybe(_of(1, 2, 3))},
    "dbrx": {
        "num_key_value_heads": None, "tie_word_embeddings": None,
        "attn_config": lambda draw, s, config: {"kv_n_heads": s.k, "clip_qkv": 6.0, "rope_theta": 1e4},
        "ffn_config": dbrx_experts,
    },
    "clip": {"projection_dim": "q", "text_config": texts, "vision_config": images},
    "clip_text_model": {"projection_dim": "q", "hidden_act": quick},
    "clip_vision_model": {"projection_dim": "q", "hidden_act": quick, **squares},
    "deepseek_v2": {
        **latent, "n_shared_experts": maybe(_of(1, 2)), "topk_method": maybe(_of("greedy", "group_limited_greedy")),
    },
    "deepseek_v3": latent,
    "dinov2": {
        "image_size": _of(24, 30, [24, 24]), "mlp_ratio": maybe(_of(2, 3)),
        **dict.fromkeys(("use_swiglu_ffn", "use_mask_token"), maybe(yes_or_no)),
    },
    "distilbert": {
        "dim": "d", "hidden_dim": "f", "activation": maybe(_of("gelu", "relu", "silu")),
        "sinusoidal_pos_embds": maybe(st.just(False)),
    },
    "dots1": {"n_shared_experts": _of(0, 1, 2)},
    "electra": {"embedding_size": lambda draw, s, config: s.d if draw(yes_or_no) else s.c},
    "ernie4_5_moe": {
        "moe_layer_start_index": maybe(_of(0, 1, 2)), "moe_layer_end_index": maybe(_of(-1, 0, 1, 2)),
        "moe_layer_interval": maybe(_of(1, 2, 3)),
    },
    "exaone4": {
        "sliding_window": null_or("w"), "sliding_window_pattern": maybe(_of(1, 2, 3)), "layer_types": layer_types_if_no_window,
    },
    "exaone_moe": {"sliding_window_pattern": maybe(_of(1, 2, 3))},
    "falcon": {
        "new_decoder_architecture": yes_or_no, "num_kv_heads": if_new(lambda s: st.just(s.k), lambda s: st.just(s.n)),
        "parallel_attn": if_new(lambda s: maybe(st.just(True)), lambda s: maybe(yes_or_no)), "alibi": maybe(yes_or_no),
        "num_ln_in_parallel_attn": if_new(lambda s: maybe(_of(None, 1, 2)), lambda s: st.just(ABSENT)),
        "activation": maybe(_of("gelu", "relu")),
    },
    "gemma3_text": {"attn_logit_softcapping": None, "sliding_window_pattern": maybe(_of(1, 2, 3))},
    "glm": {"rope_parameters": rotated(0.5)},
    "glm4": {"rope_parameters": rotated(0.5)},
    "gemma3n_text": {
        "l": _of(1, 2, 3, 4, 5, 6, 11), "sliding_window": "w", "layer_types": layer_types, "num_kv_shared_layers": borrowers,
        "intermediate_size": lambda draw, s, config: draw(_of(s.f, [draw(_of(s.f, s.f_2)) for _ in range(s.l)])),
        "hidden_size_per_layer_input": _of(5, 9), "vocab_size_per_layer_input": _of(97, 113), "laurel_rank": "c",
        "altup_num_inputs": _of(2, 3, 5), "altup_active_idx": maybe(_of(0, 1)), "final_logit_softcapping": maybe(_of(30.0)),
        "activation_sparsity_pattern": lambda draw, s, config: draw(
            maybe(st.none() | st.lists(_of(0.0, 0.5, 0.95), min_size=s.l, max_size=s.l))
        ),
    },
    "gemma4_text": {
        "l": _of(1, 2, 3, 4, 5, 6), "sliding_window": "w", "layer_types": layer_types, "num_kv_shared_layers": borrowers,
        "hidden_size_per_layer_input": layer_input, "vocab_size_per_layer_input": _of(97, 113),
        "global_head_dim": maybe(_of(4, 8, 18)), "num_global_key_value_heads": maybe(st.none() | _of(1)),
        "enable_moe_block": maybe(yes_or_no), "top_k_experts": "a",
        **dict.fromkeys(("attention_k_eq_v", "use_double_wide_mlp"), maybe(yes_or_no)),
        "use_bidirectional_attention": maybe(_of(None, "vision")),
    },
    "glm4_moe": {"h": eighths, "rope_parameters": rotated(0.5)},
    "glm4_moe_lite": latent,
    "glm4v_moe_text": {"h": eighths, "rope_parameters": half_in_sections},
    "gpt_bigcode": {"num_key_value_heads": None},
    "gpt_neo": {"attention_types": global_and_local, "intermediate_size": null_or("f")},
    "gpt_neox": {"h": eighths, "rope_parameters": rotated(0.25)},
    "gptj": {"rotary_dim": _of(2, 4, 6)},
    "helium": {"x": _of(6, 10, 14), "head_dim": "x"},
    "hunyuan_v1_dense": {"head_dim": "h"},
    "hunyuan_v1_moe": {
        "head_dim": "h", "moe_topk": lambda draw, s, config: draw(_of(s.a, [s.a] * s.l)),
        "moe_intermediate_size": lambda draw, s, config: draw(_of(ABSENT, None, [s.f] * s.l)),
    },
    "internlm3": {"attention_bias": yes_or_no, "mlp_bias": lambda draw, s, config: config["attention_bias"]},
    "llama4_text": {
        **without_rotation,
        "no_rope_layers": lambda draw, s, config: draw(maybe(st.lists(_of(0, 1), min_size=s.l, max_size=s.l))),
        "intermediate_size_mlp": "f_2", "attention_chunk_size": null_or("w"), "layer_types": chunks,
        "interleave_moe_layer_step": maybe(_of(1, 2, 3)),
        "moe_layers": lambda draw, s, config: draw(maybe(st.none() | st.lists(st.integers(0, s.l - 1), unique=True))),
    },
    "m2m_100": tied_alone,
    "marian": {
        "share_encoder_decoder_embeddings": maybe(yes_or_no), "decoder_vocab_size": null_or("q"),
        "tie_word_embeddings": lambda draw, s, config: (
            draw(maybe(yes_or_no)) if config["share_encoder_decoder_embeddings"] is False else ABSENT
        ),
    },
    "mbart": tied_alone,
    "mt5": forward_words,
    "ministral": {"head_dim": "h"},
    "minimax_m2": {"rotary_dim": maybe(_of(2, 4, 6))},
    "modernbert": {
        "local_attention": maybe(st.integers(2, 17)), "global_attn_every_n_layers": maybe(_of(1, 2, 3)),
        "layer_types": lambda draw, s, config: draw(maybe(st.lists(
            _of("full_attention", "sliding_attention"), min_size=s.l, max_size=s.l
        ))),
        "classifier_pooling": maybe(_of("cls", "mean")), "classifier_activation": maybe(_of("gelu", "relu")),
        **dict.fromkeys(("norm_bias", "decoder_bias", "classifier_bias"), maybe(yes_or_no)),
    },
    "mpnet": tied_alone,
    "mpt": {"attn_config": maybe(_of({"clip_qkv": 6.0}, {"attn_type": "multihead_attention", "alibi": True}))},
    "nemotron": {"num_key_value_heads": "k", "rope_parameters": rotated(0.5)},
    "olmo": clipped,
    "olmoe": clipped,
    "opt": {"word_embed_proj_dim": maybe(_of(5, 9)), "_remove_final_layer_norm": maybe(yes_or_no)},
    "pegasus": tied_alone,
    "persimmon": {"h": eighths, "rope_parameters": rotated(0.5)},
    "phi": {"h": eighths, "rope_parameters": rotated(0.5), "qk_layernorm": unless_wide(maybe(yes_or_no))},
    "phimoe": {"num_experts_per_tok": maybe(st.just(2))},
    "qwen2_moe": {"sliding_window": "w"},
    "qwen3_5_moe_text": linear,
    "qwen3_5_text": linear,
    "qwen3_next": linear,
    "qwen3_vl_moe_text": {"sliding_window": None},
    "roberta": tied_alone,
    "smollm3": without_rotation,
    "stablelm": {"h": eighths, "rope_parameters": rotated(0.25)},
    "t5": forward_words,
    "umt5": forward_words,
    "vit": {"pooler_output_size": null_or("c")},
    "xlm-roberta": tied_alone,
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
