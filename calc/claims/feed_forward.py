"""Claims on the feed-forward network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import sympy

from ..blocks.attention import Attention
from ..blocks.mixer import SqueezeExcitation
from ..blocks.mlp import MLP, Activation, GatedMLP, gelu, relu, silu
from ..model import trace
from ..tensor import Step
from .fact import B, Between, D, F, Fact, H, K, N, T, counts, fact, form, model, parts, pieces, ratio, weights_of, years

INDUSTRY = ("llama-7b", "mistral-7b", "llama-3-8b", "llama-3-70b", "gemma-7b", "qwen2-7b", "qwen2.5-72b", "qwen3-8b")


def gpt2_size() -> list[Fact]:
    """The feed-forward of GPT-2 small."""
    sizes = {D: 768, F: 3072}
    biased = form(MLP(f=F, bias=True))
    return [
        fact("without biases", form("mlp").subs(sizes), Decimal("4.7e6"), of=form("mlp")),
        fact("with biases", biased.subs(sizes), of=biased),
        fact("of the model, a layer", parts("gpt2", "mlp") // 12, Decimal("4.7e6")),
    ]


def plain_size() -> list[Fact]:
    """Parameters of the plain feed-forward."""
    return [fact("parameters", form("mlp"), 2 * D * F), fact("at f = 4d", form("mlp", F=4 * D), 8 * D**2)]


def gated_size() -> list[Fact]:
    """Parameters of a gated one as wide as the plain one."""
    return [fact("at f = 4d", form("gated-mlp", F=4 * D), 12 * D**2)]


def palm_width() -> list[Fact]:
    """PaLM's hidden width."""
    palm = model("palm-540b")
    return [
        fact("width", palm.embedding.d, 18432), fact("hidden width", pieces(palm, GatedMLP)[0].f, 73728),
        fact("their ratio", ratio(pieces(palm, GatedMLP)[0].f, palm.embedding.d), 4, of=F / D),
    ]  # fmt: skip


def unshrunk() -> list[Fact]:
    """A gated feed-forward at f = 4d beside attention, and beside the plain one."""
    gated = form("gated-mlp", F=4 * D)
    return [
        fact("times the attention", ratio(gated, form("mha")), Fraction(3, 2)),
        fact("times the plain feed-forward", ratio(gated, form("mlp", F=4 * D))),
    ]


def equal_width() -> Any:
    """The hidden width at which gated and plain have equally many parameters, solved for."""
    (found,) = sympy.solve(form("gated-mlp") - form("mlp", F=4 * D), F)
    return found


def two_thirds() -> list[Fact]:
    """The width of equal parameters, and LLaMA's rounding of it."""
    width, llama = equal_width(), pieces(model("llama-7b"), GatedMLP)[0].f
    return [
        fact("f of equal parameters", width, 8 * D / 3),
        fact("parameters there", form("gated-mlp", F=width), 8 * D**2),
        fact("that width at d = 4096, rounded up to a multiple of 256", rounded_up(width, 4096, 256), 11008, of=width),
        fact("LLaMA-7B's", llama, 11008),
        fact("its parameters in d²", ratio(form("gated-mlp").subs({D: 4096, F: llama}), 4096**2), of=3 * F / D),
    ]


def rounded_up(width: Any, d: int, multiple: int) -> int:
    """A width at d, rounded up to a multiple."""
    exact = sympy.Rational(width.subs(D, d))
    return int(sympy.ceiling(exact / multiple)) * multiple


def llama_width() -> list[Fact]:
    """LLaMA's hidden width in units of d."""
    width, llama = ratio(equal_width(), D), pieces(model("llama-7b"), GatedMLP)[0].f
    return [
        fact("before rounding", width, Decimal("2.67"), condition=True),
        fact("LLaMA-7B", ratio(llama, 4096), Decimal("2.67"), of=F / D),
    ]


def third_matrix() -> list[Fact]:
    """Three matrices instead of two."""
    return [fact("gated over plain at one width", ratio(form("gated-mlp"), form("mlp")), Fraction(3, 2))]


def shazeer_width() -> list[Fact]:
    """The two widths of the ablations."""
    width = equal_width().subs(D, 768)
    return [
        fact("hidden width of the gated ones", width, 2048, of=equal_width()),
        fact("plain", form("mlp").subs({D: 768, F: 3072}), 4_718_592, of=form("mlp")),
        fact("gated", form("gated-mlp").subs({D: 768, F: width}), 4_718_592, of=form("gated-mlp")),
    ]


