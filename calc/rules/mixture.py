"""Mixtures of experts: routing, dispatch and combination of rows, as the dropless dispatch of the twin does it."""

from __future__ import annotations

from ..dims import Dim
from ..tensor import Tensor
from .elementwise import Elementwise


class MixtureRules(Elementwise):
    """Rules of what stands around a bank of experts."""

    def route(
        self, logits: Tensor, a: Dim, *, renormalise: bool, choose_first: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scores in fp32, the a best of each token: keeps the scores and the int64 choice and, where the weights are
        divided by their sum, both of these in fp32. Returns the weights, the rows' order and their tokens.

        With *choose_first* only the chosen logits are scored, so that only the choice and these scores are kept.
        """
        chosen_axes, chosen = (*logits.axes[:-1], "a"), (*logits.sizes[:-1], a)
        index = self.tensor(chosen_axes, chosen, "index", grad=False)
        weights = self.tensor(chosen_axes, chosen, "statistic", logits.grad)
        scored = weights if choose_first else self.like(logits, "statistic")
        self.record("scores", "act", (index, weights), (logits,), saved=(scored, index))
        if renormalise:
            total = self.tensor(logits.axes[:-1], logits.sizes[:-1], "statistic")
            self.record("renormalise", "div", (weights, total), saved=(weights, total))
        order, tokens = (self.tensor(chosen_axes, chosen, "index", grad=False) for _ in range(2))
        self.record("sort", "sort", (order, tokens), (index,))
        return weights, order, tokens

    def dispatch(self, x: Tensor, tokens: Tensor) -> Tensor:
        """The b·t·a routed rows, sorted by expert: keeps the int64 tokens."""
        rows = self.tensor((*tokens.axes, x.axes[-1]), (*tokens.sizes, x.sizes[-1]), grad=x.grad)
        self.record("dispatch", "gather", rows, (x, tokens), saved=(tokens,))
        return rows

    def combine(self, x: Tensor, rows: Tensor, weights: Tensor, order: Tensor, tokens: Tensor) -> Tensor:
        """Weighs the experts' rows and adds them up by token, in x's shape: keeps the rows before and after, the weights,
        the order and the tokens."""
        sorted_weights = self.tensor(weights.axes, weights.sizes, grad=weights.grad)
        out, weighed = self.like(x), self.like(rows)
        out.grad = weighed.grad = rows.grad or weights.grad
        saved = (*self._factors(rows, sorted_weights), *((order,) if weights.grad else ()), weighed, tokens)
        self.record("combine", "scatter", out, (rows, weights, order, tokens), saved=saved)
        return out
