"""Experiments on heads, on what they share, and on caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ...blocks.attention import Attention
from ...blocks.norm import RMSNorm
from ...blocks.position import Rotary
from ...readers import load
from .. import measure
from ..build import build
from ..context import Caches, Run
from .scores import jacobian_rank, scores, twin

LLAMA = {
    "model_type": "llama", "vocab_size": 53, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors."""
    return float((a - b).abs().max().detach())


def head_flops() -> tuple[float, ...]:
    """FLOPs of four heads over those of one."""
    x = torch.randn(2, 7, 12)

    def work(module: Any) -> int:
        return measure.flops(lambda run: module(x, run), training=False).forward

    return (work(twin(12, 4, 3)) / work(twin(12, 1, 12)),)


def head_rank() -> tuple[float, ...]:
    """The rank of one head's form, and of its scores of more tokens than it is wide."""
    module = twin(12, 4, 3)
    q, k = (part.weight.unflatten(0, (4, 3))[0] for part in (module.q, module.k))  # h d
    found = scores(module, torch.randn(1, 9, 12))[0]
    return float(torch.linalg.matrix_rank(q.T @ k)), float(torch.linalg.matrix_rank(found))


def grouped_cache() -> tuple[float, ...]:
    """The cache of 32 key-value heads over that of 4."""
    held = []
    for k in (32, 4):
        caches = Caches()
        build(Attention(n=32, k=k, h=2), 12)(torch.randn(2, 7, 12), Run(caches=caches))
        held.append(sum(measure.cache_bytes(caches).values()))
    return (held[0] / held[1],)


def shared_heads() -> tuple[float, ...]:
    """Ranks of the forms of three heads that share keys, or queries; how far two heads' weights differ with shared queries."""
    d, h, n, t = 6, 2, 3, 9

    def forms(w: Tensor) -> Tensor:
        shared, *own = w.split(d)  # d h each
        return torch.stack([one @ shared.T for one in own])

    def turned(w: Tensor) -> Tensor:
        return forms(w).mT

    x, q, k = torch.randn(t, d), torch.randn(d, h), torch.randn(2, d, h)
    weights = ((x @ q) @ (x @ k).mT * h**-0.5).softmax(-1)  # 2 t t
    same = ((x @ q) @ (x @ k[:1].expand(2, d, h)).mT * h**-0.5).softmax(-1)
    at = torch.randn((n + 1) * d, h)
    return jacobian_rank(forms, at), jacobian_rank(turned, at), apart(weights[0], weights[1]), apart(same[0], same[1])


def tied_values() -> tuple[float, ...]:
    """Parameters that one projection for keys and values saves."""
    own, tied = (build(Attention(n=2, k=2, h=6, kv_tied=tied), 12) for tied in (False, True))
    tied(torch.randn(1, 5, 12), Run())
    return (measure.parameters(own) - measure.parameters(tied),)


def linearity() -> tuple[float, ...]:
    """How far attention is from additive in x, and in the values at fixed weights."""
    module, x, y = twin(causal=False), torch.randn(1, 9, 12), torch.randn(1, 9, 12)
    whole = module(x + y, Run()) - module(x, Run()) - module(y, Run())
    weights = scores(module, x).softmax(-1)
    u, v = torch.randn(2, 2, 9, 6)
    return float(whole.abs().max().detach()), apart(weights @ (u + v), weights @ u + weights @ v)


def shuffled() -> tuple[float, ...]:
    """Shuffled tokens: against shuffled outputs; against unshuffled ones; with a causal mask; with rotations."""
    x, order = torch.randn(1, 9, 12), torch.randperm(9)

    def error(**more: Any) -> float:
        module = twin(**more)
        return apart(module(x[:, order], Run()), module(x, Run())[:, order])

    module = twin(causal=False)
    unshuffled = apart(module(x[:, order], Run()), module(x, Run()))
    return error(causal=False), unshuffled, error(), error(causal=False, position=Rotary(r=6))


def cached_logits() -> tuple[float, ...]:
    """Logits of a prefill and single steps against those of one pass."""
    model, ids, caches = build(load(LLAMA)), torch.randint(53, (2, 9)), Caches()
    pieces = [model(part, Run(caches=caches)) for part in (ids[:, :5], *ids[:, 5:].split(1, dim=1))]
    return (apart(torch.cat(pieces, dim=1), model(ids, Run())),)


def storages() -> tuple[float, ...]:
    """New storages for keys in 8 steps of a cache that grows, and of one that is allocated once; most bytes alive by a step."""
    module, caches, seen, peak = build(Attention(n=4, k=2, h=6), 12), Caches(), [], 0
    for _ in range(8):
        before = caches.held.get(module, ())
        module(torch.randn(1, 1, 12), Run(caches=caches))
        caches.length += 1
        seen.append(caches.held[module][0])
        peak = max(peak, sum(x.untyped_storage().nbytes() for x in (*before, *caches.held[module])))
    static, fixed = torch.empty(1, 8, 2, 6), []
    for i, keys in enumerate(seen):
        static[:, i : i + 1] = keys[:, -1:]
        fixed.append(static[:, : i + 1])
    grown, kept = ({x.untyped_storage().data_ptr() for x in found} for found in (seen, fixed))
    return len(grown), len(kept), peak / static.element_size(), apart(static, seen[-1])


def normed_queries() -> tuple[float, ...]:
    """The largest score over √h with normed queries and keys: without gains, of equal ones, with gains of 3."""
    x, norm = 1000 * torch.randn(1, 50, 12), RMSNorm(gain=False)
    gained = twin(h=16, qk_norm=RMSNorm())
    for one in (gained.q_norm, gained.k_norm):
        torch.nn.init.constant_(one.gain, 3)
    modules = (twin(h=16, qk_norm=norm), twin(h=16, qk_norm=norm, qk_tied=True), gained)
    return tuple(float(scores(module, x).abs().max().detach()) / 4 for module in modules)


def sight() -> tuple[float, ...]:
    """How much the first output depends on the last token, with a causal mask and without."""
    found = []
    for causal in (True, False):
        x = torch.randn(1, 9, 12, requires_grad=True)
        twin(causal=causal)(x, Run())[0, 0].sum().backward()
        assert x.grad is not None
        found.append(float(x.grad[0, -1].abs().max()))
    return tuple(found)


EXPERIMENTS: Mapping[str, Callable[[], tuple[float, ...]]] = MappingProxyType({
    "multihead-free": head_flops, "low-rank-head": head_rank, "gqa-cache": grouped_cache, "cross-share": shared_heads,
    "kv-tied": tied_values, "attention-linear": linearity, "permutation": shuffled, "kv-exact": cached_logits,
    "dynamic-cache": storages, "qk-norm": normed_queries, "three-paradigms": sight,
})  # fmt: skip
