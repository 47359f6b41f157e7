"""Attention without a softmax over pairs: its cost grows with the sequence, not with its square."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_sizes
from ..tape import Tape
from ..tensor import Tensor


@declaration
class LinearAttention:
    """φ(Q)(φ(K)ᵀV) / φ(Q)Σφ(K) in both directions, with m positive random features of each head.

    Choromanski et al. 2021 (Performer), arXiv:2009.14794, equation 4. Parameters 4dnh; the random matrix (m h) is a
    buffer. Multiply-adds 2·n·(2hm + …) a token, whatever the length.
    """

    n: Dim  # heads
    h: Dim  # head width
    m: Dim  # random features

    def __post_init__(self) -> None:
        check_sizes("LinearAttention", n=self.n, h=self.h, m=self.m)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        tape.check_whole()
        q, k, v = (tape.linear(name, x, "b t d -> b t n h", n=self.n, h=self.h) for name in "qkv")
        q, k = self._features(tape, "q", q), self._features(tape, "k", k)
        v = tape.view(v, ("b", "t", "n", "u"), v.sizes)
        state = tape.product("state", k, v, "b n m u")
        above = tape.product("mix", q, state, "b t n u")
        below = tape.product("norm", q, tape.reduce("sum", k, "t"), "b t n")
        out = tape.divide("divide", above, below)
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"])

    def _features(self, tape: Tape, name: str, x: Tensor) -> Tensor:
        """exp(x W − |x|²/2), x (b t n h) to (b t n m)."""
        matrix = tape.buffer("random features", ("m", "h"), (self.m, self.h), "activation")
        projected = tape.product(f"{name}_project", x, matrix, "b t n m")
        squared = tape.reduce(f"{name}_norm", tape.act(f"{name}_square", x, "input"), "h")
        return tape.act(f"{name}_exp", tape.add(f"{name}_add", projected, squared), "output")
