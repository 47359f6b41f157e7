"""GPT-2 and the decoders of its time: LayerNorm with biases, plain feed-forward."""

from __future__ import annotations

from typing import Any

from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions, Sinusoidal
from . import decoder as d
from .config import Reading, Rule, derived, fixed, flag, inside, layers, number, size, word
from .family import ACTIVATIONS, BARE, CAUSAL, SEQUENCE, TOKEN, even, rotated, settled, split_head
from .llama import LLAMA

GPT2 = LLAMA.but(
    prefix="GPT2", classes=("LMHeadModel", *CAUSAL[1:]),
    v=size("vocab_size", 50257), d=size(("n_embd", "hidden_size"), 768), l=layers(("n_layer", "num_hidden_layers"), 12),
    n=size(("n_head", "num_attention_heads"), 12), k=derived(lambda r: r.n), h=derived(split_head), r=None,
    f=size("n_inner", lambda r: 4 * r.d, null=lambda r: 4 * r.d), gated=False,
    act=word("activation_function", "gelu_new", ACTIVATIONS), tied=flag("tie_word_embeddings", True),
    norm=LayerNorm(), qkv_bias=True, mlp_bias=True, token_bias=True, m=size(("n_positions", "max_position_embeddings"), 1024),
    position=derived(lambda r: LearnedPositions(m=r.m)),
    alone=fixed("add_cross_attention", False, "GPT-2 read here is a decoder alone"),
)  # fmt: skip

GPTJ = GPT2.but(
    prefix="GPTJ", classes=(*SEQUENCE, "ForQuestionAnswering"), wiring=d.parallel, v=size("vocab_size", 50400),
    d=size(("n_embd", "hidden_size"), 4096), l=layers(("n_layer", "num_hidden_layers"), 28),
    n=size(("n_head", "num_attention_heads"), 16), r=size("rotary_dim", 64), position=None, qkv_bias=False, head_bias=True,
    tied=flag("tie_word_embeddings", False),
)  # fmt: skip


def _in_fours(r: Reading) -> int:
    """CodeGen's width, which its fused projection cuts in four."""
    rule = GPTJ.knobs["d"]
    d: int = rule.read(r)
    if d % 4:
        raise r.refuse(r.find(rule.fields)[0], "a multiple of 4: CodeGen's projections are in four parts")
    return d


CODEGEN = GPTJ.but(prefix="CodeGen", classes=BARE, d=Rule(GPTJ.knobs["d"].fields, _in_fours))

GPT_BIGCODE = GPT2.but(
    prefix="GPTBigCode", classes=TOKEN, act=word("activation_function", "gelu_pytorch_tanh", ACTIVATIONS),
    multi_query=flag("multi_query", True), heads=derived(lambda r: 1 if r.multi_query else r.n), k=settled("heads"),
)  # fmt: skip

BIOGPT = GPT2.but(
    prefix="BioGpt", classes=TOKEN, v=size("vocab_size", 42384), d=size("hidden_size", 1024),
    l=layers("num_hidden_layers", 24), n=size("num_attention_heads", 16), f=size("intermediate_size", 4096),
    act=word("hidden_act", "gelu", ACTIVATIONS), m=size("max_position_embeddings", 1024),
    position=derived(lambda r: LearnedPositions(m=r.m + 2, reserved=2)),
)  # fmt: skip

XGLM = GPT2.but(
    prefix="XGLM", classes=BARE, v=size("vocab_size", 256008), d=size(("d_model", "hidden_size"), 1024),
    l=layers(("num_layers", "num_hidden_layers"), 24), n=size(("attention_heads", "num_attention_heads"), 16),
    f=size("ffn_dim", 4096), act=word("activation_function", "gelu", ACTIVATIONS), m=None, position=Sinusoidal(),
)  # fmt: skip

CTRL = GPT2.but(
    prefix="CTRL", classes=("LMHeadModel", "Model", "ForSequenceClassification"), also=("n_positions", *GPT2.knobs["also"]),
    v=size("vocab_size", 246534), d=size(("n_embd", "hidden_size"), 1280), l=layers(("n_layer", "num_hidden_layers"), 48),
    n=size(("n_head", "num_attention_heads"), 16), f=size("dff", 8192), act=ACTIVATIONS["relu"], m=None,
    position=Sinusoidal(), head_bias=True,
)  # fmt: skip


def _attention_layers(r: Reading) -> list[int | None]:
    """Windows from ``attention_layers``, a word a layer, or from ``attention_types``, lists of words and how often each."""
    words = r.config.get("attention_layers")
    words = _repeated(r) if words is None else words
    if not isinstance(words, list) or len(words) != r.l or not all(word in ("global", "local") for word in words):
        raise r.refuse("attention_layers", f"a list of {r.l} words, 'global' or 'local', one a layer ({r.field_of('l')})")
    return [r.w if word == "local" else None for word in words]


