"""What passes from position to position: convolutions over the last few."""

from __future__ import annotations

from ..dims import Dim, granted, smaller
from ..tensor import Cached, Role, Tensor
from .linear import Linear


class StateRules(Linear):
    """Rules of operations that see the positions before through a state of fixed size."""

    def remember(self, name: str, axes: tuple[str, ...], sizes: tuple[Dim, ...], role: Role = "state") -> None:
        """A state that the cache holds, of one size whatever the length: the next step starts from it."""
        state = Tensor(axes, sizes, role, self._copies)
        self.record(name, "cache", (), cached=(Cached(state, "state", None),))

    def _decodes(self, t: Dim) -> Dim:
        """1 where a single position runs behind others, else 0."""
        step = self.step
        if not step.cache:
            return 0
        if type(t) is int and t == 1 and granted(2, step.s, "a state that one visible token leaves is another closed form"):
            return 1
        return smaller(1, step.s - t) * (1 - smaller(1, t - 1))

    def causal_convolution(self, name: str, x: Tensor, taps: Dim, *, bias: bool = False) -> Tensor:
        """Each channel of x (b t …) under a kernel of its own over its last *taps* positions: taps multiply-adds for each
        entry computed. Keeps its input; its output as it was computed, t + taps − 1 positions, is kept where that is.

        So torch runs it, padded by taps − 1 at both ends. A cache holds the last *taps* positions, from the start. They stand
        before a later step's own; a single one behind them runs without padding, and makes 2. Of the weight's gradient
        FlopCounterMode counts d times as much: it takes the d channels for one dense convolution.
        """
        step, channels = self.step, x.sizes[2:]
        places = x["t"] + taps - 1
        if step.cache:
            behind = smaller(1, step.s - step.t)
            filled_up = taps - smaller(x["t"], taps)
            alone = 1 - smaller(1, x["t"] - 1)
            places += behind * (taps - alone * 2 * (taps - 1)) + (1 - behind) * filled_up
        weights: tuple[Tensor, ...] = (self.weight((*x.axes[2:], "taps"), (*channels, taps)),)
        if bias:
            weights += (self.weight(x.axes[2:], channels, "vector"),)
        trains = weights[0].grad
        out = self.tensor(x.axes, (x["b"], places, *channels), grad=x.grad or trains)
        self.remember(f"{name}_state", ("b", *x.axes[2:], "taps"), (x["b"], *channels, taps))
        work = out.numel * taps
        self.record(
            name, "convolution", out, (x,), weights, saved=(x,) if trains else (),
            forward=work, dinput=work if x.grad else 0, dweight=work if trains else 0, window=taps,
        )  # fmt: skip
        return self.view(out, x.axes, x.sizes)
