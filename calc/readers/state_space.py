"""State-space models, alone or beside attention: Mamba, Mamba-2 and their hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..blocks.attention import Attention
from ..blocks.mlp import MLP
from ..blocks.moe import MoE
from ..blocks.norm import RMSNorm
from ..blocks.state_space import Mamba, Mamba2
from ..blocks.wiring import Block, Residual, Sum
from ..dims import LARGEST_SIZE
from ..model import Embedding, LMHead, Model
from . import decoder as d
from .config import MOST_LAYERS, Reading, Rule, derived, each_layer, flag, indices, layers, size, word
from .family import ACTIVATIONS, BARE, NO_TABLE, SEQUENCE, even, full_head, rotated, settled, split_head
from .heads import head_of
from .llama import LLAMA
from .mixtures import mixture

# -- layers of one branch -------------------------------------------------------------------------------------------------


def _single(r: Reading) -> Model:
    """A stack of layers with one branch each, behind a norm."""
    branches = {kind: Residual(name=kind, branch=r.branches[kind](r), before=r.norm) for kind in dict.fromkeys(r.kinds)}
    blocks = {kind: Block(branches=(branch,)) for kind, branch in branches.items()}
    return Model(
        name=r.where,
        embedding=Embedding(v=r.v, d=r.d),
        stack=d.stack("decoder", r.kinds, blocks, lambda kind: kind if len(blocks) > 1 else "layer", r.norm),
        head=head_of(r, LMHead(v=r.v, tied=r.tied)),
    )


def _mamba2(r: Reading) -> Mamba2:
    r.check_divides("n_state", "k_state")
    return Mamba2(
        n=r.n_state, k=r.k_state, h=r.h_state, u=r.u_state, g=r.g, chunk=r.chunk, act=r.act_state, bias=r.bias_state,
        o_bias=r.o_bias_state, conv_bias=r.conv_bias, norm=r.norm_state,
    )  # fmt: skip


def _heads_of(field: str, default: Any) -> Rule:
    """The width of the state's heads, which together are as wide as *inner*: a number, or "auto"."""

    def read(r: Reading) -> int:
        found = r.config.get(field, default)
        if found == "auto":
            found = r.inner // r.n_state
        if type(found) is not int or found < 1 or found * r.n_state != r.inner:
            raise r.refuse(field, f"a whole number that {r.n_state} times is the inner width {r.inner}")
        return found

    return Rule((field,), read)


MAMBA2 = LLAMA._replace(build=_single).but(
    prefix="Mamba2", classes=BARE, also=(*NO_TABLE, "time_step_rank"),
    kinds=derived(lambda r: ["mamba"] * r.l), branches={"mamba": _mamba2},
    v=size("vocab_size", 32768), l=layers("num_hidden_layers", 64),
    n_state=size("num_heads", 128), k_state=size("n_groups", 8), h_state=size("state_size", 128), expand=size("expand", 2),
    inner=derived(lambda r: r.expand * r.d), u_state=_heads_of("head_dim", 64), g=size("conv_kernel", 4),
    chunk=size("chunk_size", 256), act_state=word("hidden_act", "silu", ACTIVATIONS), bias_state=flag("use_bias", False),
    o_bias_state=derived(lambda r: r.bias_state), conv_bias=flag("use_conv_bias", True), norm_state="gated",
    f=None, n=None, k=None, h=None, r=None, act=None, qkv_bias=False, mlp_bias=False,
)  # fmt: skip

# -- beside attention -----------------------------------------------------------------------------------------------------


def _either(r: Reading, window: Any, rotary: bool) -> Any:
    """Attention, or a state space."""
    return _mamba2(r) if window == "mamba" else d.grouped_attention(r, window, rotary)


def _by_index(r: Reading) -> list[str | None]:
    """Attention in the layers of ``attn_layer_indices``."""
    return [None if i in r.full else "mamba" for i in range(r.l)]


BAMBA = LLAMA.but(
    prefix="Bamba", classes=BARE, attention=_either, wiring=d.mixed, mixer="mamba", v=size("vocab_size", 128000),
    f=size("intermediate_size", 14336), k=size("num_key_value_heads", 8, null=lambda r: r.n), h=size("head_dim", split_head),
    rotated=rotated(0.5), r=derived(even), full=indices("attn_layer_indices", frozenset()), windows=derived(_by_index),
    n_state=size("mamba_n_heads", 128), k_state=size("mamba_n_groups", 1), h_state=size("mamba_d_state", 256),
    expand=size("mamba_expand", 2), inner=derived(lambda r: r.expand * r.d), u_state=_heads_of("mamba_d_head", "auto"),
    g=size("mamba_d_conv", 4), chunk=size("mamba_chunk_size", 256), act_state=derived(lambda r: r.act),
    bias_state=flag("mamba_proj_bias", False), o_bias_state=derived(lambda r: r.bias_state),
    conv_bias=flag("mamba_conv_bias", True), norm_state="gated",
)  # fmt: skip


