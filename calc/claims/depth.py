"""Claims on norms, residuals and depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from statistics import median
from types import MappingProxyType
from typing import Any

import sympy

from ..blocks.attention import Attention
from ..blocks.mla import MLA
from ..blocks.mlp import MLP
from ..blocks.norm import LayerNorm
from ..catalogue import BLOCKS
from ..dims import symbol
from ..model import Embedding, Layer, LMHead, Model, Stack
from ..tables import presets
from ..tensor import Step
from .fact import B, Between, D, F, Fact, L, N, T, counts, fact, form, layers, model, parts, pieces, ratio, weights_of

V = symbol("V")


def lines_of(subject: Any, word: str) -> Any:
    """How many operations of a kind, or whose name ends so, a model runs."""
    lines = subject.budget(Step.forward(B, T)).lines
    return sum(line.copies for line in lines if line.kind == word or line.path.endswith(word))


def stacked(block: str, norm: LayerNorm | None = None) -> Model:
    """A model of L layers of a block of the catalogue."""
    made = BLOCKS[block].make(D, N, F)
    stack = Stack(name="decoder", layers=(Layer(block=made, l=L),), norm=norm)
    return Model(name=block, embedding=Embedding(v=V, d=D), stack=stack, head=LMHead(v=V, tied=True))


def residual_sums() -> list[Fact]:
    """Sums of a branch and the stream."""
    return [
        fact("sums in l blocks", lines_of(stacked("pre-norm"), "_residual"), 2 * L),
        fact("with a second feed-forward", lines_of(stacked("two-feed-forwards"), "_residual"), 3 * L),
        fact("in GPT-2", lines_of(model("gpt2"), "_residual"), of=2 * L),
    ]


def norm_parameters() -> list[Fact]:
    """Parameters of one norm."""
    nanochat = model("karpathy_nanochat")
    norms = sum(leaf.params for leaf in nanochat.budget(Step.forward(1, 64)).components() if "norm" in leaf.path)
    return [
        fact("LayerNorm", form("layernorm"), 2 * D), fact("RMSNorm", form("rmsnorm"), D),
        fact("all of nanochat's norms", norms, 0),
    ]  # fmt: skip


def final_norm() -> list[Fact]:
    """Norms of stacks of either kind."""
    return [
        fact("norms of l pre-norm blocks and the last", lines_of(stacked("pre-norm", LayerNorm()), "norm"), 2 * L + 1),
        fact("norms of l post-norm blocks", lines_of(stacked("post-norm"), "norm")),
        fact("norms of GPT-2", lines_of(model("gpt2"), "norm"), 2 * layers("gpt2") + 1),
        fact("norms of LLaMA-7B", lines_of(model("llama-7b"), "norm"), 2 * layers("llama-7b") + 1),
    ]


def norm_share() -> list[Fact]:
    """Both layer norms of a block with f = 4d."""
    norms = 2 * form("layernorm")
    share = ratio(norms, weights_of("pre-norm", F=4 * D) + norms)
    return [fact("share at d = 512", share.subs(D, 512), Decimal("0.0007"), of=share)]


def centring() -> list[Fact]:
    """What a layer norm has more."""
    return [fact("parameters that RMSNorm does without", form("layernorm") - form("rmsnorm"), D)]


def deepnet_parameters() -> list[Fact]:
    """Parameters that scaled residuals add to a post-norm block."""
    return [fact("parameters added to a block of two branches", form("deepnet") - form("post-norm"), 4)]


DEPTHS = (("gpt2", 12), ("gpt2-medium", 24), ("gpt2-large", 36), ("llama-7b", 32), ("llama-2-70b", 80))


def depth_table() -> list[Fact]:
    """Layers of the models of the table."""
    return [fact(f"layers of {name}, {counts(name).total:,} parameters", layers(name), printed) for name, printed in DEPTHS]


def ninety_six() -> list[Fact]:
    """GPT-3's layers, and its parameters by 12d² a layer."""
    block = L * weights_of("pre-norm", F=4 * D)
    return [
        fact("layers of gpt3-175b", layers("gpt3-175b"), 96),
        fact("by 12d² a layer at d = 12288", block.subs({L: 96, D: 12288}), of=block),
        fact("parameters of gpt3-175b", counts("gpt3-175b").total),
    ]


def albert() -> list[Fact]:
    """Where ALBERT's saving comes from: bare encoders with their poolers."""
    bert, small = model("bert-base", architectures=["BertModel"]), model("albert-base", architectures=["AlbertModel"])
    apart = model("albert-base", architectures=["AlbertModel"], num_hidden_groups=12)
    whole, shared, own = (counts(found).total for found in (bert, small, apart))
    encoder = parts(bert, "layer")
    layer = encoder // 12
    return [
        fact("BERT-base", whole), fact("ALBERT-base", shared),
        fact("saved in all", Fraction(whole - shared, whole), Decimal("0.9")),
        fact("saved by sharing alone, of the model", Fraction(own - shared, whole), Decimal("0.9")),
        fact("of the encoder", Fraction(own - shared, encoder)),
        fact("sharing's part of the saving", Fraction(own - shared, whole - shared)),
        fact("eleven layers of twelve", own - shared, 11 * layer),
    ]  # fmt: skip


def shapes() -> list[tuple[str, int, int, Any]]:
    """Name, width, layers and heads of every preset, the main stack's."""
    found = []
    for name in presets():
        made = model(name)
        heads = [(part.h if hasattr(part, "h") else part.p + part.r) for part in _attention(made.stack)]
        found.append((name, made.embedding.d, layers(made), heads))
    return found


def _attention(stack: Any) -> list[Any]:
    return [part for kind in (Attention, MLA) for part in pieces(stack, kind)]


