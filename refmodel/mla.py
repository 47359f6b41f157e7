"""Multi-head latent attention. Twin of ``blockcalc.blocks.mla``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import attend
from .context import Run
from .norm import RMSNorm
from .position import Rotary


class MLA(nn.Module):
    """DeepSeek-V2, arXiv:2405.04434, appendix C, equations 37 to 47; the matrices' names are the paper's.

    Keys and values are expanded, or their matrices absorbed (section 2.1.2). c and q are the latents' widths, p and r a
    head's position-free and rotary widths, u a value head's.
    """

    LETTERS = {
        "W_DQ": "q_down", "W_UQ": "q_up", "W_QR": "q_rotary", "W_DKV": "kv_down", "W_UK": "k_up", "W_KR": "k_rotary",
        "W_UV": "v_up", "W_O": "o",
    }  # fmt: skip
    """The declaration's names of the matrices; without a query latent W_UQ is ``q`` there."""

    def __init__(
        self, d: int, n: int, c: int, q: int | None, p: int, r: int, u: int, *, bias: bool = False, gain: bool = True,
        absorbed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.n, self.absorbed = n, absorbed
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
        latent = self.kv_norm(self.W_DKV(x))  # b t c (41)
        shared = self.rotary(self.W_KR(x)[:, :, None], run)[:, :, 0]  # b t r (43)
        latent, shared = run.remember(self, "latent", latent, shared)  # b s c, b s r
        out = (self.absorb if self.absorbed else self.expand)(free, turned, latent, shared, run)  # b t n u
        out = self.W_O(out.flatten(2))  # b t d (47)
        return out

    def expand(self, free: Tensor, turned: Tensor, latent: Tensor, shared: Tensor, run: Run) -> Tensor:
        """The heads' output (b t n u) from a key and a value of each head."""
        q = torch.cat((free, turned), dim=-1)  # b t n p+r (40)
        own = self.W_UK(latent).unflatten(-1, (self.n, -1))  # b s n p (42)
        k = torch.cat((own, shared[:, :, None].expand(-1, -1, self.n, -1)), dim=-1)  # b s n p+r (44)
        v = self.W_UV(latent).unflatten(-1, (self.n, -1))  # b s n u (45)
        return attend(q, k, v, run, causal=True)  # b t n u (46)

    def absorb(self, free: Tensor, turned: Tensor, latent: Tensor, shared: Tensor, run: Run) -> Tensor:
        """The same (b t n u) with W_UK in the query and W_UV behind the mix: all heads have one key and one value."""
        up, down = (matrix.weight.unflatten(0, (self.n, -1)) for matrix in (self.W_UK, self.W_UV))  # n p c, n u c
        q = torch.cat((torch.einsum("btnp,npc->btnc", free, up), turned), dim=-1)  # b t n c+r
        k = torch.cat((latent, shared), dim=-1)[:, :, None]  # b s 1 c+r
        scale = (free.size(-1) + turned.size(-1)) ** -0.5
        low = attend(q, k, latent[:, :, None], run, causal=True, scale=scale)  # b t n c
        return torch.einsum("btnc,nuc->btnu", low, down)  # b t n u
