"""Mixtures of experts: routing, dispatch and combination of rows, as the dropless dispatch of the twin does it."""

from __future__ import annotations

from ..dims import Dim
from ..tensor import Tensor
from .elementwise import Elementwise


class MixtureRules(Elementwise):
    """Rules of what stands around a bank of experts."""

    def route(
        self, logits: Tensor, a: Dim, *, renormalise: bool, choose_first: bool = False, scaled: bool = False,
        corrected: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Scores in fp32, the a best of each token: keeps the scores and the int64 choice and, where the weights are
        divided by their sum, both of these in fp32. Returns the weights, the rows' order and their tokens.

        With *choose_first* only the chosen logits are scored, so that only the choice and these scores are kept.
        *scaled* weights are multiplied by a trained number of their expert: keeps both factors.
        *corrected* scores have a frozen number of their expert added for the choice, which keeps nothing.
        """
        chosen_axes, chosen = (*logits.axes[:-1], "a"), (*logits.sizes[:-1], a)
        index = self.tensor(chosen_axes, chosen, "index", grad=False)
        weights = self.tensor(chosen_axes, chosen, "statistic", logits.grad)
        scored = weights if choose_first else self.like(logits, "statistic")
        bias = (self.weight(logits.axes[-1:], logits.sizes[-1:], "vector", trains=False),) if corrected else ()
        self.record("scores", "act", (index, weights), (logits,), bias, saved=(scored, index))
        if renormalise:
            total, kept = self.tensor(logits.axes[:-1], logits.sizes[:-1], "statistic"), weights
            weights = self.like(kept, "statistic") if scaled else kept
            self.record("renormalise", "div", (weights, total), saved=(kept, total))
        if scaled:
            own = self.weight(logits.axes[-1:], logits.sizes[-1:], "vector")
            numbers = self.tensor(chosen_axes, chosen, grad=own.grad)
            self.record("expert_scale", "lookup", numbers, (index,), (own,), saved=(index,) if own.grad else ())
            weights = self.mul("expert_mul", weights, numbers)
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

    def spread(self, logits: Tensor, a: Dim) -> Tensor:
        """The sigmoids of the a best of the logits (b t e) in their places, 0 in the others: keeps the sigmoids in fp32 and
        the int64 choice."""
        chosen_axes, chosen = (*logits.axes[:-1], "a"), (*logits.sizes[:-1], a)
        index = self.tensor(chosen_axes, chosen, "index", grad=False)
        weights = self.tensor(chosen_axes, chosen, "statistic", logits.grad)
        out = self.like(logits)
        self.record("scores", "act", (index, weights, out), (logits,), saved=(weights, index))
        return out

    def weigh(self, x: Tensor, scores: Tensor) -> Tensor:
        """x (b t d) once for each expert (e b t d), times its scores (b t e): keeps both."""
        out = self.tensor((scores.axes[-1], *x.axes), (scores.sizes[-1], *x.sizes), grad=x.grad or scores.grad)
        self.record("weigh", "mul", out, (x, scores), saved=self._factors(x, scores))
        return out
