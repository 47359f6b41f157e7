"""Selective state spaces. Twins of ``blockcalc.blocks.state_space``."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .linear_attention import chunked
from .mlp import Function
from .norm import RMSNorm
from .short_convolution import CausalConvolution


def above(size: int) -> Tensor:
    """True above the diagonal."""
    return torch.ones(size, size, dtype=torch.bool).triu(1)


def in_chunks(
    x: Tensor, decay: Tensor, b: Tensor, c: Tensor, state: Tensor, later: Tensor, later_chunks: Tensor
) -> tuple[Tensor, Tensor]:
    """The state-space dual, a chunk at once: x (b n c x u), decay (b n c x), b and c (b n c x h), state (b n u h).

    Dao and Gu 2024, arXiv:2405.21060, section 6: diagonal blocks, the state that each chunk adds, the states that the chunks
    begin with, what is read of these. Returns (b n c x u) and the state behind all of it.
    """
    total = decay.cumsum(-1)  # b n c x
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()  # b n c x y
    near = ((c @ b.mT) * between) @ x  # b n c x u
    until = (total[..., -1:] - total).exp()  # b n c x
    added = (b * until[..., None]).mT @ x  # b n c h u
    states = torch.cat((state.mT[:, :, None], added), dim=2)  # b n c+1 h u
    ends = F.pad(total[..., -1], (1, 0)).cumsum(-1)  # b n c+1
    passing = (ends[..., :, None] - ends[..., None, :]).masked_fill(later_chunks, float("-inf")).exp()  # b n c+1 c+1
    reached = (passing @ states.flatten(3)).unflatten(3, states.shape[3:])  # b n c+1 h u
    far = c @ reached[:, :, :-1].contiguous()  # b n c x u
    return near + far * total.exp()[..., None], reached[:, :, -1].mT


class Mamba(nn.Module):
    """(y ⊙ silu(x W_Z)) W_O. Gu and Dao 2023, arXiv:2312.00752, algorithm 2: f channels, each with a state, h wide."""

    def __init__(
        self, d: int, f: int, h: int, i: int, taps: int, act: Function, *, bias: bool, conv_bias: bool,
        norms: tuple[nn.Module, nn.Module, nn.Module] | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.act = act
        self.z, self.x, self.o = nn.Linear(d, f, bias=bias), nn.Linear(d, f, bias=bias), nn.Linear(f, d, bias=bias)
        self.x_convolution = CausalConvolution(f, taps, bias=conv_bias)
        self.dt_down, self.b, self.c = (nn.Linear(f, width, bias=False) for width in (i, h, h))
        self.norms = None if norms is None else nn.ModuleList(norms)  # of what Δ is made of, of B, of C
        self.dt_up = nn.Linear(i, f, bias=False)
        self.shift = nn.Parameter(torch.ones(f))
        self.rate = nn.Parameter(torch.log(torch.arange(1, h + 1)).repeat(f, 1))  # A_log, f h
        self.skip = nn.Parameter(torch.ones(f))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the states, fp32, and what the convolution reads."""
        z, inner = self.z(x), self.act(self.x_convolution(self.x(x), run)).contiguous()  # b t f
        low, b, c = self.dt_down(inner), self.b(inner), self.c(inner)  # b t i, b t h, b t h
        if self.norms is not None:
            low, b, c = (norm(part) for norm, part in zip(self.norms, (low, b, c), strict=True))
        pace = F.softplus(self.dt_up(low).float() + self.shift.float())  # b t f
        wide = inner.float()
        out = self.scan(wide, pace, b.float(), c.float(), run).to(x.dtype) + (wide * self.skip).to(x.dtype)
        out = self.o(out * F.silu(z))  # b t d
        return out

    def scan(self, x: Tensor, pace: Tensor, b: Tensor, c: Tensor, run: Run) -> Tensor:
        """What the channels read (b t f), one position after the other."""
        held = None if run.caches is None else run.caches.held.get(self)
        state = x.new_zeros(*x[:, 0].shape, b.size(-1)) if held is None else held[0]  # b f h
        decay = (-(pace[..., None] * self.rate.float().exp())).exp()  # b t f h
        added = (x * pace)[..., None] * b[:, :, None]  # b t f h
        outs = []
        for i in range(x.size(1)):
            state = decay[:, i] * state + added[:, i]
            outs.append(state @ c[:, i, :, None])  # b f 1
        if run.caches is not None:
            run.caches.held[self], run.caches.kinds[self] = (state,), "state"
        return torch.cat(outs, dim=-1).transpose(1, 2)


