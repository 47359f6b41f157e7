"""Multi-head latent attention: keys and values from one narrow latent, which is what the cache holds."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .norm import RMSNorm
from .position import Rotary


@declaration
class MLA:
    """DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C: equations 37 to 47, keys and values expanded.

    Caches c + r a token, shared by all heads. Without a query latent (DeepSeek-V2-Lite) q comes from x itself. Absorbed
    (section 2.1.2) it multiplies n(2c + r) times a pair instead of n(p + r + u), and expands no key.
    """

    n: Dim  # heads
    c: Dim  # key-value latent width
    q: Dim | None  # query latent width
    p: Dim  # position-free head width
    r: Dim  # rotary width
    u: Dim  # value head width
    bias: bool = False  # on the three projections that are not from a latent to the heads
    absorbed: bool = False  # queries go to the latents, and heads come back from them: no key or value is expanded
    norm: RMSNorm = RMSNorm()

    def __post_init__(self) -> None:
        check_sizes("MLA", n=self.n, c=self.c, q=self.q, p=self.p, r=self.r, u=self.u)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        latent = tape.linear("kv_down", x, "b t d -> b t c", c=self.c, bias=self.bias)
        shared = tape.linear("k_rotary", x, "b t d -> b t r", r=self.r, bias=self.bias)
        latent = tape.cache("latent_cache", tape.call("kv_norm", self.norm, latent), "latent")
        shared = tape.cache("rotary_cache", tape.call("k_rotary", Rotary(r=self.r), shared), "latent")
        free, turned = self._queries(tape, x)
        turned = tape.call("q_rotary", Rotary(r=self.r), turned)
        out = (self._absorbed if self.absorbed else self._expanded)(tape, free, turned, latent, shared)
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"], bias=self.bias)

    def _expanded(self, tape: Tape, free: Tensor, turned: Tensor, latent: Tensor, shared: Tensor) -> Tensor:
        """Keys (b s n p + r) and values (b s n u) of every head."""
        keys = tape.linear("k_up", latent, "b s c -> b s n p", n=self.n, p=self.p)
        values = tape.linear("v_up", latent, "b s c -> b s n u", n=self.n, u=self.u)
        return tape.attention(tape.concat("q", free, turned), tape.concat("k", keys, shared), values, causal=True)

    def _absorbed(self, tape: Tape, free: Tensor, turned: Tensor, latent: Tensor, shared: Tensor) -> Tensor:
        """One key (b s 1 c + r) for all heads, whose first c entries are the value too."""
        one = (*latent.sizes[:2], 1, self.c)
        low = tape.linear("k_up", free, "b t n p -> b t n c", each=("n",), n=self.n, c=self.c)
        k = tape.view(tape.concat("k", latent, shared), ("b", "s", "k", "h"), (*one[:3], self.c + self.r))
        v = tape.view(latent, ("b", "s", "k", "u"), one)
        out = tape.attention(tape.concat("q", low, turned), k, v, causal=True, absorbed=True)
        low = tape.view(out, ("b", "t", "n", "c"), out.sizes)
        return tape.linear("v_up", low, "b t n c -> b t n u", each=("n",), n=self.n, u=self.u)

    def _queries(self, tape: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
        """The position-free part (b t n p) and the part to be rotated (b t n r)."""
        if self.q is None:
            free = tape.linear("q", x, "b t d -> b t n p", n=self.n, p=self.p)
            turned = tape.linear("q_rotary", x, "b t d -> b t n r", n=self.n, r=self.r)
        else:
            low = tape.linear("q_down", x, "b t d -> b t q", q=self.q, bias=self.bias)
            low = tape.call("q_norm", self.norm, low)
            free = tape.linear("q_up", low, "b t q -> b t n p", n=self.n, p=self.p)
            turned = tape.linear("q_rotary", low, "b t q -> b t n r", n=self.n, r=self.r)
        return free, turned
