"""Multi-head latent attention. Twin of ``blockcalc.blocks.mla``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import attend
from .context import Run
from .norm import RMSNorm
from .position import Rotary


class MLA(nn.Module):
    """DeepSeek-V2, arXiv:2405.04434, appendix C, equations 37 to 47, keys and values expanded; the matrices' names are its.

    c and q are the latents' widths, p and r a head's position-free and rotary widths, u a value head's.
    """

    def __init__(
        self, d: int, n: int, c: int, q: int | None, p: int, r: int, u: int, *, bias: bool = False, gain: bool = True
    ) -> None:
        super().__init__()
        self.n = n
        self.rotary = Rotary(r)
        self.W_DQ = None if q is None else nn.Linear(d, q, bias=bias)
        self.q_norm = None if q is None else RMSNorm(q, gain=gain)
        self.W_UQ = nn.Linear(d if q is None else q, n * p, bias=False)
        self.W_QR = nn.Linear(d if q is None else q, n * r, bias=False)
        self.W_DKV = nn.Linear(d, c, bias=bias)
        self.kv_norm = RMSNorm(c, gain=gain)
        self.W_UK = nn.Linear(c, n * p, bias=False)
        self.W_KR = nn.Linear(d, r, bias=bias)
        self.W_UV = nn.Linear(c, n * u, bias=False)
        self.W_O = nn.Linear(n * u, d, bias=bias)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d). The cache holds the latent (b s c) and the rotary key (b s r), of all heads."""
        low = x if self.W_DQ is None or self.q_norm is None else self.q_norm(self.W_DQ(x))  # b t q (37)
        free = self.W_UQ(low).unflatten(-1, (self.n, -1))  # b t n p (38)
        turned = self.rotary(self.W_QR(low).unflatten(-1, (self.n, -1)), run)  # b t n r (39)
        q = torch.cat((free, turned), dim=-1)  # b t n p+r (40)
        latent = self.kv_norm(self.W_DKV(x))  # b t c (41)
        shared = self.rotary(self.W_KR(x)[:, :, None], run)[:, :, 0]  # b t r (43)
        latent, shared = run.remember(self, "latent", latent, shared)  # b s c, b s r
        free = self.W_UK(latent).unflatten(-1, (self.n, -1))  # b s n p (42)
        k = torch.cat((free, shared[:, :, None].expand(-1, -1, self.n, -1)), dim=-1)  # b s n p+r (44)
        v = self.W_UV(latent).unflatten(-1, (self.n, -1))  # b s n u (45)
        out = attend(q, k, v, run, causal=True)  # b t n u (46)
        out = self.W_O(out.flatten(2))  # b t d (47)
        return out
