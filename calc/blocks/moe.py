"""Mixture of experts: a router, a bank of equal experts, and what every token shares."""

from __future__ import annotations

from typing import Any, Literal

from ..declare import declaration
from ..dims import Dim, check_at_most, check_sizes
from ..errors import InputError
from ..tape import Tape
from ..tensor import Tensor
from .norm import RMSNorm


@declaration
class MoE:
    """Σ of a of e experts, weighted by the router, plus the shared expert. Shazeer et al. 2017, arXiv:1701.06538.

    Dropless: all b·t·a routed rows run. Shared experts: DeepSeekMoE, arXiv:2401.06066, equation 9. Scores by sigmoid:
    DeepSeek-V3, arXiv:2412.19437, equation 15. Softmax of the chosen logits alone: Mixtral, arXiv:2401.04088, section 2.1.
    A router costs de parameters, a gate of the shared expert d. A bias of the scores for the choice alone, which no gradient
    reaches: arXiv:2408.15664, equation 3; a parameter where the model stores it as one (ERNIE 4.5). Norms of what the router
    and the experts read, and a factor an expert: Gemma 4, github.com/huggingface/transformers, modeling_gemma4.py. Experts
    that read and write i entries, projected from d and back: Nemotron 3, in the same place, modeling_nemotron_h.py.
    """

    e: Dim  # experts
    a: Dim  # active experts a token
    expert: Any  # a component: one expert
    shared: Any = None  # a component that every token runs, or None
    shared_gate: bool = False  # the shared expert is weighed by a sigmoid of its own
    score: Literal["softmax", "sigmoid", "softmax_of_chosen"] = "softmax"
    renormalise: bool = True  # the chosen weights are divided by their sum
    router_bias: bool = False
    choice_bias: bool = False  # a frozen parameter an expert, added to its score for the choice alone
    i: Dim | None = None  # width that x is projected to for the experts, and their sum back from: Nemotron 3
    router_norm: RMSNorm | None = None  # of what the router reads
    expert_norm: RMSNorm | None = None  # of what the experts read
    expert_scale: bool = False  # the chosen weights are multiplied by a trained number of their expert

    def __post_init__(self) -> None:
        check_sizes("MoE", e=self.e, a=self.a, i=self.i)
        check_at_most(self.a, self.e, "MoE: a = {} active experts, but there are only e = {}")
        if self.choice_bias and self.score == "softmax_of_chosen":
            raise InputError("MoE: a choice_bias is added to scores, and softmax_of_chosen has none before the choice")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        read = x if self.router_norm is None else tape.call("router_norm", self.router_norm, x)
        logits = tape.linear("router", read, "... d -> ... e", e=self.e, bias=self.router_bias, kind="router")
        weights, order, tokens = tape.route(
            logits, self.a, renormalise=self.renormalise, choose_first=self.score == "softmax_of_chosen",
            scaled=self.expert_scale, corrected=self.choice_bias,
        )  # fmt: skip
        read = x if self.expert_norm is None else tape.call("expert_norm", self.expert_norm, x)
        read = read if self.i is None else self._projected(tape, "latent_down", read, self.i)
        rows = tape.dispatch(read, tokens)
        with tape.choose(self.e, self.a):
            rows = tape.call("experts", self.expert, rows)
        out = tape.combine(read, rows, weights, order, tokens)
        out = out if self.i is None else self._projected(tape, "latent_up", out, x["d"])
        return out if self.shared is None else tape.add("add", out, self._shared(tape, x))

    def _projected(self, tape: Tape, name: str, x: Tensor, d: Dim) -> Tensor:
        """x (… d) at another width d."""
        out = tape.linear(name, x, "... d -> ... i", i=d)
        return tape.view(out, x.axes, out.sizes)

    def _shared(self, tape: Tape, x: Tensor) -> Tensor:
        out: Tensor = tape.call("shared", self.shared, x)
        if not self.shared_gate:
            return out
        gate = tape.linear("shared_gate", x, "... d -> ... o", o=1)
        return tape.mul("shared_mul", out, tape.act("shared_sigmoid", gate, "output"))


@declaration
class DenseMoE:
    """Σ of all e experts of σ(logit) x, of which all but the a best logits' count as 0, plus the shared expert.

    Llama 4, as transformers runs it: github.com/huggingface/transformers, modeling_llama4.py. Every expert runs on every
    token, b·t·e rows; active parameters are those that one token's output depends on, a experts and the rest in full.
    """

    e: Dim  # experts
    a: Dim  # experts that a token's output depends on
    expert: Any  # a component: one expert
    shared: Any = None  # a component that every token runs, or None

    def __post_init__(self) -> None:
        check_sizes("DenseMoE", e=self.e, a=self.a)
        check_at_most(self.a, self.e, "DenseMoE: a = {} active experts, but there are only e = {}")

    def trace(self, tape: Tape, x: Tensor) -> Tensor:
        """x (b t d) to (b t d)."""
        logits = tape.linear("router", x, "... d -> ... e", e=self.e, kind="router")
        rows = tape.weigh(x, tape.spread(logits, self.a))
        with tape.choose(self.e, self.a):
            rows = tape.call("experts", self.expert, rows)
        out = tape.reduce("sum", rows, "e")
        return out if self.shared is None else tape.add("add", out, tape.call("shared", self.shared, x))
