"""Experiments on norms, residuals and depth: stacks of small blocks as they are initialised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...blocks.attention import Attention
from ...blocks.mlp import MLP
from ...blocks.norm import LayerNorm, RMSNorm
from ...blocks.wiring import Block, Residual
from ..build import build
from ..context import Run
from .attention import apart

Init = Literal["xavier", "small"]
"""Xavier's uniform weights on vectors of norm √d, or N(0, 0.02) weights on vectors of 0.02√d, GPT-2's."""

D, T, B, DEPTHS = 32, 8, 2, (6, 24)


def stack(l: int, init: Init, d: int = D, **norms: Any) -> list[Any]:
    """l blocks of attention and a feed-forward with f = 4d, their norms where *norms* say."""
    block = Block(branches=(
        Residual(name="attention", branch=Attention(n=4, k=4, h=d // 4), **norms),
        Residual(name="mlp", branch=MLP(f=4 * d), **norms),
    ))  # fmt: skip
    made = [build(block, d) for _ in range(l)]
    for linear in (module for one in made for module in one.modules() if isinstance(module, nn.Linear)):
        if init == "xavier":
            nn.init.xavier_uniform_(linear.weight)
        else:
            nn.init.normal_(linear.weight, std=0.02)
    return made


PRE: dict[str, Any] = {"before": LayerNorm()}
POST: dict[str, Any] = {"outer": LayerNorm()}
NONE: dict[str, Any] = {}


def entered(init: Init, d: int = D) -> Tensor:
    """Token vectors (b t d)."""
    return torch.randn(B, T, d) * (1 if init == "xavier" else 0.02)


def gradients(blocks: list[Any], x: Tensor, init: Init, *, final: bool = True, residual: bool = True) -> list[float]:
    """The norm of the gradient of each block's last matrix, of a cross entropy over 50 outputs."""
    run, d = Run(), x.size(-1)
    for branch in (branch for block in blocks for branch in block.branches):
        x = branch(x, run) if residual else branch.inner(x, run)
    x = F.layer_norm(x, (d,)) if final else x
    head = torch.randn(50, d) * (d**-0.5 if init == "xavier" else 0.02)
    F.cross_entropy((x @ head.T).flatten(0, 1), torch.randint(50, (B * T,))).backward()
    return [float(block.branches[-1].branch.down.weight.grad.norm()) for block in blocks]


def post_norm_gradients() -> tuple[float, ...]:
    """Means of three draws: post over pre at the last block of 24, by either initialisation; post's last over its first;
    pre's last block of 24 over that of 6."""
    mean: dict[tuple[str, Init, int], tuple[float, float]] = {}
    inits: tuple[Init, ...] = ("xavier", "small")
    for init in inits:
        for name, norms in (("pre", PRE), ("post", POST)):
            for l in DEPTHS:
                drawn = [gradients(stack(l, init, **norms), entered(init), init, final=name == "pre") for _ in range(3)]
                mean[name, init, l] = sum(one[-1] for one in drawn), sum(one[0] for one in drawn)
    by_init = [mean["post", init, 24][0] / mean["pre", init, 24][0] for init in inits]
    flat = mean["post", "xavier", 24]
    return *by_init, flat[0] / flat[1], mean["pre", "xavier", 24][0] / mean["pre", "xavier", 6][0]


def without_residual() -> tuple[float, ...]:
    """Gradients of the first of 24 blocks: no residual and no norm; no residual but norms; residuals and norms."""
    found = []
    for norms, residual in ((NONE, False), (PRE, False), (PRE, True)):
        blocks = stack(24, "xavier", **norms)
        found.append(gradients(blocks, entered("xavier"), "xavier", final=bool(norms), residual=residual)[0])
    return tuple(found)


def states(blocks: list[Any], x: Tensor) -> tuple[list[Tensor], list[float]]:
    """The stream behind each block, and the mean square of what each branch adds."""
    run, stream, added = Run(), [x], []
    with torch.no_grad():
        for block in blocks:
            for branch in block.branches:
                inner = branch.inner(x, run)
                added.append(float(inner.square().mean()))
                x = x + inner if branch.outer is None else branch.outer(x + inner)
            stream.append(x)
    return stream, added


def rms(x: Tensor) -> float:
    """The root of the mean square."""
    return float(x.square().mean().sqrt())


