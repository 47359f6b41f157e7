"""Mixture of experts: a router, a bank of equal experts, and what every token shares."""

from __future__ import annotations

from typing import Any, Literal

from ..declare import declaration
from ..dims import Dim, check_at_most, check_sizes
from ..tape import Tape
from ..tensor import Tensor


@declaration
class MoE:
    """Σ of a of e experts, weighted by the router, plus the shared expert. Shazeer et al. 2017, arXiv:1701.06538.

    Dropless: all b·t·a routed rows run. Shared experts: DeepSeekMoE, arXiv:2401.06066, equation 9. Scores by sigmoid:
    DeepSeek-V3, arXiv:2412.19437, equation 15. Softmax of the chosen logits alone: Mixtral, arXiv:2401.04088, section 2.1.
    A router costs de parameters, a gate of the shared expert d.
    """

    e: Dim  # experts
    a: Dim  # active experts a token
    expert: Any  # a component: one expert
    shared: Any = None  # a component that every token runs, or None
    shared_gate: bool = False  # the shared expert is weighed by a sigmoid of its own
    score: Literal["softmax", "sigmoid", "softmax_of_chosen"] = "softmax"
    renormalise: bool = True  # the chosen weights are divided by their sum
    router_bias: bool = False

    def __post_init__(self) -> None:
        check_sizes("MoE", e=self.e, a=self.a)
        check_at_most(self.a, self.e, "MoE: a = {} active experts, but there are only e = {}")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        logits = tape.linear("router", x, "... d -> ... e", e=self.e, bias=self.router_bias, kind="router")
        weights, order, tokens = tape.route(
            logits, self.a, renormalise=self.renormalise, choose_first=self.score == "softmax_of_chosen"
        )
        rows = tape.dispatch(x, tokens)
        with tape.choose(self.e, self.a):
            rows = tape.call("experts", self.expert, rows)
        out = tape.combine(x, rows, weights, order, tokens)
        return out if self.shared is None else tape.add("add", out, self._shared(tape, x))

    def _shared(self, tape: Tape, x: Tensor) -> Tensor:
        out: Tensor = tape.call("shared", self.shared, x)
        if not self.shared_gate:
            return out
        gate = tape.linear("shared_gate", x, "... d -> ... o", o=1)
        return tape.mul("shared_mul", out, tape.act("shared_sigmoid", gate, "output"))
