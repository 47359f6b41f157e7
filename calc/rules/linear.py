"""Linear maps: by a weight, by a convolution's kernel, by a table's rows, and of two tensors by each other."""

from __future__ import annotations

from collections.abc import Mapping

from ..dims import Dim, product
from ..errors import InputError
from ..tensor import Role, Tensor, fitted, parse
from .elementwise import Elementwise


class Linear(Elementwise):
    """Rules of operations that multiply and add: backward costs one forward for each gradient that is needed."""

    def linear(
        self,
        name: str,
        x: Tensor,
        pattern: str,
        *,
        bias: bool = False,
        weight: Tensor | None = None,
        role: Role = "matrix",
        trains: bool = True,
        kind: str = "linear",
        each: tuple[str, ...] = (),
        **sizes: Dim,
    ) -> Tensor:
        """x times a weight over the axes that the pattern sums over: a multiply-add for each entry of x and each that is
        made of it; a bias costs none. Saves its input if the weight trains.

        Backward costs one forward for each gradient that is needed. *weight* reuses a weight (a tied head); with *each*
        the weight has these axes too: a matrix of its own for each head, say. An adapter adds x A B, A to its rank and B
        to the result.
        """
        plan = fitted(pattern, x.axes, tuple(sizes), each)
        if plan is None:
            raise InputError(f"linear({name!r}, {x}, {pattern!r}): the tensor's axes are {' '.join(x.axes)}")
        known = (*x.sizes, *sizes.values())
        made = plan.made_of(known)
        if weight is None:
            weight = self.weight(plan.weight, plan.weight_of(known), role, trains)
        elif weight.numel != product(plan.weight_of(known)):
            raise InputError(f"linear({name!r}, {x}, {pattern!r}): the weight that it shares is {weight}")
        out = self.tensor(plan.axes, plan.sizes_of(known), grad=x.grad or weight.grad)
        weights: tuple[Tensor, ...] = (weight,)
        if bias:
            weights += (self.weight(plan.made, made, "head" if role == "head" else "vector", trains),)
        work = x.numel * product(made)
        self.record(
            name, kind, out, (x,), weights,
            saved=(x,) if weight.grad else (),
            forward=work, dinput=work if x.grad else 0, dweight=work if weight.grad else 0,
        )  # fmt: skip
        return out if self.adapters is None else self._adapted(name, x, pattern, out, sizes)

    def _adapted(self, name: str, x: Tensor, pattern: str, out: Tensor, sizes: Mapping[str, Dim]) -> Tensor:
        """out plus what the adapter of a target makes of x, the only weights that train."""
        adapters = self.adapters
        if adapters is None or name not in adapters.targets:
            return out
        plan, self.adapters = parse(pattern), None
        lead = "... " if plan.leading else ""
        rank = (lead + " ".join(axis for axis in plan.left if axis in plan.right)).strip() + " rank"
        low = self.linear(f"{name}.lora_a", x, f"{lead}{' '.join(plan.left)} -> {rank}", rank=adapters.r)
        high = self.linear(f"{name}.lora_b", low, f"{rank} -> {lead}{' '.join(plan.right)}", **sizes)
        self.adapters = adapters
        return self.add(f"{name}.lora", out, high)

    def convolution(self, name: str, x: Tensor, *, t: Dim, taps: Dim, d: Dim, bias: bool = True) -> Tensor:
        """x, its channels c last, under a kernel of *taps* places, at t places, and perhaps a bias: taps·c multiply-adds for
        each entry of (b t d). Keeps its input, as a linear does."""
        c = x["c"]
        weights: tuple[Tensor, ...] = (self.weight(("taps", "c", "d"), (taps, c, d)),)
        if bias:
            weights += (self.weight(("d",), (d,), "vector"),)
        out = self.tensor(("b", "t", "d"), (x["b"], t, d), grad=x.grad or weights[0].grad)
        work = out.numel * taps * c
        self.record(
            name, "convolution", out, (x,), weights,
            saved=(x,) if weights[0].grad else (),
            forward=work, dinput=work if x.grad else 0, dweight=work if weights[0].grad else 0,
        )  # fmt: skip
        return out

    def lookup(self, name: str, ids: Tensor, table: Tensor) -> Tensor:
        """Rows of a table by index: no multiply-adds; saves the int64 indices."""
        out = self.tensor((*ids.axes, *table.axes[1:]), (*ids.sizes, *table.sizes[1:]), grad=table.grad)
        self.record(name, "lookup", out, (ids,), (table,), saved=(ids,) if table.grad else ())
        return out

    def product(self, name: str, a: Tensor, b: Tensor, axes: str) -> Tensor:
        """Two tensors multiplied along the axes they share by name and summed over those that *axes* leaves out: a
        multiply-add for each combination of their axes. Keeps each factor whose partner needs a gradient.

        Backward costs one forward for each.
        """
        sizes = dict(zip(a.axes, a.sizes, strict=True)) | dict(zip(b.axes, b.sizes, strict=True))
        right = tuple(axes.split())
        role: Role = "statistic" if a.role == "statistic" else "activation"
        out = self.tensor(right, tuple(sizes[axis] for axis in right), role, a.grad or b.grad)
        work = product(sizes.values())
        self.record(
            name, "product", out, (a, b), saved=self._factors(a, b), forward=work, dinput=(a.grad + b.grad) * work
        )
        return out
