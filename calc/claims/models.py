"""Claims on whole blocks and models, mixtures and adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import sympy

from ..blocks.attention import Attention, CrossAttention
from ..blocks.mlp import MLP, GatedMLP, relu
from ..blocks.moe import MoE
from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions, Rotary
from ..blocks.wiring import Block, Residual
from ..budget import widths
from ..convention import flops
from ..dims import symbol
from ..model import trace
from ..tables import presets
from ..tensor import Adapters, Step
from .fact import (
    B,
    Between,
    D,
    E,
    F,
    Fact,
    H,
    K,
    L,
    N,
    R,
    T,
    counts,
    fact,
    form,
    layers,
    model,
    parts,
    pieces,
    ratio,
    weights_of,
)

A = symbol("A")
SIZES = {D: 512, F: 2048, N: 8}


def block_512() -> list[Fact]:
    """The block of the table, without biases and with all that torch's layer has."""
    block = form("pre-norm")
    biased = Block(branches=(
        Residual(name="attention", branch=Attention(n=N, k=N, h=D / N, qkv_bias=True, o_bias=True), outer=LayerNorm()),
        Residual(name="mlp", branch=MLP(f=F, act=relu, bias=True), outer=LayerNorm()),
    ))  # fmt: skip
    attention, mlp, norms = form("mha"), form("mlp"), 2 * form("layernorm")
    total = block.subs(SIZES)
    return [
        fact("attention", attention.subs(SIZES), 1_048_576, of=attention),
        fact("feed-forward", mlp.subs(SIZES), 2_097_152, of=mlp),
        fact("two norms", norms.subs(SIZES), 2_048, of=norms), fact("block", total, 3_147_776, of=block),
        fact("share of the feed-forward", ratio(mlp, block).subs(SIZES), Decimal("0.666"), of=ratio(mlp, block)),
        fact("with all biases", form(biased).subs(SIZES), of=form(biased)),
    ]  # fmt: skip


def stack_512() -> list[Fact]:
    """Six such blocks and a table of 32,000 rows."""
    v = symbol("V")
    return [
        fact("six blocks", 6 * form("pre-norm").subs(SIZES), 18_886_656, of=6 * form("pre-norm")),
        fact("embedding of 32,000", form("learned-positions", M=v).subs({D: 512, v: 32_000}), 16_384_000, of=v * D),
    ]


def transformer_base() -> list[Fact]:
    """The original base model: matrices, then biases and norms."""
    made = model("transformer", attention_bias=True)
    matrices = 6 * form("mha") + 6 * form("mlp") + 6 * (form("mha") + form(CrossAttention(n=N, k=N, h=D / N)) + form("mlp"))
    base, total, table = matrices.subs(SIZES), counts(made).total, counts(made).embedding
    encoder, decoder = (heads * form("mha") + form("mlp", F=4 * D) for heads in (1, 2))
    return [
        fact("encoder layer in d²", ratio(encoder, D**2), 12), fact("decoder layer in d²", ratio(decoder, D**2), 16),
        fact("12 layers", base, Decimal("44e6"), of=matrices), fact("embedding of 37,000", table, Decimal("19e6")),
        fact("both", base + table, Decimal("63e6")), fact("biases and norms besides", total - base - table),
        fact("model", total), fact("short of the paper's 65M", Fraction(65 * 10**6 - total, 65 * 10**6)),
    ]  # fmt: skip


