"""Dense decoders that are LLaMA, Gemma, Cohere or OLMo with a few changes."""

from __future__ import annotations

from ..blocks.norm import LayerNorm, RMSNorm
from . import decoder as d
from .config import Reading, Rule, derived, fixed, flag, layers, size, word
from .family import (
    ACTIVATIONS,
    BARE,
    NO_TABLE,
    SEQUENCE,
    TOKEN,
    by_type,
    even,
    every_nth_full,
    listed_window,
    rotary_in_windows,
    rotated,
    settled,
    split_head,
    without_default,
)
from .llama import COHERE, GEMMA2, LLAMA, MISTRAL, OLMO2

# -- pre-norm, with biases or widths of their own -----------------------------------------------------------------------

SEED_OSS = LLAMA.but(
    prefix="SeedOss", v=size("vocab_size", 155136), f=size("intermediate_size", 27648), l=layers("num_hidden_layers", 64),
    n=size("num_attention_heads", 80), k=size("num_key_value_heads", 8, null=lambda r: r.n),
    h=size("head_dim", 128, null=split_head), qkv_bias=flag("attention_bias", True), o_bias=flag("attention_out_bias", False),
)  # fmt: skip

ARCEE = LLAMA.but(
    prefix="Arcee", d=size("hidden_size", 2560), f=size("intermediate_size", 18432), gated=False,
    act=word("hidden_act", "relu2", ACTIVATIONS),
)  # fmt: skip


def _as_wide_as_the_model(r: Reading) -> int:
    """The head width of Helium, whose output projection is d × d."""
    h: int = size("head_dim", 128).read(r)
    if h * r.n != r.d:
        raise r.refuse("head_dim", f"{r.d}/{r.n}: Helium's output projection is as wide as the model")
    return h


HELIUM = LLAMA.but(
    prefix="Helium", classes=TOKEN, v=size("vocab_size", 48000), d=size("hidden_size", 2560), f=size("intermediate_size", 7040),
    l=layers("num_hidden_layers", 24), n=size("num_attention_heads", 20), k=size("num_key_value_heads", 20),
    h=Rule(("head_dim",), _as_wide_as_the_model), o_bias=False,
)  # fmt: skip

EXAONE = LLAMA.but(
    published="Exaone", classes=BARE, v=size("vocab_size", 102400), f=size("intermediate_size", 14336),
    l=layers(("num_layers", "num_hidden_layers"), 32), k=size("num_key_value_heads", 8, null=lambda r: r.n),
    act=word(("activation_function", "hidden_act"), "silu", ACTIVATIONS),
)  # fmt: skip


def _biased_alike(r: Reading) -> bool:
    """InternLM3's biases: of attention and feed-forward, or of neither."""
    rule = flag(("bias", "mlp_bias"), False)
    if rule.read(r) != r.qkv_bias:
        raise r.refuse(r.find(rule.fields)[0], f"what {r.field_of('qkv_bias')} says: transformers builds no other")
    return bool(r.qkv_bias)


INTERNLM3 = LLAMA.but(
    published="InternLM3", classes=BARE, v=size("vocab_size", 128512), f=size("intermediate_size", 10240),
    l=layers("num_hidden_layers", 48), k=size("num_key_value_heads", 2, null=lambda r: r.n),
    h=size("head_dim", 128, null=split_head), qkv_bias=flag(("qkv_bias", "attention_bias"), False),
    mlp_bias=Rule(("bias", "mlp_bias"), _biased_alike),
)  # fmt: skip

GLM = LLAMA.but(
    prefix="Glm", classes=TOKEN, v=size("vocab_size", 151552), f=size("intermediate_size", 13696),
    l=layers("num_hidden_layers", 40), k=size("num_key_value_heads", 2), h=size("head_dim", 128), rotated=rotated(0.5),
    r=derived(even), qkv_bias=flag("attention_bias", True), o_bias=False, mlp_bias=False,
)  # fmt: skip

GLM4 = GLM.but(prefix="Glm4", wiring=d.sandwich)

# Queries and keys are normed behind their rotation.
HUNYUAN = LLAMA.but(
    prefix="HunYuanDenseV1", classes=SEQUENCE, v=size("vocab_size", 290943),
    h=size("head_dim", without_default("head_dim"), null=without_default("head_dim")), mlp_bias=False, qk_norm=RMSNorm(),
    norm_last=True, always_normed=fixed("use_qk_norm", True, "HunYuan norms queries and keys"),
)  # fmt: skip

# -- windows in some layers ---------------------------------------------------------------------------------------------

MINISTRAL = MISTRAL.but(
    prefix="Ministral", h=size("head_dim", without_default("head_dim"), null=without_default("head_dim")),
    w=size("sliding_window", 4096), windows=by_type(lambda r: [r.w] * r.l),
)  # fmt: skip

MINISTRAL3 = MISTRAL.but(
    prefix="Ministral3", v=size("vocab_size", 131072), l=layers("num_hidden_layers", 34), h=size("head_dim", 128),
    w=size("sliding_window", None, null=None),
)  # fmt: skip

CWM = LLAMA.but(
    prefix="Cwm", classes=BARE, v=size("vocab_size", 128256), d=size("hidden_size", 6144), f=size("intermediate_size", 21504),
    l=layers("num_hidden_layers", 64), n=size("num_attention_heads", 48), k=size("num_key_value_heads", 8),
    h=size("head_dim", 128), qkv_bias=False, w=size("sliding_window", 8192),
    windows=by_type(lambda r: [r.w if i % 4 else None for i in range(r.l)]),
)  # fmt: skip

