"""Elementwise operations, norms and the loss: no multiply-adds, but much of what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..recorder import Recorder
from ..tensor import Role, Tensor


class Elementwise(Recorder):
    """Rules of operations that have no matrix."""

    def add(self, name: str, *terms: Tensor) -> Tensor:
        """A sum of tensors (the first has the full shape): keeps nothing."""
        out = self.like(terms[0])
        out.grad = out.grad or any(term.grad for term in terms)
        self.record(name, "add", out, terms)
        return out

    def scale(self, name: str, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """x times a constant, which keeps nothing, or times a trained number, one or one for each entry, which keeps x."""
        weights = () if weight is None else (weight,)
        out, trains = self.like(x), any(one.grad for one in weights)
        out.grad = x.grad or trains
        self.record(name, "scale", out, (x,), weights, saved=(x,) if trains else ())
        return out

    def shift(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """x plus a parameter of its last axes, the same for every sequence: keeps nothing."""
        out = self.like(x)
        out.grad = x.grad or weight.grad
        self.record(name, "add", out, (x,), (weight,))
        return out

    def prepend(self, name: str, x: Tensor, weight: Tensor) -> Tensor:
        """A parameter (d) in front of the positions of x (b t d): keeps nothing."""
        out = self.tensor(x.axes, (x["b"], x["t"] + 1, x["d"]), grad=x.grad or weight.grad)
        self.record(name, "concat", out, (x,), (weight,))
        return out

    def mul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """An elementwise product: keeps each factor whose partner needs a gradient."""
        out = self.like(a)
        out.grad = a.grad or b.grad
        self.record(name, "mul", out, (a, b), saved=self._factors(a, b))
        return out

    @staticmethod
    def _factors(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        """What a product keeps: each factor whose partner needs a gradient."""
        return ((a,) if b.grad else ()) + ((b,) if a.grad else ())

    def divide(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """An elementwise quotient: keeps both."""
        out = self.like(a)
        self.record(name, "div", out, (a, b), saved=(a, b))
        return out

    def reduce(self, name: str, x: Tensor, axis: str) -> Tensor:
        """A sum or a mean over one axis: keeps nothing."""
        kept = [(name, size) for name, size in zip(x.axes, x.sizes, strict=True) if name != axis]
        out = self.tensor(tuple(name for name, _ in kept), tuple(size for _, size in kept), grad=x.grad)
        self.record(name, "reduce", out, (x,))
        return out

    def deviation(self, name: str, x: Tensor) -> Tensor:
        """The standard deviation over the last axis: keeps x and its result."""
        out = self.tensor(x.axes[:-1], x.sizes[:-1], grad=x.grad)
        self.record(name, "reduce", out, (x,), saved=(x, out))
        return out

    def concat(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Two tensors side by side along their last axes, b broadcast over the others that it lacks. Keeps nothing."""
        out = self.tensor(a.axes, (*a.sizes[:-1], a.sizes[-1] + b.sizes[-1]), grad=a.grad or b.grad)
        self.record(name, "concat", out, (a, b))
        return out

    def act(self, name: str, x: Tensor, keeps: Literal["input", "output"]) -> Tensor:
        """An elementwise function: keeps its input (gelu, silu) or its output (relu, tanh, sigmoid)."""
        out = self.like(x)
        self.record(name, "act", out, (x,), saved=(x if keeps == "input" else out,) if x.grad else ())
        return out

    def gated(self, name: str, gate: Tensor, up: Tensor, plain: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The product of up and an activation of gate, as *plain* writes it out, or fused: one kernel, which keeps both."""
        if self.kernels.gated == "plain":
            return plain(gate, up)
        out = self.like(gate)
        out.grad = gate.grad or up.grad
        self.record(name, "mul", out, (gate, up), saved=(gate, up))
        return out

    def dropout(self, name: str, x: Tensor) -> Tensor:
        """Some entries of x at random set to 0, in training alone: keeps the scaled noise, as wide as x, or a mask."""
        kind = self.kernels.dropout
        if kind == "none" or not self.step.training:
            return x
        out = self.like(x)
        noise = self.like(x, "mask" if kind == "mask" else x.role)
        self.record(name, "dropout", out, (x,), saved=(noise,))
        return out

    def widen(self, name: str, x: Tensor) -> Tensor:
        """x in fp32: a copy, unless it is that already. Keeps nothing."""
        out = self.like(x, "statistic")
        out.cast_of = x
        self.record(name, "cast", out, (x,))
        return out

    def layer_norm(self, name: str, x: Tensor, *, gain: bool = True, bias: bool = True, heads: bool = False) -> Tensor:
        """A gain and a bias for each entry of a row. Keeps the input, the mean and 1/std of each row; with all in bf16 the
        statistics are bf16 too.

        With *heads* the gain (and the bias) of x (… n h) is one for each head.
        """
        out, rows, own = self.like(x), (x.axes[:-1], x.sizes[:-1]), -2 if heads else -1
        vector = (x.axes[own:], x.sizes[own:], "vector")
        weights = tuple(self.weight(*vector) for _ in range(gain + bias))  # type: ignore[arg-type]
        out.grad = x.grad or any(weight.grad for weight in weights)
        self.record(name, "norm", out, (x,), weights, saved=(x, self.tensor(*rows), self.tensor(*rows)))
        return out

    def rms_norm(
        self, name: str, x: Tensor, *, gain: bool = True, offset: bool = False, weight: Tensor | None = None
    ) -> Tensor:
        """A gain for each entry of a row. Composed: runs in fp32, keeps the input as fp32, 1/rms of each row and, with a gain,
        the normalised fp32 value.

        Fused (CUDA): keeps the input and 1/rms. A gain that is 1 + w (*offset*) is a tensor of its own, kept besides. *weight*
        reuses a gain.
        """
        out, inverse = self.like(x), self.tensor(x.axes[:-1], x.sizes[:-1], "statistic")
        own = () if not gain or weight is not None else (self.weight(x.axes[-1:], x.sizes[-1:], "vector"),)
        weights: tuple[Tensor, ...] = own if weight is None else (weight,)
        trains = bool(weights) and weights[0].grad
        out.grad = x.grad or trains
        if self.kernels.norm == "fused":
            saved: tuple[Tensor, ...] = (x, inverse)
        else:
            wide = self.like(x, "statistic")
            wide.cast_of = x
            saved = (wide, inverse) if x.grad else ()
            if trains:
                saved += (self.like(x, "statistic"),)
        if offset:
            role: Role = "activation" if self.kernels.norm == "fused" else "statistic"
            saved += (self.tensor(x.axes[-1:], x.sizes[-1:], role),)
        self.record(name, "norm", out, (x,), weights, saved=saved)
        return out

    def cross_entropy(self, name: str, logits: Tensor) -> Tensor:
        """Keeps the log-probabilities (b t v), the int64 targets and one scalar. Fused: what the logits were, now their
        gradient."""
        targets, role = self.tensor(logits.axes[:-1], logits.sizes[:-1], "index", grad=False), logits.role
        scalar, out = self.tensor((), (), role), self.tensor((), (), role, logits.grad)
        saved = (self.like(logits, role), targets, scalar)
        self.record(name, "loss", out, (logits, targets), saved=saved[:1] if self.kernels.loss == "fused" else saved)
        return out