def _repeated(r: Reading) -> list[Any]:
    found = r.config.get("attention_types")
    types: Any = [[["global", "local"], 12]] if found is None else found
    shaped = isinstance(types, list) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and type(entry[1]) is int and entry[1] >= 0
        for entry in types
    )
    if not shaped or sum(len(words) * times for words, times in types) != r.l:
        raise r.refuse("attention_types", f"words and how often, as in [[['global', 'local'], 12]], {r.l} words in all")
    return [word for words, times in types for _ in range(times if words else 0) for word in words]


GPT_NEO = GPT2.but(
    prefix="GPTNeo", classes=CAUSAL, d=size("hidden_size", 2048), l=layers(("num_layers", "num_hidden_layers"), 24),
    n=size(("num_heads", "num_attention_heads"), 16),
    f=size("intermediate_size", lambda r: 4 * r.d, null=lambda r: 4 * r.d), m=size("max_position_embeddings", 2048),
    w=size("window_size", 256), windows=Rule(("attention_layers", "attention_types"), _attention_layers), cached_whole=True,
    qkv_bias=False, o_bias=True,
)  # fmt: skip

# -- rotary positions ---------------------------------------------------------------------------------------------------

GPT_NEOX = LLAMA.but(
    prefix="GPTNeoX", classes=CAUSAL, also=(*LLAMA.knobs["also"], "is_decoder"), v=size("vocab_size", 50432),
    d=size("hidden_size", 6144), l=layers("num_hidden_layers", 44), n=size("num_attention_heads", 64), k=derived(lambda r: r.n),
    h=derived(split_head), rotated=rotated(0.25, "rotary_pct"), r=derived(even), f=size("intermediate_size", 24576),
    gated=False, act=word("hidden_act", "gelu", ACTIVATIONS), norm=LayerNorm(), qkv_bias=flag("attention_bias", True),
    mlp_bias=True, token_bias=True, parallel=flag("use_parallel_residual", True),
    wiring=derived(lambda r: d.parallel_norms if r.parallel else d.pre_norm),
)  # fmt: skip


def _phi_norm(r: Reading) -> LayerNorm | None:
    """A norm of each head, as wide as d/n."""
    if r.head_norms and r.h * r.n != r.d:
        raise r.refuse("head_dim", f"{r.d}/{r.n}: qk_layernorm norms heads of that width")
    return LayerNorm() if r.head_norms else None


PHI = LLAMA.but(
    prefix="Phi", classes=TOKEN, wiring=d.parallel, v=size("vocab_size", 51200), d=size("hidden_size", 2048),
    f=size("intermediate_size", 8192), l=layers("num_hidden_layers", 24), h=size("head_dim", split_head), r=rotated(0.5),
    gated=False, act=word("hidden_act", "gelu_new", ACTIVATIONS), norm=LayerNorm(), qkv_bias=True, mlp_bias=True,
    head_bias=True, head_norms=flag("qk_layernorm", False), qk_norm=derived(_phi_norm),
)  # fmt: skip


def _falcon_groups(r: Reading) -> int:
    """Key-value heads: one, unless the config asks for groups (the new architecture) or for as many as query heads."""
    if r.multi_query and not r.new:
        return 1
    groups = int(r.groups)
    if not r.new and groups != r.n:
        raise r.refuse("num_kv_heads", f"{r.n}, as many as num_attention_heads, or multi_query or new_decoder_architecture")
    return groups


def _falcon_wiring(r: Reading) -> Any:
    """Side by side on one norm or, in the new architecture, on two; or one after the other."""
    if r.new and not r.parallel:
        raise r.refuse("parallel_attn", "true, which new_decoder_architecture implies")
    if not r.parallel:
        return d.pre_norm
    if r.norms not in ((1, 2) if r.new else (1,)):
        raise r.refuse("num_ln_in_parallel_attn", "1, or 2 in the new_decoder_architecture")
    return d.parallel_norms if r.norms == 2 else d.parallel


FALCON = LLAMA.but(
    prefix="Falcon", classes=CAUSAL, v=size("vocab_size", 65024), d=size(("n_embed", "hidden_size"), 4544),
    l=layers("num_hidden_layers", 32), n=size("num_attention_heads", 71), h=derived(split_head),
    new=flag("new_decoder_architecture", False, null=False), multi_query=flag("multi_query", True, null=False),
    groups=size("num_kv_heads", lambda r: r.n, null=lambda r: r.n), k=Rule(("num_kv_heads",), _falcon_groups),
    cached_whole=derived(lambda r: r.new), alibi=flag("alibi", False, null=False),
    parallel=flag("parallel_attn", True, null=False),
    norms=size("num_ln_in_parallel_attn", lambda r: 2 if r.new else 1, null=lambda r: 2 if r.new else 1),
    wiring=derived(_falcon_wiring), f=size("ffn_hidden_size", lambda r: 4 * r.d, null=lambda r: 4 * r.d), gated=False,
    act=word("activation", "gelu", ACTIVATIONS), norm=LayerNorm(), qkv_bias=flag("bias", False, null=False),
    mlp_bias=derived(lambda r: r.qkv_bias), token_bias=True, tied=flag("tie_word_embeddings", True),
)  # fmt: skip