OLMO3 = OLMO2.but(
    prefix="Olmo3", w=size("sliding_window", 4096), pattern=4, windows=by_type(every_nth_full), local_rotary=True,
)  # fmt: skip

VAULTGEMMA = GEMMA2.but(prefix="VaultGemma", classes=BARE, wiring=d.pre_norm, w=size("sliding_window", 4096))

# -- no rotation in some layers -----------------------------------------------------------------------------------------

COHERE2 = COHERE.but(
    prefix="Cohere2", head_norms=None, qk_norm=None, w=size("sliding_window", 4096), pattern=size("sliding_window_pattern", 4),
    windows=by_type(every_nth_full), rotaries=rotary_in_windows,
    whole=fixed("rotary_pct", 1.0, "transformers rotates whole heads"),
    rotation=fixed("position_embedding_type", "rope_gptj", "transformers builds no other"),
)  # fmt: skip


def _exaone4_pattern(r: Reading) -> int | None:
    """How often a layer is full; a file that lists its layers may say other things by it."""
    listed = r.config.get("layer_types") is not None
    return None if listed else size("sliding_window_pattern", 4).read(r)


def _exaone4_windows(r: Reading) -> list[int | None]:
    """Full attention in every fourth layer; transformers divides by nought where there is no window."""
    if r.w is None:
        raise r.refuse("layer_types", "a list, one word a layer, for sliding_window is null")
    return every_nth_full(r)


EXAONE4 = LLAMA.but(
    prefix="Exaone4", wiring=d.behind, v=size("vocab_size", 102400), f=size("intermediate_size", 16384),
    k=size("num_key_value_heads", 32), h=size("head_dim", split_head), qkv_bias=False, mlp_bias=False, qk_norm=RMSNorm(),
    w=size("sliding_window", 4096, null=None), pattern=Rule(("sliding_window_pattern",), _exaone4_pattern),
    windows=by_type(_exaone4_windows, listed_window),
    rotaries=derived(lambda r: [r.w is None or window is not None for window in r.windows]),
)  # fmt: skip


def by_interval(r: Reading) -> list[bool]:
    """All layers rotate but every fourth, or what ``no_rope_layer_interval`` says."""
    return [(i + 1) % r.interval != 0 for i in range(r.l)]


def _rotary_layers(r: Reading) -> list[bool]:
    """The layers that rotate: a 1 each in ``no_rope_layers``, or all but every fourth (``no_rope_layer_interval``)."""
    found = r.config.get("no_rope_layers")
    if found is None:
        return by_interval(r)
    if not isinstance(found, list) or len(found) < r.l or not all(type(entry) is int and entry in (0, 1) for entry in found):
        raise r.refuse("no_rope_layers", f"a list of {r.l} entries, 1 or 0, one a layer ({r.field_of('l')})")
    return [entry == 1 for entry in found[: r.l]]


def _windows_without_rotation(r: Reading) -> list[int | None]:
    """A window in the layers that do not rotate, where windows are in use."""
    return [None if rotary or not r.sliding else r.w for rotary in r.rotaries]


SMOLLM3 = LLAMA.but(
    prefix="SmolLM3", also=(*NO_TABLE, "max_window_layers"), v=size("vocab_size", 128256), d=size("hidden_size", 2048),
    l=layers("num_hidden_layers", 36), n=size("num_attention_heads", 16), k=size("num_key_value_heads", 4, null=lambda r: r.n),
    h=size("head_dim", split_head), tied=flag("tie_word_embeddings", True), interval=size("no_rope_layer_interval", 4),
    rotaries=Rule(("no_rope_layers",), _rotary_layers), sliding=flag("use_sliding_window", False),
    w=size("sliding_window", None, null=None), windows=by_type(_windows_without_rotation, listed_window),
)  # fmt: skip

# -- LayerNorm ----------------------------------------------------------------------------------------------------------

# Gains are 1 + w, which costs nothing a token.
NEMOTRON = LLAMA.but(
    prefix="Nemotron", v=size("vocab_size", 256000), d=size("hidden_size", 6144), f=size("intermediate_size", 24576),
    n=size("num_attention_heads", 48),
    k=size("num_key_value_heads", without_default("num_key_value_heads"), null=without_default("num_key_value_heads")),
    rotated=rotated(0.5), r=derived(even), gated=False, act=word("hidden_act", "relu2", ACTIVATIONS), norm=LayerNorm(),
)  # fmt: skip

PERSIMMON = LLAMA.but(
    prefix="Persimmon", classes=TOKEN, v=size("vocab_size", 262144), f=size("intermediate_size", 16384),
    l=layers("num_hidden_layers", 36), n=size("num_attention_heads", 64), k=settled("n"), h=derived(split_head),
    r=rotated(0.5), gated=False, act=word("hidden_act", "relu2", ACTIVATIONS), norm=LayerNorm(), qkv_bias=True, mlp_bias=True,
    head_norms=flag("qk_layernorm", True), qk_norm=derived(lambda r: LayerNorm() if r.head_norms else None),
)  # fmt: skip

FAMILIES = {
    "arcee": ARCEE, "cohere2": COHERE2, "cwm": CWM, "exaone": EXAONE, "exaone4": EXAONE4, "glm": GLM, "glm4": GLM4,
    "helium": HELIUM, "hunyuan_v1_dense": HUNYUAN, "internlm3": INTERNLM3, "ministral": MINISTRAL, "ministral3": MINISTRAL3,
    "nemotron": NEMOTRON, "olmo3": OLMO3, "persimmon": PERSIMMON, "seed_oss": SEED_OSS, "smollm3": SMOLLM3,
    "vaultgemma": VAULTGEMMA,
}  # fmt: skip