def aspect_ratios() -> list[Fact]:
    """Width over depth of every preset."""
    found = {name: Fraction(d, l) for name, d, l, _ in shapes()}
    far = {name: float(share) for name, share in found.items() if not 50 <= share <= 200}
    return [
        fact("presets", len(found)),
        fact("median of d/l", Fraction(median(found.values()))),
        fact("presets with d/l from 50 to 200", len(found) - len(far)),
        fact("least", min(found.values())), fact("most", max(found.values())),
        fact("the others", ", ".join(f"{name} {share:.0f}" for name, share in far.items())),
    ]  # fmt: skip


def head_widths() -> list[Fact]:
    """Head widths of every preset."""
    found = {name: set(heads) for name, _, _, heads in shapes()}
    outside = {name: sorted(heads) for name, heads in found.items() if not all(64 <= head <= 128 for head in heads)}
    inside = Fraction(len(found) - len(outside), len(found))
    return [
        fact("presets", len(found)),
        fact("share of them with heads 64 to 128 wide", inside, Between(Fraction(1, 2), 1)),
        fact("the others", ", ".join(f"{name} {' '.join(map(str, heads))}" for name, heads in outside.items())),
    ]


def scaled_llama() -> list[Fact]:
    """The smallest and the largest LLaMA."""
    found = []
    for name, printed in (("llama-7b", (32, 4096, 32)), ("llama-65b", (80, 8192, 64))):
        made = model(name)
        sizes = {"layers": layers(made), "width": made.embedding.d, "heads": pieces(made, Attention)[0].n}
        found += [fact(f"{what} of {name}", size, said) for (what, size), said in zip(sizes.items(), printed, strict=True)]
    return found


def one_knob() -> list[Fact]:
    """All sizes of nanochat as formulas of its depth: d = 64l, heads 128 wide, f = 4d, the vocabulary fixed."""
    knob = form("nanochat", D=64 * L, N=L / 2, K=L / 2, H=128, F=256 * L)
    found = [fact("parameters at depth l", knob)]
    for name, depth in (("nanochat", 20), ("nanochat-d32", 32)):
        (v,) = {table.v for table in pieces(model(name), Embedding)}
        found.append(fact(f"{name}, v = {v}", knob.subs({L: depth, V: v}), counts(name).total, of=knob))
    return found


def nanochat() -> list[Fact]:
    """nanochat as its repository has it today."""
    made = model("karpathy_nanochat")
    leaves = made.budget(Step.forward(1, 64)).components()
    named = {leaf.path.rpartition(".")[2] for leaf in leaves if leaf.path.endswith("lambda")}
    mlp, d = pieces(made, MLP)[0], made.embedding.d
    return [
        fact("kinds of scalar parameters", len(named), 4),
        fact("parameters of its norms", sum(leaf.params for leaf in leaves if "norm" in leaf.path), 0),
        fact("activation", mlp.act.name, "relu_squared"), fact("f/d", ratio(mlp.f, d), 4),
        fact("feed-forward, a layer", form("mlp", F=4 * D), 8 * D**2),
        fact("value embeddings and their gates besides", parts(made, "value_embedding")),
        fact("smear gate besides", parts(made, "smear")),
    ]  # fmt: skip


def fixed_length() -> list[Fact]:
    """Parameters that depend on the length."""
    mixing = form("token-mixing")
    return [
        fact("token mixing", mixing), fact("more for each position", sympy.diff(mixing, T)),
        fact("token mixing depends on the length", bool(mixing.has(T)), True),
        fact("attention depends on the length", bool(form("mha").has(T)), False),
    ]  # fmt: skip


def orders() -> list[Fact]:
    """20 to 1 turned round."""
    apart = Fraction(20) / Fraction(1, 20)
    power = sympy.log(apart.numerator, 10)
    return [
        fact("20 over 1/20", apart),
        fact("orders of magnitude", Fraction(str(power.round(6))), Decimal("3"), of="log₁₀ 400"),
    ]


def chinchilla() -> list[Fact]:
    """Tokens a parameter, the FLOPs of 6ND, and the optimum of a budget at 20 tokens a parameter."""
    parameters, tokens, budget = 70 * 10**9, 1400 * 10**9, symbol("C")
    step = form("pre-norm", "train_flops").subs(T, symbol("X")) / (B * symbol("X"))
    each = int(ratio(step.subs(symbol("X"), 0), weights_of("pre-norm")))  # of a parameter and a token, scores aside
    (best,) = sympy.solve(each * N * 20 * N - budget, N)
    work = each * parameters * tokens
    return [
        fact("tokens a parameter", Fraction(tokens, parameters), 20),
        fact("training FLOPs of a parameter and token", each, 6), fact("FLOPs by 6ND", work, of=each * N * D),
        fact("parameters for that many FLOPs", best.subs(budget, work), parameters, of=best),
    ]  # fmt: skip


def growing_stream() -> list[Fact]:
    """Sums that nothing shrinks."""
    return [fact("sums on a pre-norm stream of l blocks", lines_of(stacked("pre-norm"), "_residual"), 2 * L)]


FACTS: Mapping[str, Callable[[], list[Fact]]] = MappingProxyType({
    "residual-count": residual_sums, "norm-params": norm_parameters, "final-norm": final_norm, "norm-share": norm_share,
    "rmsnorm-centre": centring, "deepnet": deepnet_parameters, "depth-table": depth_table, "depth-96": ninety_six,
    "albert": albert, "kaplan-shape": aspect_ratios, "head-dim": head_widths, "scaling-width": scaled_llama,
    "depth-knob": one_knob, "nanochat": nanochat, "mixer": fixed_length, "orders": orders, "chinchilla": chinchilla,
    "residual-scale": growing_stream,
})  # fmt: skip