# -- biases by distance -------------------------------------------------------------------------------------------------

BLOOM = GPT2.but(
    prefix="Bloom", classes=CAUSAL, v=size("vocab_size", 250880), d=size(("n_embed", "hidden_size"), 64),
    l=layers(("n_layer", "num_hidden_layers"), 2), n=size(("n_head", "num_attention_heads"), 8), f=derived(lambda r: 4 * r.d),
    act=ACTIVATIONS["gelu_pytorch_tanh"], position=None, alibi=True, m=None, embedding_norm=LayerNorm(),
    skips=fixed("apply_residual_connection_post_layernorm", False, "BLOOM read here adds its branches to their norms' inputs"),
    pieces=fixed("slow_but_exact", False, "BLOOM read here multiplies each matrix in one piece"),
)  # fmt: skip


def _mpt_norm(r: Reading) -> LayerNorm:
    """A gain alone. ``norm_type`` is no field of this reader's own: other families' configs say other things by it."""
    if r.config.get("norm_type", "layernorm") not in ("low_precision_layernorm", "layernorm"):
        raise r.refuse("norm_type", "low_precision_layernorm or layernorm: transformers builds no other")
    return LayerNorm(bias=False)


MPT = BLOOM.but(
    prefix="Mpt", v=size("vocab_size", 50368), d=size(("d_model", "hidden_size"), 2048),
    l=layers(("n_layers", "num_hidden_layers"), 24), n=size(("n_heads", "num_attention_heads"), 16),
    act=ACTIVATIONS["gelu"], embedding_norm=None, norm=derived(_mpt_norm),
    qkv_bias=False, mlp_bias=False, skips=None, pieces=None,
    limit=inside("attn_config", number("clip_qkv", None)), clip=derived(lambda r: r.limit or None),
    wide=fixed("expansion_ratio", 4, "transformers builds no other"),
    no_bias=fixed("no_bias", True, "transformers builds no biases"),
    kind=inside("attn_config", fixed("attn_type", "multihead_attention", "transformers builds no other")),
    by_distance=inside("attn_config", fixed("alibi", True, "transformers builds MPT with ALiBi alone")),
    unnormed=inside("attn_config", fixed("qk_ln", False, "transformers builds no norms of queries and keys")),
    one_way=inside("attn_config", fixed("prefix_lm", False, "MPT read here is causal")),
)  # fmt: skip

# -- norms that may stand behind, tables that may be narrower ------------------------------------------------------------

OPT = GPT2.but(
    prefix="OPT", classes=(*SEQUENCE, "ForQuestionAnswering"), v=size("vocab_size", 50272), d=size("hidden_size", 768),
    l=layers("num_hidden_layers", 12), n=size("num_attention_heads", 12), f=size("ffn_dim", 3072),
    act=word("activation_function", "relu", ACTIVATIONS), m=size("max_position_embeddings", 2048),
    position=derived(lambda r: LearnedPositions(m=r.m + 2, reserved=2)),
    width=size("word_embed_proj_dim", lambda r: r.d, null=lambda r: r.d),
    narrow=derived(lambda r: None if r.width == r.d else r.width),
    gains=flag("layer_norm_elementwise_affine", True), norm=derived(lambda r: LayerNorm(gain=r.gains, bias=r.gains)),
    first=flag("do_layer_norm_before", True), wiring=derived(lambda r: d.pre_norm if r.first else d.post_norm),
    no_final_norm=flag("_remove_final_layer_norm", False),
    final_norm=derived(lambda r: r.norm if r.first and not r.no_final_norm else None),
    qkv_bias=flag("enable_bias", True), mlp_bias=derived(lambda r: r.qkv_bias),
)  # fmt: skip

FAMILIES = {
    "biogpt": BIOGPT, "bloom": BLOOM, "codegen": CODEGEN, "ctrl": CTRL, "falcon": FALCON, "gpt2": GPT2,
    "gpt_bigcode": GPT_BIGCODE, "gpt_neo": GPT_NEO, "gpt_neox": GPT_NEOX, "gptj": GPTJ, "mpt": MPT, "opt": OPT, "phi": PHI,
    "xglm": XGLM,
}  # fmt: skip
