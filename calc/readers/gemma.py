"""Gemma 3n and 4: layers that borrow the keys and values of earlier ones, and an input of its own for each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ..blocks.altup import AltUp, Merged, Streams
from ..blocks.attention import Attention
from ..blocks.embedding import LayerEmbedding, LayerInput
from ..blocks.mlp import GatedMLP, SparseGatedMLP
from ..blocks.moe import MoE
from ..blocks.norm import RMSNorm
from ..blocks.position import Rotary
from ..blocks.wiring import Block, Laurel, Residual, Sum
from ..errors import InputError
from ..model import Embedding, LMHead, Model
from .config import Reading, Rule, derived, fixed, flag, layers, number, shown, size, word
from .decoder import stack
from .family import ACTIVATIONS, Family, by_type, dense_everywhere, every_nth_full, without_default
from .heads import head_of
from .llama import LLAMA

Source = Literal["own", "lent", "borrowed"]


class Kind(NamedTuple):
    """What tells one layer from another: its window, its heads, where its keys and values are from, its feed-forward."""

    window: int | None
    h: int
    k: int
    kv: Source
    f: int
    sparse: bool


def inputs_and_loans(r: Reading) -> Model:
    """Tokens, and an input for each layer if there is one, a stack of layers of many kinds, a head."""
    each = zip(r.windows, _heads(r), _sources(r), r.widths, r.thresholds, strict=True)
    kinds = [Kind(window, *heads, kv, f * (2 if r.doubled and kv == "borrowed" else 1), sparse)
             for window, heads, kv, f, sparse in each]  # fmt: skip
    blocks = {kind: r.wiring(r, kind) for kind in dict.fromkeys(kinds)}
    layers = stack("decoder", kinds, blocks, lambda kind: _name(kind, blocks), r.norm)
    return Model(
        name=r.where,
        embedding=Embedding(v=r.v, d=r.d, layers=LayerEmbedding(v=r.v_layers, l=r.l, i=r.i, norm=r.norm) if r.i else None),
        stack=replace(layers, enter=Streams(j=r.others), exit=Merged()) if r.others else layers,
        head=head_of(r, LMHead(v=r.v, tied=r.tied, softcap=r.logit_softcap is not None)),
    )


def _name(kind: Kind, blocks: dict[Kind, Any]) -> str:
    """What tells this layer from the stack's others: its mask, whether it lends or borrows keys and values, its width."""
    several = [len(set(values)) > 1 for values in zip(*blocks, strict=True)]
    parts = ["full" if kind.window is None else "window"] if several[0] else []
    parts += [] if kind.kv == "own" else [kind.kv]
    parts += ["sparse"] if kind.sparse and several[5] else []
    wide = {other.f for other in blocks if other[:4] == kind[:4] and other.sparse == kind.sparse}
    return "_".join(parts + ([str(kind.f)] if len(wide) > 1 else [])) or "layer"


def _sources(r: Reading) -> list[Source]:
    """Where the keys and values of each layer are from: the last ``num_kv_shared_layers`` borrow those of the last layer before
    them with the same mask."""
    first = max(0, r.l - r.shared)
    found: list[Source] = ["own" if place < first else "borrowed" for place in range(r.l)]
    for window in dict.fromkeys(r.windows[first:]):
        before = [place for place in range(first) if r.windows[place] == window]
        if not before:
            raise r.refuse(r.field_of("shared"), "so few layers that one with each of their masks stands before them")
        found[before[-1]] = "lent"
    return found


def _heads(r: Reading) -> list[tuple[int, int]]:
    """How wide the heads of each layer are, and how many of them are for keys and values."""
    found: list[tuple[int, int]] = r.heads
    for window in dict.fromkeys(r.windows):
        same = {heads for heads, other in zip(found, r.windows, strict=True) if other == window}
        if len(same) > 1:
            raise r.refuse("per_layer_config", "the same heads for all layers of a mask")
        for _, k in same:
            if r.n % k:
                raise InputError(f"{r.where}: {r.field_of('n')} = {r.n} is not divisible by {k} key-value heads")
    return found


