"""Attention without a softmax over pairs. Twin of ``blockcalc.blocks.linear_attention``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .mlp import Function
from .norm import RMSNorm
from .short_convolution import CausalConvolution


class LinearAttention(nn.Module):
    """φ(Q)(φ(K)ᵀV) / φ(Q)Σφ(K) in both directions. Choromanski et al. 2021, arXiv:2009.14794, equation 4."""

    def __init__(self, d: int, n: int, h: int, m: int) -> None:
        super().__init__()
        self.n, self.m, self.h = n, m, h
        self.q = nn.Linear(d, n * h, bias=False)
        self.k = nn.Linear(d, n * h, bias=False)
        self.v = nn.Linear(d, n * h, bias=False)
        self.o = nn.Linear(n * h, d, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d)."""
        q, k, v = (part(x).unflatten(-1, (self.n, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))  # b n t h
        q, k = self.features(q, run), self.features(k, run)  # b n t m
        state = k.transpose(2, 3) @ v  # b n m h
        out = (q @ state) / (q @ k.sum(2)[..., None])  # b n t h
        out = self.o(out.transpose(1, 2).flatten(2))  # b t d
        return out

    def features(self, x: Tensor, run: Run) -> Tensor:
        """exp(x W − |x|²/2), x (b n t h) to (b n t m). The random matrix is a buffer of the whole model."""
        matrix = run.buffer(("features", self.m, self.h), lambda: torch.randn(self.m, self.h, dtype=x.dtype))  # m h
        return torch.exp(x @ matrix.T - x.square().sum(-1, keepdim=True) / 2)  # b n t m


def unit(x: Tensor) -> Tensor:
    """x divided by its length along the last axis, in fp32."""
    wide = x.float()
    return wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + 1e-6)


def in_chunks(
    state: Tensor, later: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """The gated delta rule, a chunk at once: q and k (b n c x h), v (b n c x u), beta and decay (b n c x), state (b n h u).

    Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464, section 3.3, with the UT transform of arXiv:2406.06484, section 3. What
    a position reads of the chunk's earlier ones is a triangular system. Returns (b n c x u) and the state behind all of it.
    """
    total = decay.cumsum(-1)  # b n c x
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()  # b n c x y
    keys, since, until = k * beta[..., None], total.exp(), (total[..., -1:] - total).exp()
    whole = total[..., -1].exp()  # b n c
    system, scores = (keys @ k.mT) * between, (q @ k.mT) * between  # b n c x y; of the system, what lies below the diagonal
    values = torch.linalg.solve_triangular(system, v * beta[..., None], upper=False, unitriangular=True)  # b n c x u
    reads = torch.linalg.solve_triangular(system, keys * since[..., None], upper=False, unitriangular=True)  # b n c x h
    queries, writes = q * since[..., None], k * until[..., None]  # b n c x h
    outs = []
    for i in range(q.size(2)):
        new = values[:, :, i] - reads[:, :, i] @ state  # b n x u
        outs.append(queries[:, :, i] @ state + scores[:, :, i] @ new)
        with torch.set_grad_enabled(torch.is_grad_enabled() and i < q.size(2) - 1):  # a later step's gradient stops here
            state = state * whole[:, :, i, None, None] + writes[:, :, i].mT @ new
    return torch.stack(outs, dim=2), state


def at_once(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """The gated delta rule of one position, arXiv:2412.06464, equation 10: q and k (b n h), v (b n u), beta and decay (b n).

    Returns (b n u) and the state (b n h u).
    """
    state = state * decay.exp()[..., None, None]
    read = (state * k[..., None]).sum(-2)  # b n u
    state = state + k[..., None] * ((v - read) * beta[..., None])[..., None, :]
    return (state * q[..., None]).sum(-2), state


def chunked(x: Tensor, chunk: int) -> Tensor:
    """x (b t n …) in chunks (b n c x …), the last one filled up with noughts."""
    missing = -x.size(1) % chunk
    x = F.pad(x.transpose(1, 2), (*(0, 0) * (x.dim() - 3), 0, missing)).contiguous()  # b n c·x …
    return x.unflatten(2, (-1, chunk))


class GatedDeltaNet(nn.Module):
    """norm(S q) ⊙ silu(x W_gate) W_O. Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464, section 3.

    n value heads share k heads of queries and keys; each of the three passes a convolution over its last *taps* positions.
    """

    def __init__(self, d: int, n: int, k: int, h: int, u: int, taps: int, chunk: int, act: Function) -> None:
        super().__init__()
        self.n, self.k_heads, self.chunk, self.act = n, k, chunk, act
        self.q, self.k, self.v = (nn.Linear(d, width, bias=False) for width in (k * h, k * h, n * u))
        self.q_convolution, self.k_convolution, self.v_convolution = (
            CausalConvolution(width, taps) for width in (k * h, k * h, n * u)
        )
        self.beta, self.decay = nn.Linear(d, n, bias=False), nn.Linear(d, n, bias=False)
        self.shift = nn.Parameter(torch.ones(n))
        self.rate = nn.Parameter(torch.log(torch.empty(n).uniform_(0.01, 16)))  # A_log
        self.norm = RMSNorm(u)
        self.gate = nn.Linear(d, n * u, bias=False)
        self.o = nn.Linear(n * u, d, bias=False)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the state, fp32, and what the convolutions read."""
        q = unit(self.act(self.q_convolution(self.q(x), run)).unflatten(-1, (self.k_heads, -1)))  # b t k h
        k = unit(self.act(self.k_convolution(self.k(x), run)).unflatten(-1, (self.k_heads, -1)))  # b t k h
        v = self.act(self.v_convolution(self.v(x), run)).unflatten(-1, (self.n, -1)).float()  # b t n u
        beta = torch.sigmoid(self.beta(x)).float()  # b t n
        decay = -(F.softplus(self.decay(x).float() + self.shift.float()) * self.rate.float().exp())  # b t n
        out = self.recur(q * q.size(-1) ** -0.5, k, v, beta, decay, run).to(x.dtype)  # b t n u
        out = self.norm(out) * F.silu(self.gate(x)).view_as(out)  # b t n u
        out = self.o(out.flatten(2))  # b t d
        return out

    def recur(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, run: Run) -> Tensor:
        """What the heads read (b t n u): of one position behind others at once, else in chunks."""
        group, t = self.n // self.k_heads, q.size(1)
        if group > 1:
            q, k = q.repeat_interleave(group, dim=2), k.repeat_interleave(group, dim=2)  # b t n h
        before = None if run.caches is None else run.caches.held.get(self)
        state = v.new_zeros(v.size(0), self.n, q.size(-1), v.size(-1)) if before is None else before[0]
        if before is not None and t == 1:
            out, state = at_once(state, *(part[:, 0] for part in (q, k, v, beta, decay)))
            out = out[:, None]  # b t n u
        else:
            parts = (chunked(part, self.chunk) for part in (q, k, v, beta, decay))
            later = run.buffer(("later", self.chunk), lambda: torch.ones(self.chunk, self.chunk, dtype=torch.bool).triu(1))
            out, state = in_chunks(state, later, *parts)
            out = out.flatten(2, 3)[:, :, :t].transpose(1, 2).contiguous()  # b t n u
        if run.caches is not None:
            run.caches.held[self], run.caches.kinds[self] = (state,), "state"
        return out
