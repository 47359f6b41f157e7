"""Closed forms that papers print, each beside what the engine derives of the same block, kernels and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..blocks.attention import Attention
from ..blocks.mla import MLA
from ..blocks.mlp import MLP, gelu
from ..blocks.norm import LayerNorm
from ..blocks.position import LearnedPositions
from ..blocks.wiring import Block, Residual
from ..budget import Budget, widths
from ..convention import flops
from ..dims import Dim, symbol
from ..memory.held import States, Training
from ..model import Embedding, Layer, LMHead, Model, Stack, trace
from ..parallel.collectives import collectives, gradients
from ..parallel.layout import Layout
from ..parallel.shard import shard
from ..recorder import Recompute
from ..storage.optimizers import ADAMW_MIXED
from ..tables.table import Column, Table
from ..tensor import Kernels, Step
from ..timing.training import bubble
from .comparison import Asked, Comparison

B, D, H, L, N, S, T, V = (symbol(letter) for letter in "BDHLNSTV")
X, Y, Z = (symbol(letter) for letter in "XYZ")  # tensor, pipeline and data ranks

NOTES = (
    "B sequences, T tokens of each, S visible ones, D width, L layers, N heads of width H, V vocabulary; X tensor, Y pipeline "
    "and Z data ranks",
    "difference: what the engine counts more; nothing where the two are equal as polynomials",
)


class Form(NamedTuple):
    """A published closed form, where it stands, and the same quantity derived; ``why`` explains a difference."""

    what: str
    source: str
    published: Dim
    derived: Dim
    why: str = ""


def gpt() -> Model:
    """GPT-3's stack on symbols: pre-norm, f = 4d, biases, learned positions of T places, a tied head."""
    norm = LayerNorm()
    heads, hidden = Attention(n=N, k=N, h=D / N, qkv_bias=True, o_bias=True), MLP(f=4 * D, act=gelu, bias=True)
    branches = Residual(name="attention", branch=heads, before=norm), Residual(name="mlp", branch=hidden, before=norm)
    return Model(
        name="GPT", embedding=Embedding(v=V, d=D, position=LearnedPositions(m=T)), head=LMHead(v=V, tied=True),
        stack=Stack(name="decoder", layers=(Layer(block=Block(branches=branches), l=L),), norm=norm),
    )  # fmt: skip


def trained(recompute: Recompute = "none") -> Budget:
    """A training step with the kernels of Korthikanti et al.: scores written out, dropout by masks of a byte."""
    return gpt().budget(Step.train(B, T), Kernels(dropout="mask"), recompute)


def layer_bytes(layout: Layout, recompute: Recompute = "none") -> Dim:
    """What a layer keeps for backward on one rank, in 16 bits."""
    return shard(trained(recompute), layout).activations(widths("bf16")).layers[0].further


def _activations() -> Iterable[Form]:
    source, whole, split = "Korthikanti et al. 2022, arXiv:2205.05198", Layout(tp=X), Layout(tp=X, sequence=True)
    statistics = "the means and deviations of two norms, two bytes each"
    core = 5 * N * T / D
    for what, published, layout, mode in (
        ("a layer", 34 + core, Layout(), "none"),
        ("a layer, tensor parallel", 10 + 24 / X + core / X, whole, "none"),
        ("a layer, tensor and sequence parallel", (34 + core) / X, split, "none"),
        ("a layer, tensor parallel, attention recomputed", 10 + 24 / X, whole, "selective"),
        ("a layer, tensor and sequence parallel, attention recomputed", 34 / X, split, "selective"),
        ("a layer, all recomputed", 2, Layout(), "full"),
    ):
        why = "" if mode == "full" else statistics
        derived = layer_bytes(layout, mode)  # type: ignore[arg-type]
        yield Form(what, f"{source}, table 2", B * T * D * published, derived, why)