def _each_heads(r: Reading) -> list[tuple[int, int]]:
    """Full layers have heads of their own, unless ``per_layer_config`` says what differs layer by layer."""
    usual, field = (r.h, r.k), "per_layer_config"
    if field not in r.config:
        full = r.h_full, r.k_full if r.kv_tied and r.k_full is not None else r.k
        return [full if window is None else usual for window in r.windows]
    found, given = [usual] * r.l, {} if r.config[field] is None else r.config[field]
    if not isinstance(given, dict):
        raise r.refuse(field, "an object or null")
    for place, changes in given.items():
        known = isinstance(changes, dict) and changes.keys() <= {"head_dim", "num_key_value_heads"}
        if not (known and str(place).isdecimal() and len(str(place)) < 9 and int(place) < r.l):
            raise InputError(f"{r.where}: {field}: found {shown(place)}, expected head_dim and num_key_value_heads by layer")
        inner = Reading(r.knobs, {"head_dim": r.h, "num_key_value_heads": r.k, **changes}, f"{r.where}: {field}: {place}")
        found[int(place)] = inner.h, inner.k
    return found


def _attention(r: Reading, kind: Kind) -> Attention:
    full, borrows = kind.window is None, kind.kv == "borrowed"
    return Attention(
        n=r.n, k=kind.k, h=kind.h, w=kind.window, position=Rotary(r=kind.h, local=not full), qkv_bias=r.qkv_bias,
        o_bias=r.qkv_bias, qk_norm=r.norm, v_norm=None if borrows else RMSNorm(gain=False),
        kv_tied=r.kv_tied and full and not borrows, kv=kind.kv,
    )  # fmt: skip


def gemma4(r: Reading, kind: Kind) -> Block:
    """Two branches between norms, or three with the layer's input."""
    branches = [
        Residual(name="attention", branch=_attention(r, kind), before=r.norm, after=r.norm),
        Residual(name="mlp", branch=_mixed(r, kind), after=r.norm) if r.sparse else
        Residual(name="mlp", branch=GatedMLP(f=kind.f, act=r.act), before=r.norm, after=r.norm),
    ]  # fmt: skip
    if r.i:
        branches.append(_input(r))
    return Block(branches=tuple(branches))


def _input(r: Reading) -> Residual:
    return Residual(name="input", branch=LayerInput(i=r.i, act=r.act), after=r.norm)


def _mixed(r: Reading, kind: Kind) -> Sum:
    """A feed-forward and a mixture beside it, whose router reads the stream as it is."""
    if r.a > r.e:
        raise r.refuse(r.field_of("a"), f"at most the {r.e} experts of {r.field_of('e')}")
    expert = GatedMLP(f=r.f_expert, act=r.act)
    mixture = MoE(e=r.e, a=r.a, expert=expert, router_norm=r.norm, expert_norm=r.norm, expert_scale=True)
    return Sum(branches=(
        Residual(name="dense", branch=GatedMLP(f=kind.f, act=r.act), before=r.norm, after=r.norm),
        Residual(name="moe", branch=mixture, after=r.norm),
    ))  # fmt: skip


def gemma3n(r: Reading, kind: Kind) -> AltUp:
    """Two branches on one stream, the first beside a low-rank residual; the layer's input is added to the others."""
    feed_forward = (SparseGatedMLP if kind.sparse else GatedMLP)(f=kind.f, act=r.act)
    block = Block(branches=(
        Laurel(name="attention", branch=_attention(r, kind), c=r.rank, before=r.norm, after=r.norm, norm=r.norm),
        Residual(name="mlp", branch=feed_forward, before=r.norm, after=r.norm),
    ))  # fmt: skip
    return AltUp(j=r.others, block=block, branch=_input(r))


def _asked(field: str) -> Rule:
    """A size of the mixture, which has no default."""
    return size(field, without_default(field), null=without_default(field))