def _if_rope(r: Reading) -> int:
    """Heads are rotated whole where the field says "rope", and not at all where it says anything else, or nothing."""
    found = r.config.get("position_embedding_type")
    if found is not None and not isinstance(found, str):
        raise r.refuse("position_embedding_type", "a word or null")
    return r.h if found == "rope" else 0


GRANITE_HYBRID = mixture(BAMBA).but(
    prefix="GraniteMoeHybrid", v=size("vocab_size", 32000), k=size("num_key_value_heads", lambda r: r.n, null=lambda r: r.n),
    f=derived(lambda r: r.f_shared), f_expert=size("intermediate_size", 11008), f_shared=size("shared_intermediate_size", 1024),
    mlp_bias=False, rotated=None, full=None,
    r=Rule(("position_embedding_type",), _if_rope),
    windows=each_layer("layer_types", {
        "full_attention": None, "attention": None, "linear_attention": "mamba", "mamba": "mamba",
    }, lambda r: ["mamba"] * r.l),
    e=size("num_local_experts", 8, least=0), a=size("num_experts_per_tok", 2, least=lambda r: min(r.e, 1)),
    score="softmax_of_chosen", renormalise=False, sparse=derived(lambda r: [r.e > 0] * r.l),
)  # fmt: skip


def _both(r: Reading, window: Any, rotary: bool) -> Sum:
    """A state space and attention on the same input."""
    return Sum(branches=(
        Residual(name="mamba", branch=_mamba2(r)), Residual(name="attention", branch=d.grouped_attention(r, window, rotary)),
    ))  # fmt: skip


def _inner(r: Reading) -> int:
    return int(r.expand * r.d if r.given_inner is None else r.given_inner)


FALCON_H1 = BAMBA.but(
    prefix="FalconH1", attention=_both, mixer="mixer", rotated=None, r=full_head, full=None,
    windows=derived(lambda r: [None] * r.l), given_inner=size("mamba_d_ssm", 1024, null=None), inner=derived(_inner),
    o_bias_state=flag("projectors_bias", False), normed=flag("mamba_rms_norm", False),
    norm_first=flag("mamba_norm_before_gate", True),
    norm_state=derived(lambda r: None if not r.normed else "before the gate" if r.norm_first else "gated"),
)  # fmt: skip

# -- Nemotron-H: a branch a layer ----------------------------------------------------------------------------------------

LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
WORDS = {"linear_attention": "mamba", "full_attention": "attention", **{kind: kind for kind in LETTERS.values()}}


def _kinds(r: Reading) -> list[str]:
    """A word a layer, or a letter in ``hybrid_override_pattern``."""
    field, found = r.find(("layers_block_type", "layer_types"))
    words: Mapping[str, str] = WORDS
    if found is None or field not in r.config:
        field, words = "hybrid_override_pattern", LETTERS
        found = r.config.get(field)
        found = "ME*-" if found is None else found
    if not isinstance(found, str if words is LETTERS else list) or not 0 < len(found) <= MOST_LAYERS:
        raise r.refuse(field, "a letter a layer" if words is LETTERS else f"a list of at most {MOST_LAYERS} words, one a layer")
    if not all(isinstance(kind, str) and kind in words for kind in found):
        raise r.refuse(field, f"one of {', '.join(words)} for each layer")
    return [words[kind] for kind in found]


def _nemotron_mlp(r: Reading) -> MLP:
    return MLP(f=r.f, act=r.act, bias=r.mlp_bias)


def _nemotron_mixture(r: Reading) -> MoE:
    """Plain experts without biases, in a width of their own where there is one, and a shared one."""
    if r.a > r.e:
        raise r.refuse(r.field_of("a"), f"at most the {r.e} experts of {r.field_of('e')}")
    if r.latent is not None and r.mlp_bias:
        raise r.refuse("mlp_bias", "false where there is a moe_latent_size: biases of its projections are not read")
    return MoE(
        e=r.e, a=r.a, expert=MLP(f=r.f_expert, act=r.act), shared=MLP(f=r.f_shared, act=r.act, bias=r.mlp_bias),
        score="sigmoid", renormalise=r.renormalise, i=r.latent,
    )  # fmt: skip


def _nemotron_attention(r: Reading) -> Attention:
    return d.grouped_attention(r, None, False)