def _flops() -> Iterable[Form]:
    step = flops(trained())
    again = flops(trained("full"))
    yield Form("a training step", "Korthikanti et al. 2022, appendix A",
               72 * B * T * L * D**2 * (1 + T / (6 * D) + V / (12 * D * L)), step.total)  # fmt: skip
    yield Form("the same, attention recomputed", "Korthikanti et al. 2022, appendix A",
               72 * B * T * L * D**2 * (1 + T / (3 * D) + V / (12 * D * L)), flops(trained("selective")).total,
               "the paper adds three times the forward pass of the scores; one more forward is a third of that")  # fmt: skip
    yield Form("the same, every layer recomputed", "Narayanan et al. 2021, arXiv:2104.04473, equation 3",
               96 * B * T * L * D**2 * (1 + T / (6 * D) + V / (16 * D * L)), again.total)  # fmt: skip
    plain = gpt()
    matrices = 12 * D**2 * L + D * V
    yield Form("a token's training, over its own window", "Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, appendix B",
               B * T * (6 * matrices + 12 * L * D * T), flops(plain.budget(Step.train(B, T))).total)  # fmt: skip
    a_layer = 6 * B * T * D**2 + 2 * B * T**2 * D + 3 * B * N * T**2 + 2 * B * T**2 * D + 2 * B * T * D**2 + 16 * B * T * D**2
    yield Form("a forward pass, with look-ups and softmax", "Hoffmann et al. 2022 (Chinchilla), arXiv:2203.15556, appendix F",
               2 * B * T * V * D + L * a_layer + 2 * B * T * D * V, flops(plain.budget(Step.forward(B, T))).forward,
               "a look-up multiplies nothing, and elementwise work is not counted")  # fmt: skip
    visible = flops(plain.budget(Step.forward(B, T)), "exact").forward
    yield Form("a forward pass, the mask's half of the scores", "Kaplan et al. 2020, arXiv:2001.08361, table 1",
               B * T * (2 * 12 * L * D**2 + 2 * L * T * D) + 2 * B * T * D * V, visible,
               "a query sees (T + 1)/2 keys on average, not T/2")  # fmt: skip


def _parameters() -> Iterable[Form]:
    counts = gpt().budget(Step.forward(B, T)).parameters()
    yield Form("parameters", "Narayanan et al. 2021, equation 2",
               12 * L * D**2 * (1 + 13 / (12 * D) + (V + T) / (12 * L * D)), counts.total, "the last norm")  # fmt: skip
    yield Form("parameters outside the embeddings", "Kaplan et al. 2020, section 2.1",
               12 * L * D**2, counts.non_embedding, "biases and norms")  # fmt: skip


def _sent() -> Iterable[Form]:
    model, width = gpt(), widths("bf16")
    budget = model.budget(Step.train(B, T))
    inside = [one for one in collectives(budget, Layout(tp=X)) if "layer" in one.path]
    yield Form("elements a tensor rank sends a layer", "Narayanan et al. 2021, section 3.2",
               8 * B * T * D * (X - 1) / X, sum(one.sent(width) for one in inside) / 2 / L)  # fmt: skip
    split = [one for one in collectives(budget, Layout(tp=X, sequence=True)) if "layer" in one.path]
    yield Form("the same with sequence parallelism", "Korthikanti et al. 2022, section 4.2.2",
               8 * B * T * D * (X - 1) / X, sum(one.sent(width) for one in split) / 2 / L,
               "each branch's input is gathered once more for its weights' gradients, overlapped in the paper")  # fmt: skip
    total = budget.parameters().total
    for zero, times in ((0, 2), (1, 2), (2, 2)):
        found = gradients(budget, Layout(dp=Z, zero=zero))  # type: ignore[arg-type]
        yield Form(f"elements a data rank sends a step, ZeRO {zero}", "Rajbhandari et al. 2020, arXiv:1910.02054, section 7",
                   times * total * (Z - 1) / Z, sum(one.sent(width) for one in found) / 2)  # fmt: skip
    whole = gradients(budget, Layout(dp=Z, zero=3))
    yield Form("elements a data rank sends a step, ZeRO 3", "Rajbhandari et al. 2020, section 7.2.2",
               3 * total * (Z - 1) / Z, sum(one.sent(width) for one in whole) / 2,
               "what stands outside the layers is not gathered again: torch's fully_shard keeps it")  # fmt: skip