GEMMA4 = Family(inputs_and_loans, LLAMA.knobs).but(
    prefix="Gemma4", classes=("ForCausalLM", "TextModel"), wiring=gemma4, others=None, v=size("vocab_size", 262144),
    d=size("hidden_size", 2304), f=size("intermediate_size", 9216), widths=derived(lambda r: [r.f] * r.l),
    thresholds=dense_everywhere, l=layers("num_hidden_layers", 30), n=size("num_attention_heads", 8),
    k=size("num_key_value_heads", 4), h=size("head_dim", 256), h_full=size("global_head_dim", 512),
    k_full=size("num_global_key_value_heads", None, null=None), heads=Rule(("per_layer_config",), _each_heads), mlp_bias=False,
    act=word("hidden_activation", "gelu_pytorch_tanh", ACTIVATIONS), tied=flag("tie_word_embeddings", True),
    w=size("sliding_window", 512), pattern=6, masks=by_type(every_nth_full),
    windows=derived(lambda r: [*r.masks[:-1], None]),  # transformers makes the last layer full
    logit_softcap=number("final_logit_softcapping", None), kv_tied=flag("attention_k_eq_v", False),
    shared=size("num_kv_shared_layers", 0, least=0), doubled=flag("use_double_wide_mlp", False),
    v_layers=size("vocab_size_per_layer_input", 262144), i=size("hidden_size_per_layer_input", 256, least=0),
    sparse=flag("enable_moe_block", False), e=_asked("num_experts"), a=_asked("top_k_experts"),
    f_expert=_asked("moe_intermediate_size"),
    one_way=fixed("use_bidirectional_attention", "vision", "Gemma 4 read here is causal"),
)  # fmt: skip


def _list_of(field: str, one: Rule) -> Rule:
    """A list with what *one* reads for each layer; or once, for all."""

    def read(r: Reading) -> list[Any]:
        found = r.config.get(field)
        if not isinstance(found, list):
            return [one.read(r)] * r.l
        if len(found) != r.l:
            raise r.refuse(field, f"a list of {r.l} entries, one a layer ({r.field_of('l')})")
        return [one.read(Reading(r.knobs, {field: entry}, r.where)) for entry in found]

    return Rule((field,), read)


def _sparse(r: Reading) -> list[bool]:
    """Which feed-forwards cut their gates off: the first ten of more than ten layers, unless each layer's share is given."""
    field = "activation_sparsity_pattern"
    shares = r.config.get(field)
    if shares is None:
        return [i < 10 < r.l for i in range(r.l)]
    if not isinstance(shares, list) or len(shares) != r.l or not all(type(x) in (int, float) and 0 <= x < 1 for x in shares):
        raise r.refuse(field, f"a list of {r.l} numbers from 0 to below 1, one a layer ({r.field_of('l')})")
    return [share > 0 for share in shares]


def _others(r: Reading) -> int:
    """The streams beside the first; the heads share out the width, although they need not."""
    r.check_divides("d", "n")
    if r.active >= r.streams:
        raise r.refuse("altup_active_idx", f"one of {r.streams} streams, counted from 0")
    return int(r.streams) - 1


GEMMA3N = GEMMA4.but(
    prefix="Gemma3n", wiring=gemma3n, v=size("vocab_size", 262400), d=size("hidden_size", 2048), f=None,
    widths=_list_of("intermediate_size", size("intermediate_size", 16384)), l=layers("num_hidden_layers", 35),
    thresholds=Rule(("activation_sparsity_pattern",), _sparse), k=size("num_key_value_heads", 2),
    heads=derived(lambda r: [(r.h, r.k)] * r.l), h_full=None, k_full=None, kv_tied=False, doubled=False, one_way=None,
    pattern=5, windows=by_type(every_nth_full), masks=None, logit_softcap=number("final_logit_softcapping", 30.0),
    shared=size("num_kv_shared_layers", 15, least=0), i=size("hidden_size_per_layer_input", 256),
    others=derived(_others), streams=size("altup_num_inputs", 4, least=2),
    active=size("altup_active_idx", 0, least=0), rank=size("laurel_rank", 64), clip=number("altup_coef_clip", 120.0),
    scaled=fixed("altup_correct_scale", True, "without, transformers stores a scale that nothing reads"),
    sparse=False, e=None, a=None, f_expert=None,
)  # fmt: skip

FAMILIES = {"gemma3n_text": GEMMA3N, "gemma4_text": GEMMA4}