NEMOTRON_H = LLAMA._replace(build=_single).but(
    prefix="NemotronH", classes=BARE, tied=False, also=(  # transformers ties it never, whatever the file says
        *NO_TABLE, "tie_word_embeddings", "num_hidden_layers", "attention_bias", "sliding_window", "time_step_rank",
        "partial_rotary_factor", "expand", "mamba_expand", "mamba_proj_bias",
        "n_shared_experts", "n_group", "topk_group", "num_nextn_predict_layers",
    ),
    kinds=Rule(("layers_block_type", "layer_types", "hybrid_override_pattern"), _kinds),
    branches={"mamba": _mamba2, "attention": _nemotron_attention, "mlp": _nemotron_mlp, "moe": _nemotron_mixture},
    v=size("vocab_size", 131072), l=None, f=size("intermediate_size", 21504),
    k=size("num_key_value_heads", 8, null=lambda r: r.n), h=size("head_dim", 128), r=0, qkv_bias=False, o_bias=False,
    act=word("mlp_hidden_act", "relu2", ACTIVATIONS), n_state=size("mamba_num_heads", 128),
    k_state=size(("mamba_n_groups", "n_groups"), 8), h_state=size("ssm_state_size", 128), u_state=size("mamba_head_dim", 64),
    g=size(("mamba_d_conv", "conv_kernel"), 4), chunk=size(("mamba_chunk_size", "chunk_size"), 128),
    act_state=word("mamba_hidden_act", "silu", ACTIVATIONS), bias_state=flag("use_bias", False),
    o_bias_state=derived(lambda r: r.bias_state), conv_bias=flag(("mamba_conv_bias", "use_conv_bias"), True),
    norm_state="gated", e=size(("n_routed_experts", "num_local_experts"), 8), a=size("num_experts_per_tok", 2),
    f_expert=size("moe_intermediate_size", 7688), f_shared=size("moe_shared_expert_intermediate_size", 7688),
    latent=size("moe_latent_size", None, null=None), renormalise=flag("norm_topk_prob", True),
)  # fmt: skip

# -- Mamba ----------------------------------------------------------------------------------------------------------------


def _mamba(r: Reading) -> Mamba:
    return Mamba(
        f=r.inner, h=r.h_state, i=r.rank, g=r.g, act=r.act_state, bias=r.bias_state, conv_bias=r.conv_bias, norm=r.norm_state
    )


def _rank(field: str) -> Rule:
    """The width of what Δ is made of: a number, or "auto", a sixteenth of d rounded up."""

    def read(r: Reading) -> int:
        found = r.config.get(field, "auto")
        found = -(-r.d // 16) if found == "auto" else found
        if type(found) is not int or not 1 <= found <= LARGEST_SIZE:
            raise r.refuse(field, 'a whole number from 1 to 2**40, or "auto"')
        return found

    return Rule((field,), read)


MAMBA = MAMBA2.but(
    prefix="Mamba", branches={"mamba": _mamba}, v=size("vocab_size", 50280), d=size("hidden_size", 768),
    l=layers("num_hidden_layers", 32), h_state=size("state_size", 16),
    inner=size("intermediate_size", lambda r: r.expand * r.d), rank=_rank("time_step_rank"), norm_state=None,
    tied=flag("tie_word_embeddings", True), n_state=None, k_state=None, u_state=None, chunk=None, o_bias_state=None,
    same_d=settled("d", "d_model"), same_l=settled("l", "n_layer"),
)  # fmt: skip

FALCON_MAMBA = MAMBA.but(prefix="FalconMamba", norm_state=RMSNorm(gain=False))


def _jamba(r: Reading, window: Any, rotary: bool) -> Any:
    """Attention without positions, or Mamba."""
    return _mamba(r) if window == "mamba" else d.grouped_attention(r, window, False)


def _every(period: str, offset: str) -> Rule:
    """Which layers are those of the period, from the offset on."""

    def read(r: Reading) -> list[bool]:
        step, first = getattr(r, period), getattr(r, offset)
        if first >= step:
            raise r.refuse(r.field_of(offset), f"less than the {step} of {r.field_of(period)}")
        return [i % step == first for i in range(r.l)]

    return derived(read)


JAMBA = mixture(BAMBA).but(
    prefix="Jamba", classes=SEQUENCE, attention=_jamba, v=size("vocab_size", 65536), rotated=None,
    r=0, full=None, qkv_bias=False, o_bias=False, mlp_bias=False, chunk=None, n_state=None, k_state=None, u_state=None,
    h_state=size("mamba_d_state", 16), rank=_rank("mamba_dt_rank"), norm_state=RMSNorm(),
    e=size(("num_experts", "num_local_experts"), 16), a=size("num_experts_per_tok", 2), renormalise=False,
    period=size("attn_layer_period", 8), offset=size("attn_layer_offset", 4, least=0),
    period_e=size("expert_layer_period", 2), offset_e=size("expert_layer_offset", 1, least=0),
    attended=_every("period", "offset"), mixed=_every("period_e", "offset_e"),
    windows=derived(lambda r: [None if here else "mamba" for here in r.attended]),
    sparse=derived(lambda r: [here and r.e > 1 for here in r.mixed]),
)  # fmt: skip

FAMILIES = {
    "bamba": BAMBA, "falcon_h1": FALCON_H1, "falcon_mamba": FALCON_MAMBA, "granitemoehybrid": GRANITE_HYBRID, "jamba": JAMBA,
    "mamba": MAMBA, "mamba2": MAMBA2, "nemotron_h": NEMOTRON_H,
}  # fmt: skip