def stream_scale() -> tuple[float, ...]:
    """Growth of the stream over 24 pre-norm blocks; over the root of the sum of the squares; RMS behind post-norm blocks."""
    x = entered("xavier", 64)
    before, added = states(stack(24, "xavier", 64, **PRE), x)
    after, _ = states(stack(24, "xavier", 64, **POST), x)
    predicted = (rms(x) ** 2 + sum(added)) ** 0.5
    return rms(before[-1]) / rms(x), rms(before[-1]) / predicted, rms(after[-1]) / rms(x)


def post_norm_stream() -> tuple[float, ...]:
    """The least and the greatest RMS of a token behind 24 post-norm blocks."""
    after, _ = states(stack(24, "xavier", 64, **POST), entered("xavier", 64))
    sizes = torch.stack(after[1:]).square().mean(-1).sqrt()
    return float(sizes.min()), float(sizes.max())


def share_of_embedding() -> tuple[float, ...]:
    """The cosine of the stream with what entered it, behind 1, 6 and 24 pre-norm blocks."""
    x = entered("xavier", 64)
    stream, _ = states(stack(24, "xavier", 64, **PRE), x)
    return tuple(float(F.cosine_similarity(x, stream[l], dim=-1).mean()) for l in (1, 6, 24))


def sums() -> tuple[float, ...]:
    """Sums in the graph of three blocks, and of three with one more feed-forward each."""
    found = []
    for extra in (0, 1):
        blocks = [
            build(Block(branches=(
                Residual(name="attention", branch=Attention(n=4, k=4, h=8), **PRE),
                *(Residual(name="mlp", branch=MLP(f=64), **PRE) for _ in range(1 + extra)),
            )), D) for _ in range(3)
        ]  # fmt: skip
        x, run = entered("xavier").requires_grad_(), Run()
        for block in blocks:
            x = block(x, run)
        found.append(sum(name.startswith("AddBackward") for name in graph(x)))
    return tuple(found)


def graph(x: Tensor) -> list[str]:
    """The names of the operations that made x."""
    todo, seen = [x.grad_fn], {x.grad_fn}
    while todo:
        node = todo.pop()
        for parent, _ in () if node is None else node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return [node.name() for node in seen if node is not None]


def silent_layer() -> tuple[float, ...]:
    """How far blocks whose branches are 0 are from the identity, pre- and post-norm, and post-norm from Norm(x)."""
    x, found = 3 * entered("xavier"), []
    for norms in (PRE, POST):
        (block,) = stack(1, "xavier", **norms)
        for branch in block.branches:
            nn.init.zeros_(getattr(branch.branch, "o" if hasattr(branch.branch, "o") else "down").weight)
        found.append(block(x, Run()))
    return apart(found[0], x), apart(found[1], x), apart(found[1], F.layer_norm(x, (D,)))


def alone() -> tuple[float, ...]:
    """How much a token's layer norm changes with the other tokens, and with the other sequences."""
    module, x = build(LayerNorm(), D), entered("xavier")
    y = entered("xavier")
    y[0, 0] = x[0, 0]
    return apart(module(x)[0, 0], module(y)[0, 0]), apart(module(x)[0], module(x[:1])[0])


def centred() -> tuple[float, ...]:
    """A layer norm against the RMS norm of the centred input, and of the input itself."""
    x = 100 * entered("xavier") + 50
    one, other = build(LayerNorm(gain=False, bias=False), D), build(RMSNorm(gain=False), D)
    return apart(one(x), other(x - x.mean(-1, keepdim=True))), apart(one(x), other(x))


def norm_times() -> tuple[float, ...]:
    """Time of a layer norm over that of an RMS norm, fp32, 2048 tokens 1024 wide, the best of 20 runs of each."""
    x = torch.randn(2048, 1024, dtype=torch.float32)
    best = []
    for norm in (LayerNorm(), RMSNorm()):
        module, times = build(norm, 1024).float(), []
        with torch.no_grad():
            for _ in range(20):
                start = perf_counter()
                module(x)
                times.append(perf_counter() - start)
        best.append(min(times))
    return (best[0] / best[1],)


EXPERIMENTS: Mapping[str, Callable[[], tuple[float, ...]]] = MappingProxyType({
    "residual-count": sums, "no-residual": without_residual, "identity-layer": silent_layer, "norm-independent": alone,
    "rmsnorm-centre": centred, "rmsnorm-time": norm_times, "postln-gradient": post_norm_gradients,
    "postln-stream": post_norm_stream, "residual-scale": stream_scale, "embedding-share": share_of_embedding,
})  # fmt: skip