def states(zero: Any, ranks: Dim, budget: Budget) -> Dim:
    """Bytes of weights, gradients and mixed-precision Adam's states on one of so many data ranks."""
    held = States(Layout(dp=ranks, zero=zero), Training(step=Step.train(1, 1), optimizer=ADAMW_MIXED))
    held.add(budget)
    return sum(held.parts().values())


def _states() -> Iterable[Form]:
    budget = gpt().budget(Step.train(B, T))
    total = budget.parameters().total
    for zero, each in ((0, 16), (1, 4 + 12 / Z), (2, 2 + 14 / Z), (3, 16 / Z)):
        yield Form(f"bytes of the model's states, ZeRO {zero}", "Rajbhandari et al. 2020, figure 1", total * each,
                   states(zero, Z, budget))  # fmt: skip


def _pipelines() -> Iterable[Form]:
    m, chunks = symbol("M"), symbol("C")
    source = "Narayanan et al. 2021, section 2.2"
    yield Form("idle over busy time of a pipeline, M microbatches", source, (Y - 1) / m, bubble(Y, m, 1))
    yield Form("the same with C chunks interleaved", source, (Y - 1) / (m * chunks), bubble(Y, m, chunks))


def _caches() -> Iterable[Form]:
    def elements(component: Any) -> Dim:
        return sum(trace(component, Step.prefill(1, 1), D).cache(widths("fp8")).values())

    k, c, r = symbol("K"), symbol("C"), symbol("R")
    source = "DeepSeek-V2, arXiv:2405.04434, table 1"
    yield Form("cached elements a token and layer, multi-head", source, 2 * N * H, elements(Attention(n=N, k=N, h=H)))
    yield Form("the same, grouped", source, 2 * k * H, elements(Attention(n=N, k=k, h=H)))
    yield Form("the same, multi-query", source, 2 * H, elements(Attention(n=N, k=1, h=H)))
    yield Form("the same, latent", source, c + r, elements(MLA(n=N, c=c, q=None, p=H, r=r, u=H)))
    yield Form("the same with C = 4H and R = H/2: 2.25 groups", source, 9 * H / 2,
               elements(MLA(n=N, c=4 * H, q=None, p=H, r=H / 2, u=H)))  # fmt: skip


TABLES: tuple[tuple[str, Callable[[], Iterable[Form]]], ...] = (
    ("activation memory, bytes in 16 bits", _activations),
    ("FLOPs", _flops),
    ("parameters", _parameters),
    ("communication", _sent),
    ("model states", _states),
    ("pipelines", _pipelines),
    ("caches", _caches),
)


def draw(asked: Asked) -> tuple[Table, ...]:
    """Every published form, beside what is derived."""
    from ..text import text
    from ..tidy import tidy

    def written(expr: Dim) -> str:
        return text(tidy(expr))

    columns = tuple(map(Column, ("what", "published", "difference", "why", "source")))
    tables: list[Table] = []
    for title, forms in TABLES:
        rows = tuple(
            (form.what, written(form.published), written(difference(form)), form.why, form.source) for form in forms()
        )
        tables.append(Table(title, columns, rows, NOTES if not tables else ()))
    return tuple(tables)


def difference(form: Form) -> Any:
    """What is derived beyond what is published. A rank holds a key-value head of its own here: X divides N."""
    import sympy

    return sympy.expand(sympy.simplify(sympy.expand(form.derived - form.published).subs(sympy.Min(N, X), X)))


COMPARISON = Comparison(Asked(), draw)