def mistral_width() -> list[Fact]:
    """Mistral's hidden width beside 8d/3 rounded to 128."""
    found = pieces(model("mistral-7b"), GatedMLP)[0].f
    return [
        fact("Mistral-7B's hidden width", found, rounded_up(equal_width(), 4096, 128), of=F),
        fact("in units of d", ratio(found, 4096), of=F / D),
    ]


def qwen_widths() -> list[Fact]:
    """Qwen's hidden widths in units of d."""
    found = []
    for name in ("qwen2-7b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-32b"):
        qwen = model(name)
        found.append(fact(name, ratio(pieces(qwen, GatedMLP)[0].f, qwen.embedding.d), Decimal("2.7"), of=F / D))
    return found


def gated_flops() -> list[Fact]:
    """FLOPs a token of both."""
    plain, gated = (form(name, "flops", F=f) / (B * T) for name, f in (("mlp", 4 * D), ("gated-mlp", equal_width())))
    return [
        fact("plain, two a multiply-add", plain, 8 * D**2),
        fact("gated at 8d/3", gated, 8 * D**2),
        fact("multiply-adds of either", gated / 2),
        fact("gated over plain", ratio(gated, plain), 1),
    ]


def kept(component: Any, *recomputed: str) -> Any:
    """Elements a token that autograd keeps besides the input, less those that the named operations write."""
    budget = trace(component, Step.train(B, T), D)
    saved = {tensor.storage for line in budget.lines for tensor in line.saved}
    made = {tensor.storage for line in budget.lines for tensor in line.written}
    dropped = {tensor.storage for line in budget.lines if line.path in recomputed for tensor in line.written}
    return sympy.expand(sum(tensor.numel for tensor in saved & made - dropped) / (B * T))


def gated_activations() -> list[Fact]:
    """What autograd keeps of each feed-forward."""
    gated = GatedMLP(f=equal_width(), act=silu)
    plain, smooth = kept(MLP(f=4 * D, act=relu)), kept(MLP(f=4 * D, act=gelu))
    whole, fused, least = kept(gated), kept(gated, "act"), kept(gated, "act", "mul")
    return [
        fact("one hidden tensor over the other", ratio(equal_width(), 4 * D), Fraction(2, 3)),
        fact("kept with ReLU", plain), fact("kept with GELU", smooth), fact("kept by SwiGLU", whole),
        fact("kept by SwiGLU, act and product in one kernel", fused),
        fact("the same, the product computed again", least),
        fact("SwiGLU keeps less than ReLU", bool(whole.subs(D, 1) < plain.subs(D, 1)), True),
        fact("SwiGLU at its least keeps less than ReLU", bool(least.subs(D, 1) < plain.subs(D, 1)), True),
    ]  # fmt: skip


def silu_minimum() -> list[Fact]:
    """The least value of x·σ(x), where its derivative vanishes, and its slope at 0."""
    x = sympy.Symbol("x", real=True)
    swish = x / (1 + sympy.exp(-x))
    place = -1 - sympy.LambertW(sympy.exp(-1))  # x + 1 = −e^x there, so that x·σ(x) = x + 1
    steepness, least = (expr.subs(x, place).evalf(30) for expr in (sympy.diff(swish, x), swish))
    return [
        fact("slope at −1 − W(1/e) is 0", bool(abs(steepness) < 1e-25), True),
        fact("least value", Fraction(str(least.round(20))), Decimal("-0.278"), of=sympy.sympify(place + 1)),
        fact("slope at 0", sympy.diff(swish, x).subs(x, 0)),
    ]


DATES = (
    ("GELU", "arXiv:1606.08415", 2016), ("GLU", "arXiv:1612.08083", 2016), ("SiLU", "arXiv:1702.03118", 2017),
    ("Swish", "arXiv:1710.05941", 2019), ("SwiGLU", "arXiv:2002.05202", 2020),
)  # fmt: skip


def activation_dates() -> list[Fact]:
    """The years of the papers."""
    return [fact(f"year of {name}, {paper}", years(paper)[0], printed) for name, paper, printed in DATES]


def feed_forward_share(name: str) -> Any:
    """Parameters of a preset's feed-forwards over those of its attention."""
    return ratio(parts(name, "mlp"), parts(name, "attention"))


