"""Attention without a softmax over pairs: its cost grows with the sequence, not with its square."""

from __future__ import annotations

from ..declare import declaration
from ..dims import Dim, check_divides, check_sizes
from ..tape import Tape
from ..tensor import Tensor
from .mlp import Activation, silu
from .norm import RMSNorm


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


@declaration
class GatedDeltaNet:
    """norm(S q) ⊙ silu(x W_gate) W_O, where each position lets S forget, then corrects what it says of the position's key.

    Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464, section 3; as Qwen3-Next has it, n value heads and k key heads.
    Queries, keys and values pass a convolution over their last g positions and an activation; queries and keys have length
    one. Parameters 2dkh + 3dnu + 2dn + g(2kh + nu) + 2n + u. Multiply-adds a token are the same at any length: 3nhu with the
    state and C·n·(2h + u) inside a chunk of C. The cache holds the state (n h u), fp32, and g positions of the convolution.
    """

    n: Dim  # value heads
    k: Dim  # heads of queries and keys
    h: Dim  # their width
    u: Dim  # value head width
    g: Dim = 4  # taps of the convolutions
    chunk: Dim = 64  # positions that run at once
    act: Activation = silu

    def __post_init__(self) -> None:
        check_sizes("GatedDeltaNet", n=self.n, k=self.k, h=self.h, u=self.u, g=self.g, chunk=self.chunk)
        check_divides("GatedDeltaNet", "n", self.n, "k", self.k)

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        q, k = (tape.linear(name, x, "b t d -> b t k h", k=self.k, h=self.h) for name in "qk")
        v = tape.linear("v", x, "b t d -> b t n u", n=self.n, u=self.u)
        q, k, v = (self._mixed(tape, name, part) for name, part in (("q", q), ("k", k), ("v", v)))
        beta = tape.act("beta_sigmoid", tape.linear("beta", x, "b t d -> b t n", n=self.n), "output")
        decay = tape.forget("decay", tape.pace("decay", tape.linear("decay", x, "b t d -> b t n", n=self.n)))
        out = tape.call("norm", RMSNorm(), tape.delta_rule(q, k, v, beta, decay, self.chunk))
        gate = tape.linear("gate", x, "b t d -> b t n u", n=self.n, u=self.u)
        out = tape.mul("gate_mul", out, tape.act("gate_silu", gate, "input"))
        return tape.linear("o", out, "b t n u -> b t d", d=x["d"])

    def _mixed(self, tape: Tape, name: str, x: Tensor) -> Tensor:
        """x convolved, and its activation."""
        out: Tensor = tape.call(name, self.act, tape.causal_convolution(f"{name}_convolution", x, self.g))
        return out