class Mamba2(nn.Module):
    """norm(y ⊙ silu(x W_Z)) W_O. Dao and Gu 2024, arXiv:2405.21060, section 7: n heads in k groups, which share B and C."""

    def __init__(
        self, d: int, n: int, k: int, h: int, u: int, taps: int, chunk: int, act: Function, *, bias: bool, o_bias: bool,
        conv_bias: bool, norm: Literal["gated", "before the gate"] | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.n, self.groups, self.chunk, self.act, self.norm_place = n, k, chunk, act, norm
        self.z, self.x, self.b, self.c, self.dt = (
            nn.Linear(d, width, bias=bias) for width in (n * u, n * u, k * h, k * h, n)
        )
        self.x_convolution, self.b_convolution, self.c_convolution = (
            CausalConvolution(width, taps, bias=conv_bias) for width in (n * u, k * h, k * h)
        )
        self.shift = nn.Parameter(torch.ones(n))
        self.rate = nn.Parameter(torch.log(torch.arange(1, n + 1)))  # A_log
        self.skip = nn.Parameter(torch.ones(n))
        self.norm = RMSNorm(n * u // k, gain=False)
        self.gain = nn.Parameter(torch.ones(n * u)) if norm else None
        self.o = nn.Linear(n * u, d, bias=o_bias)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the state, fp32, and what the convolutions read."""
        z, inner, b, c = self.z(x), self.x(x), self.b(x), self.c(x)
        pace = F.softplus(self.dt(x).float() + self.shift.float())  # b t n
        inner = self.act(self.x_convolution(inner, run)).unflatten(-1, (self.n, -1))  # b t n u
        b = self.act(self.b_convolution(b, run)).unflatten(-1, (self.groups, -1))  # b t k h
        c = self.act(self.c_convolution(c, run)).unflatten(-1, (self.groups, -1))  # b t k h
        wide, decay = inner.float(), -(pace * self.rate.float().exp())  # b t n u, b t n
        out = self.scan(wide, pace, decay, b.float(), c.float(), run) + wide * self.skip[:, None]  # b t n u
        out = out.to(x.dtype).flatten(2)  # b t n·u
        if self.norm_place == "before the gate":
            out = self.normed(out)
        out = out * F.silu(z)
        if self.norm_place == "gated":
            out = self.normed(out)
        out = self.o(out)  # b t d
        return out

    def normed(self, x: Tensor) -> Tensor:
        """x (b t n·u), each of the k groups normed, times the gain."""
        return self.norm(x.unflatten(-1, (self.groups, -1))).flatten(-2) * self.gain

    def scan(self, x: Tensor, pace: Tensor, decay: Tensor, b: Tensor, c: Tensor, run: Run) -> Tensor:
        """What the heads read (b t n u): of one position behind others at once, else in chunks."""
        group, t = self.n // self.groups, x.size(1)
        if group > 1:
            b, c = b.repeat_interleave(group, dim=2), c.repeat_interleave(group, dim=2)  # b t n h
        before = None if run.caches is None else run.caches.held.get(self)
        state = x.new_zeros(x.size(0), self.n, x.size(-1), b.size(-1)) if before is None else before[0]  # b n u h
        x = x * pace[..., None]
        if before is not None and t == 1:
            state = state * decay.exp()[:, 0, :, None, None] + x[:, 0, ..., None] * b[:, 0, :, None]
            out = (state @ c[:, 0, ..., None]).squeeze(-1)[:, None]  # b t n u
        else:
            x, decay, b, c = (chunked(part, self.chunk) for part in (x, decay, b, c))
            later = run.buffer(("later", self.chunk), partial(above, self.chunk))
            later_chunks = run.buffer(("later chunks", x.size(2)), partial(above, x.size(2) + 1))
            out, state = in_chunks(x, decay, b, c, state, later, later_chunks)
            out = out.flatten(2, 3)[:, :, :t].transpose(1, 2)  # b t n u
        if run.caches is not None:
            run.caches.held[self], run.caches.kinds[self] = (state.clone(),), "state"
        return out
