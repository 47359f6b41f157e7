"""Multi-head latent attention: keys and values from one narrow latent, which is what the cache holds."""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .norm import RMSNorm
from .position import Rotary


@dataclass(frozen=True, kw_only=True, slots=True)
class MLA:
    """DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C: equations 37 to 47, keys and values expanded.

    Caches c + r a token, shared by all heads. Without a query latent (DeepSeek-V2-Lite) q comes from x itself.
    """

    n: Dim  # heads
    c: Dim  # key-value latent width
    q: Dim | None  # query latent width
    p: Dim  # position-free head width
    r: Dim  # rotary width
    u: Dim  # value head width
    bias: bool = False  # on the three projections that are not from a latent to the heads
    norm: RMSNorm = RMSNorm()

    def __post_init__(self) -> None:
        check_sizes("MLA", n=self.n, c=self.c, q=self.q, p=self.p, r=self.r, u=self.u)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        latent = tape.linear("kv_down", x, "b t d -> b t c", c=self.c, bias=self.bias)
        shared = tape.linear("k_rotary", x, "b t d -> b t r", r=self.r, bias=self.bias)
        latent = tape.cache("latent_cache", tape.call("kv_norm", self.norm, latent), "latent")
        shared = tape.cache("rotary_cache", tape.call("k_rotary", Rotary(r=self.r), shared), "latent")
        keys = tape.linear("k_up", latent, "b s c -> b s n p", n=self.n, p=self.p)
        values = tape.linear("v_up", latent, "b s c -> b s n u", n=self.n, u=self.u)
        k = tape.concat("k", keys, shared)
        out = tape.attention(self._queries(tape, x), k, values, causal=True)
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"], bias=self.bias)

    def _queries(self, tape: Tape, x: Tensor) -> Tensor:
        if self.q is None:
            free = tape.linear("q", x, "b t d -> b t n p", n=self.n, p=self.p)
            turned = tape.linear("q_rotary", x, "b t d -> b t n r", n=self.n, r=self.r)
        else:
            low = tape.linear("q_down", x, "b t d -> b t q", q=self.q, bias=self.bias)
            low = tape.call("q_norm", self.norm, low)
            free = tape.linear("q_up", low, "b t q -> b t n p", n=self.n, p=self.p)
            turned = tape.linear("q_rotary", low, "b t q -> b t n r", n=self.n, r=self.r)
        return tape.concat("q", free, tape.call("q_rotary", Rotary(r=self.r), turned))