def decoder_block() -> list[Fact]:
    """What the decoder's block of an encoder-decoder has that the encoder's has not."""
    made = model("transformer", attention_bias=True)
    encoder, decoder = (parts(made, name) // 6 for name in ("encoder", "decoder"))
    cross = form(CrossAttention(n=N, k=N, h=D / N, q_bias=True, k_bias=True, v_bias=True, o_bias=True)) + form("layernorm")
    cache = form(CrossAttention(n=N, k=N, h=H), "kv")
    causal = form(Attention(n=N, k=N, h=D / N, qkv_bias=True, o_bias=True))
    return [
        fact("parameters that the encoder-decoder's decoder block has more", decoder - encoder, 0, of=cross),
        fact("its cache for an encoder's output of s tokens (bf16)", cache),
        fact("encoder-only less decoder-only attention", form("mha-biased") - causal, 0),
    ]


def dense_coupling() -> list[Fact]:
    """Matrix FLOPs a token of a dense block are twice its parameters."""
    weights, work = weights_of("pre-norm"), form("pre-norm", "flops") / (B * T)
    scores = work - work.subs(T, 0)
    return [
        fact("FLOPs a token without scores", ratio(work.subs(T, 0), weights), 2, of=2 * weights),
        fact("and with l layers for one", ratio(L * work, work), L),
        fact("FLOPs a token of the scores, which have no parameters", scores),
    ]


def nanogpt_sizes() -> list[Fact]:
    """GPT-2's sizes, which are nanoGPT's defaults, and what it has not."""
    gpt2 = model("gpt2")
    return [
        fact("layers", layers(gpt2), 12), fact("width", gpt2.embedding.d, 768),
        fact("heads", pieces(gpt2, Attention)[0].n, 12), fact("f/d", ratio(pieces(gpt2, MLP)[0].f, gpt2.embedding.d), 4),
        fact("tables of learned positions", len(pieces(gpt2, LearnedPositions)), 1),
        fact("rotations", len(pieces(gpt2, Rotary)), 0), fact("gates", len(pieces(gpt2, GatedMLP)), 0),
    ]  # fmt: skip


# -- mixtures ----------------------------------------------------------------------------------------------------------


def mixtral() -> list[Fact]:
    """Mixtral beside eight Mistrals."""
    found, mistral = counts("mixtral-8x7b"), counts("mistral-7b").total
    return [
        fact("parameters", found.total, Decimal("47e9")), fact("eight times Mistral-7B", 8 * mistral, Decimal("47e9")),
        fact("active", found.active, Decimal("14e9")), fact("twice Mistral-7B", 2 * mistral, Decimal("14e9")),
    ]  # fmt: skip


def moe_parameters() -> list[Fact]:
    """A mixture of e experts beside one feed-forward."""
    mixture, dense = form("moe"), form("gated-mlp")
    mixtral, mistral = counts("mixtral-8x7b"), counts("mistral-7b").total
    return [
        fact("parameters of the mixture", mixture, dense), fact("more than e experts: the router", mixture - E * dense),
        fact("active ones", form("moe", "active")), fact("FLOPs", form("moe", "flops")),
        fact("Mixtral over Mistral-7B", Fraction(mixtral.total, mistral)),
        fact("active over Mistral-7B", Fraction(mixtral.active, mistral)),
    ]  # fmt: skip


def fine_experts() -> list[Fact]:
    """Experts of DeepSeek-V2 and of Mixtral."""
    fine, coarse = (pieces(model(name), MoE)[0] for name in ("deepseek-v2", "mixtral-8x7b"))
    narrow = Fraction(fine.expert.f, model("deepseek-v2").embedding.d)
    wide = Fraction(coarse.expert.f, model("mixtral-8x7b").embedding.d)
    return [
        fact("experts of DeepSeek-V2", fine.e), fact("experts of Mixtral", coarse.e),
        fact("more of them", fine.e > coarse.e, True),
        fact("expert width over d, DeepSeek-V2", narrow), fact("expert width over d, Mixtral", wide),
        fact("narrower", narrow < wide, True),
        fact("a shared expert", fine.shared is not None and coarse.shared is None, True),
        fact("parameters of DeepSeek-V2", counts("deepseek-v2").total), fact("active", counts("deepseek-v2").active),
    ]  # fmt: skip


def utilisation() -> list[Fact]:
    """Stored and active parameters of every mixture."""
    stored, used = Between(10**11, 10**12), Between(10**10, 10**11)
    v3 = counts("deepseek-v3")
    found = [
        fact("DeepSeek-V3, stored", v3.total, stored, condition=True),
        fact("DeepSeek-V3, active", v3.active, used, condition=True),
        fact("active without the input table, the model card's 37B", v3.active_without_input),
        fact("Mixtral 8x7B, stored", counts("mixtral-8x7b").total, stored),
        fact("Mixtral 8x7B, active", counts("mixtral-8x7b").active, used),
    ]  # fmt: skip
    for name in presets():
        both = counts(name)
        if both.active != both.total:
            found.append(fact(f"active share of {name}", Fraction(both.active, both.total)))
    return found


def moe_flops() -> list[Fact]:
    """FLOPs of a mixture follow its active parameters; the experts that a batch touches do not."""
    work, active = form("moe", "flops") / (B * T), form("moe", "active")
    touched = E * (1 - (1 - A / E) ** B)
    router = form("moe") - E * form("gated-mlp")
    return [
        fact("FLOPs a token over active parameters", ratio(work, active), 2, of=work),
        fact("the FLOPs are more than those of the active parameters", bool(sympy.simplify(work - 2 * active) != 0), True),
        fact("router's part", router),
        fact("distinct experts expected of Mixtral at batch 1", touched.subs({E: 8, A: 2, B: 1}), of=touched),
        fact("at batch 8", touched.subs({E: 8, A: 2, B: 8}), of=touched),
        fact("at batch 64", touched.subs({E: 8, A: 2, B: 64}), of=touched),
    ]


def adapters() -> list[Fact]:
    """Adapters on attention and on all matrices, and what frozen weights save."""
    attention, mlp = Attention(n=N, k=K, h=H), GatedMLP(f=F)
    targets = (("q and v", attention, "qv"), ("all four of attention", attention, "qkvo"))
    found = [fact(f"trained, {name}", _trained(part, *letters)) for name, part, letters in targets]
    found.append(fact("trained, the feed-forward's three", _trained(mlp, "gate", "up", "down")))
    llama, step = model("llama-3-8b"), Step.train(1, 2048)
    full = llama.budget(step)
    few = llama.budget(step, adapters=Adapters(16, frozenset("qv")))
    most = llama.budget(step, adapters=Adapters(16, frozenset({"q", "k", "v", "o", "gate", "up", "down"})))
    total = full.parameters().total
    return [
        *found,
        fact("Llama-3-8B, rank 16 on q and v", few.parameters().trainable),
        fact("share of the model", Fraction(few.parameters().trainable, total)),
        fact("rank 16 on every matrix", most.parameters().trainable),
        fact("q and v train less than every matrix", few.parameters().trainable < most.parameters().trainable, True),
        fact("training FLOPs, q and v, of full training's", Fraction(flops(few).total, flops(full).total)),
        fact("kept activations (bf16), q and v, of full training's", _kept(few, full)),
    ]


def _trained(component: Any, *targets: str) -> Any:
    adapted = trace(component, Step.train(B, T), D, adapters=Adapters(R, frozenset(targets)))
    return adapted.parameters().trainable


def _kept(few: Any, full: Any) -> Fraction:
    sizes = widths("bf16")
    return Fraction(few.activations(sizes).bytes, full.activations(sizes).bytes)


FACTS: Mapping[str, Callable[[], list[Fact]]] = MappingProxyType({
    "block-512": block_512, "stack-512": stack_512, "transformer-base": transformer_base, "same-blocks": decoder_block,
    "dense-coupling": dense_coupling, "nanogpt-sizes": nanogpt_sizes, "moe-mixtral": mixtral, "moe-params": moe_parameters,
    "moe-fine": fine_experts, "expert-utilisation": utilisation, "moe-not-flops": moe_flops, "lora": adapters,
})  # fmt: skip
