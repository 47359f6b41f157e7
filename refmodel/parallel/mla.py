"""Latent attention whose heads are split, and whose latents each rank has. Twin of ``blockcalc.blocks.mla``."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .. import mla
from ..attention import attend
from ..context import Run
from .linear import ColumnParallel, RowParallel, columns
from .ranks import Ranks
from .regions import enter
from .ring import Kernel, ring
from .ulysses import ulysses


class MLA(nn.Module):
    """DeepSeek-V2, arXiv:2405.04434, appendix C, keys and values expanded; the matrices' names are the paper's.

    Every rank makes the latents and the shared key: of all positions or, with sequence parallelism, of its own, and then they
    are gathered where the heads begin.
    """

    def __init__(self, local: mla.MLA, ranks: Ranks) -> None:
        super().__init__()
        self.n, self.ranks, self.rotary = local.n, ranks, local.rotary
        self.W_DQ, self.q_norm, self.W_DKV, self.kv_norm, self.W_KR = (
            local.W_DQ, local.q_norm, local.W_DKV, local.kv_norm, local.W_KR
        )  # fmt: skip
        self.W_UQ, self.W_QR = ColumnParallel(local.W_UQ), ColumnParallel(local.W_QR)
        self.W_UK, self.W_UV = ColumnParallel(local.W_UK), ColumnParallel(local.W_UV)
        self.W_O = RowParallel(local.W_O, ranks.tp)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), the rank's positions of both; t of a head is whole."""
        tp, heads = self.ranks.tp, (self.n, -1)
        low = x if self.W_DQ is None or self.q_norm is None else self.q_norm(self.W_DQ(x))  # b t q (37)
        free, turned = (part.unflatten(-1, heads) for part in columns(low, tp, self.W_UQ, self.W_QR))  # b t n/tp p, … r (38)
        latent = self.kv_norm(self.W_DKV(x))  # b t c (41)
        shared = self.rotary(enter(self.W_KR(x), tp)[:, :, None], run)[:, :, 0]  # b t r (43)
        latent, shared = run.remember(self, "latent", latent, shared)  # b s c, b s r
        own, v = (part.unflatten(-1, heads) for part in columns(latent, tp, self.W_UK, self.W_UV))  # b s n/tp p, … u (42, 45)
        q = torch.cat((free, self.rotary(turned, run)), dim=-1)  # b t n/tp p+r (39, 40)
        k = torch.cat((own, shared[:, :, None].expand(-1, -1, self.n, -1)), dim=-1)  # b s n/tp p+r (44)
        if self.ranks.cp.size > 1:
            across = ulysses if self.ranks.cp.ulysses else ring
            kernel = Kernel.of(run, q.size(-1))
            out = run.again("selective", partial(across, kernel=kernel, group=self.ranks.cp, causal=True), q, k, v)
        else:
            out = attend(q, k, v, run, causal=True)  # b t n/tp u (46)
        return self.W_O(out.flatten(2))  # b t d (47)