def industry_ratio() -> list[Fact]:
    """Feed-forward over attention in well-known models."""
    at_8_3 = ratio(form("gated-mlp", F=equal_width()), form("mha"))
    grouped = ratio(form("gated-mlp"), form(Attention(n=N, k=K, h=H)))
    listed = [fact(name, feed_forward_share(name), Between(2, 4), of=grouped) for name in INDUSTRY]
    return [fact("4d² and 8d²", at_8_3, Between(2, 4)), *listed]


def twice() -> list[Fact]:
    """Feed-forward over attention at f = 4d."""
    return [
        fact("plain over attention", ratio(form("mlp", F=4 * D), form("mha")), 2),
        fact("gated at 8d/3 over attention", ratio(form("gated-mlp", F=equal_width()), form("mha")), 2),
        fact("attention", form("mha"), 4 * D**2),
    ]


def any_width() -> list[Fact]:
    """Which shares depend on d."""
    norms = 2 * form("layernorm")
    block = weights_of("pre-norm", F=4 * D)
    return [
        fact("feed-forward over attention", ratio(form("mlp", F=4 * D), form("mha")), 2),
        fact("share of a block without norms", ratio(form("mlp", F=4 * D), block)),
        fact("share of a block with norms", ratio(form("mlp", F=4 * D), block + norms)),
    ]


def second_feed_forward() -> list[Fact]:
    """Two feed-forwards over one attention."""
    return [fact("times the attention", ratio(weights_of("two-feed-forwards", F=4 * D) - form("mha"), form("mha")), 4)]


def gate_parameters() -> list[Fact]:
    """The activation of the gate is no parameter."""
    sigmoid = GatedMLP(f=F, act=Activation("sigmoid", "output"))
    return [
        fact("parameters with either gate", form(sigmoid), form("gated-mlp")),
        fact("f of equal parameters", equal_width(), 8 * D / 3),
    ]


def bulk() -> list[Fact]:
    """Shares of Llama-3-8B."""
    total, head = counts("llama-3-8b").total, counts("llama-3-8b").head
    mlp, tables = parts("llama-3-8b", "mlp"), counts("llama-3-8b").embedding
    return [
        fact("share of the feed-forwards", ratio(mlp, total)),
        fact("share of the embedding and the head", ratio(tables + head, total)),
        fact("both together are most of it", 2 * (mlp + tables + head) > total, True),
    ]


def named_activations() -> list[Fact]:
    """The activations of models that the table names."""
    printed = {"gpt2": "relu", "bert-base": "gelu"}
    return [
        fact(f"activation of {name}", pieces(model(name), Activation)[0].name.removesuffix("_tanh"), word)
        for name, word in printed.items()
    ]


def channel_gate() -> list[Fact]:
    """Elements of a gate: of each position's channels, or of the sequence's."""
    gates = {}
    for name, component, path in (("gated", GatedMLP(f=F), "act"), ("squeezed", SqueezeExcitation(f=F), "up")):
        (line,) = (line for line in trace(component, Step.forward(B, T), D).lines if line.path == path)
        gates[name] = line.written[0].numel
    return [
        fact("gates of a gated feed-forward", gates["gated"], B * T * F),
        fact("gates of squeeze and excitation", gates["squeezed"]),
        fact("both gate each position by itself", bool(gates["squeezed"].has(T)), True),
    ]


FACTS: Mapping[str, Callable[[], list[Fact]]] = MappingProxyType({
    "ffn-gpt2": gpt2_size, "ffn-relu": plain_size, "glu-12d2": gated_size, "palm-4d": palm_width, "glu-unshrunk": unshrunk,
    "swiglu-8-3": two_thirds, "llama-width": llama_width, "third-matrix": third_matrix, "shazeer-768": shazeer_width,
    "mistral-rounding": mistral_width, "qwen-8-3": qwen_widths, "swiglu-flops": gated_flops,
    "swiglu-activation": gated_activations, "silu-min": silu_minimum, "activations": activation_dates,
    "attn-ffn-ratio": industry_ratio, "ffn-twice": twice, "ratio-any-d": any_width, "ffn-two-layers": second_feed_forward,
    "glu-not-swiglu": gate_parameters, "quantise": bulk, "gpt2-activation": named_activations, "se-net": channel_gate,
})  # fmt: skip
