"""Every cost rule, once: which weights, saved tensors, cached tensors, traffic and multiply-adds an operation has.

What autograd keeps was measured on torch (CPU): each rule's docstring says it. The mechanics are in
:mod:`blockcalc.recorder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from .dims import Dim, half, product, quotient, smaller
from .errors import InputError, UndefinedError
from .recorder import Recorder
from .tensor import Cached, Role, Tensor, parse, picker


def visible_pairs(t: Dim, s: Dim, *, causal: bool, window: Dim | None = None, chunk: Dim | None = None) -> Dim:
    """Query-key pairs that the mask lets through, for t new positions of which the last sees s.

    Causal: F(s) − F(s − t) with F(x) = x(x + 1)/2; with a window of w keys, the query's own included,
    F(x) = x·m − m(m − 1)/2 with m = min(x, w). In chunks of c, F(x) = ⌊x/c⌋·c(c + 1)/2 + r(r + 1)/2 with r the rest.
    Bidirectional: t·s.
    """
    if not causal:
        return t * s

    def up_to(x: Dim) -> Dim:
        if chunk is not None:
            rest = x - quotient(x, chunk) * chunk
            return quotient(x, chunk) * half(chunk * (chunk + 1)) + half(rest * (rest + 1))
        m = x if window is None else smaller(x, window)
        return x * m - half(m * (m - 1))

    return up_to(s) - up_to(s - t)


class Tape(Recorder):
    """The recorder that a component's ``trace`` writes on."""

    # -- weights ------------------------------------------------------------------------------------------------------

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
        """x times a weight over the axes that the pattern sums over. Saves its input if the weight trains. With *each*
        the weight has these axes too: a matrix of its own for each head, say.

        Backward costs one forward for each gradient that is needed. *weight* reuses a weight (a tied head). An adapter
        adds x A B, A to its rank and B to the result.
        """
        out = self._product(name, x, pattern, bias, weight, role, trains, kind, each, sizes)
        if self.adapters is None or name not in self.adapters.targets:
            return out
        adapters, self.adapters = self.adapters, None
        plan = parse(pattern)
        lead = "... " if plan.leading else ""
        rank = (lead + " ".join(axis for axis in plan.left if axis in plan.right)).strip() + " rank"
        low = self._product(f"{name}.lora_a", x, f"{lead}{' '.join(plan.left)} -> {rank}", sizes={"rank": adapters.r})
        high = self._product(f"{name}.lora_b", low, f"{rank} -> {lead}{' '.join(plan.right)}", sizes=sizes)
        self.adapters = adapters
        return self.add(f"{name}.lora", out, high)

    def _product(
        self,
        name: str,
        x: Tensor,
        pattern: str,
        bias: bool = False,
        weight: Tensor | None = None,
        role: Role = "matrix",
        trains: bool = True,
        kind: str = "linear",
        each: tuple[str, ...] = (),
        sizes: Mapping[str, Dim] = MappingProxyType({}),
    ) -> Tensor:
        plan = parse(pattern)
        lead = len(x.axes) - len(plan.left)
        if x.axes[lead:] != plan.left or (lead and not plan.leading):
            raise InputError(f"linear({name!r}, {x}, {pattern!r}): the tensor's axes are {' '.join(x.axes)}")
        known = dict(zip(plan.left, x.sizes[lead:], strict=True))
        known.update(sizes)
        made = picker(plan.made)(known)
        if weight is None:
            shape = (*each, *plan.summed, *plan.made)
            weight = self.weight(shape, picker(shape)(known), role, trains)
        out_sizes = x.sizes[:lead] + picker(plan.right)(known)
        out = self.tensor(x.axes[:lead] + plan.right, out_sizes, grad=x.grad or weight.grad)
        weights: tuple[Tensor, ...] = (weight,)
        if bias:
            weights += (self.weight(plan.made, made, "head" if role == "head" else "vector", trains),)
        work = x.numel * product(made)
        self.record(
            name, kind, out, (x,), weights,
            saved=(x,) if weight.grad else (),
            forward=work, dinput=work if x.grad else 0, dweight=work if weight.grad else 0,
        )  # fmt: skip
        return out

    def convolution(self, name: str, x: Tensor, *, t: Dim, taps: Dim, d: Dim) -> Tensor:
        """x (b … c) under a kernel of *taps* places, at t places, plus a bias: (b t d). Keeps its input, as a linear does."""
        c = x["c"]
        weights = self.weight(("k", "c", "d"), (taps, c, d)), self.weight(("d",), (d,), "vector")
        out = self.tensor(("b", "t", "d"), (x["b"], t, d), grad=x.grad or weights[0].grad)
        work = out.numel * taps * c
        self.record(
            name, "convolution", out, (x,), weights,
            saved=(x,) if weights[0].grad else (),
            forward=work, dinput=work if x.grad else 0, dweight=work if weights[0].grad else 0,
        )  # fmt: skip
        return out

    def lookup(self, name: str, ids: Tensor, table: Tensor) -> Tensor:
        """Rows of a table (v …) by index: no multiply-adds; saves the int64 indices."""
        out = self.tensor((*ids.axes, *table.axes[1:]), (*ids.sizes, *table.sizes[1:]), grad=table.grad)
        self.record(name, "lookup", out, (ids,), (table,), saved=(ids,) if table.grad else ())
        return out

    # -- elementwise --------------------------------------------------------------------------------------------------

    def add(self, name: str, *terms: Tensor) -> Tensor:
        """A sum of tensors (the first has the full shape): keeps nothing."""
        out = self.like(terms[0])
        out.grad = any(term.grad for term in terms)
        self.record(name, "add", out, terms)
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

    def product(self, name: str, a: Tensor, b: Tensor, axes: str) -> Tensor:
        """Two tensors multiplied along the axes they share by name and summed over those that *axes* leaves out.

        Keeps each factor whose partner needs a gradient; backward costs one forward for each.
        """
        sizes = dict(zip(a.axes, a.sizes, strict=True)) | dict(zip(b.axes, b.sizes, strict=True))
        right = tuple(axes.split())
        out = self.tensor(right, tuple(sizes[axis] for axis in right), grad=a.grad or b.grad)
        work = product(sizes.values())
        self.record(
            name, "product", out, (a, b), saved=self._factors(a, b), forward=work, dinput=(a.grad + b.grad) * work
        )
        return out

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

    @staticmethod
    def _factors(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        """What a product keeps: each factor whose partner needs a gradient."""
        return ((a,) if b.grad else ()) + ((b,) if a.grad else ())

    def act(self, name: str, x: Tensor, keeps: Literal["input", "output"]) -> Tensor:
        """An elementwise function: keeps its input (gelu, silu) or its output (relu, tanh, sigmoid)."""
        out = self.like(x)
        self.record(name, "act", out, (x,), saved=(x if keeps == "input" else out,) if x.grad else ())
        return out

    # -- norms --------------------------------------------------------------------------------------------------------

    def layer_norm(self, name: str, x: Tensor, *, gain: bool = True, bias: bool = True, heads: bool = False) -> Tensor:
        """Keeps the input, the mean and 1/std of each row; with all in bf16 the statistics are bf16 too.

        With *heads* the gain (and the bias) of x (… n h) is one for each head.
        """
        out, rows, own = self.like(x), (x.axes[:-1], x.sizes[:-1]), -2 if heads else -1
        vector = (x.axes[own:], x.sizes[own:], "vector")
        weights = tuple(self.weight(*vector) for _ in range(gain + bias))  # type: ignore[arg-type]
        out.grad = x.grad or any(weight.grad for weight in weights)
        self.record(name, "norm", out, (x,), weights, saved=(x, self.tensor(*rows), self.tensor(*rows)))
        return out

    def rms_norm(self, name: str, x: Tensor, *, gain: bool = True, offset: bool = False) -> Tensor:
        """Composed: runs in fp32, keeps the input as fp32, 1/rms of each row and, with a gain, the normalised fp32 value.

        Fused (CUDA): keeps the input and 1/rms. A gain that is 1 + w (*offset*) is a tensor of its own, kept besides.
        """
        out, inverse = self.like(x), self.tensor(x.axes[:-1], x.sizes[:-1], "statistic")
        weights = (self.weight(x.axes[-1:], x.sizes[-1:], "vector"),) if gain else ()
        trains = gain and weights[0].grad
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

    # -- attention ----------------------------------------------------------------------------------------------------

    def rotate(self, name: str, x: Tensor, r: Dim, *, local: bool = False) -> Tensor:
        """Rotary embedding of the first r of a head's entries: keeps the cosine and sine tables, not its input.

        *local* layers have tables of their own besides those of the others.
        """
        shape, table = (("t", "r"), (x["t"], half(r)), "activation"), "local" if local else "rotary"
        cos, sin = self.buffer(f"{table} cos", *shape), self.buffer(f"{table} sin", *shape)  # type: ignore[arg-type]
        out = self.like(x)
        self.record(name, "rotate", out, (x, cos, sin), saved=(cos, sin))
        return out

    def concat(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Two tensors side by side along their last axes, b broadcast over the others that it lacks. Keeps nothing."""
        out = self.tensor(a.axes, (*a.sizes[:-1], a.sizes[-1] + b.sizes[-1]), grad=a.grad or b.grad)
        self.record(name, "concat", out, (a, b))
        return out

    def cache(
        self, name: str, x: Tensor, kind: Literal["full", "latent", "cross"] = "full", window: Dim | None = None,
        expanded: Dim | None = None,
    ) -> Tensor:  # fmt: skip
        """x's new positions (its axis t, or m of the encoder) behind those a cache holds: the positions a query can see.

        A window layer has at most w − 1 earlier ones at hand. Without a cache this is x itself. *expanded* heads, at all
        positions, are what transformers' own code caches, and attends to, where that is more than is needed.
        """
        step, axes = self.step, tuple("s" if axis in "tm" else axis for axis in x.axes)
        if not step.cache:
            return self.view(x, axes, x.sizes)

        def at(positions: Dim) -> tuple[Dim, ...]:
            return tuple(positions if axis == "s" else size for axis, size in zip(axes, x.sizes, strict=True))

        held = step.source if kind == "cross" else step.s
        entry = Cached(Tensor(axes, at(held), "key_value", copies=self._copies), kind, None, expanded)
        if window is not None:
            entry = entry._replace(kind="window", window=window)
            held = step.t + smaller(step.s - step.t, window - 1) if expanded is None else step.s
        out = self.tensor(axes, at(held), "key_value")
        self.record(name, "cache", out, (x,), cached=(entry,))
        return out

    def uncached(self, x: Tensor) -> Tensor:
        """x's positions (its axis t, or m of the encoder) as those that a query can see: all of them, at once."""
        if "t" in x.axes:
            self.check_whole()
        return self.view(x, tuple("s" if axis in "tm" else axis for axis in x.axes), x.sizes)

    def check_whole(self) -> None:
        """Refuse a step that runs some of the positions and not all, for what mixes them in both directions."""
        if self.step.t not in (0, self.step.s):
            raise UndefinedError("mixing positions in both directions needs all of them at once: nothing to decode from a cache")

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        window: Dim | None = None,
        chunk: Dim | None = None,
        bias: Tensor | None = None,
        softcap: bool = False,
        sinks: bool = False,
    ) -> Tensor:
        """softmax(q kᵀ + bias) v for q (b t n h), k (b s k h), v (b s k u); returns (b t n u).

        Math keeps q, k and v expanded to n heads, the softmax and a boolean mask; a soft cap keeps its tanh besides.
        """
        if sinks and self.kernels.attention == "flash":
            raise UndefinedError("flash attention: attention sinks have no flash kernel on the CPU")
        b, t, n, h = q.sizes
        s, u = k["s"], v.sizes[-1]
        pairs = t * s
        visible = visible_pairs(t, self.step.s, causal=causal, window=window, chunk=chunk) if causal else pairs
        out = self.tensor(("b", "t", "n", "u"), (b, t, n, u), grad=q.grad or k.grad or v.grad)
        if chunk is not None:
            window = chunk
        if self.kernels.attention == "flash":
            with self.checkpoint("selective"):
                self._flash(q, k, v, out, causal, window, bias, softcap, pairs, visible)
            return out
        with self.checkpoint("selective"):
            scores = self.tensor(("b", "n", "t", "s"), (b, n, t, s), grad=q.grad or k.grad)
            self.record(
                "scores", "attention", scores, (q, k),
                saved=self._factors(q, self._expand(k, n, q)), forward=b * n * h, dinput=(q.grad + k.grad) * b * n * h,
                pairs=pairs, visible=visible, heads=n, window=window,
            )  # fmt: skip
            if softcap:
                scores = self.act("softcap", scores, "output")
            if bias is not None:
                scores = self.add("bias", scores, bias)
            if causal:
                mask = self.buffer(f"mask {window}", ("t", "s"), (t, s), "mask")
                self.record("mask", "mask", scores, (scores, mask), saved=(mask,))
            weights = self._softmax(scores, sinks)
            self.record(
                "mix", "attention", out, (weights, v),
                saved=self._factors(weights, self._expand(v, n, q, k)),
                forward=b * n * u, dinput=(weights.grad + v.grad) * b * n * u, pairs=pairs, visible=visible, heads=n, window=window,
            )  # fmt: skip
        return out

    def _softmax(self, scores: Tensor, sinks: bool) -> Tensor:
        """Keeps its output. With *sinks* a trained logit a head is one column more, which is kept and then left out."""
        if not sinks:
            return self.act("softmax", scores, "output")
        b, n, t, s = scores.sizes
        wide = self.tensor(scores.axes, (b, n, t, s + 1))
        self.record("sinks", "concat", wide, (scores,), (self.weight(("n",), (n,), "vector"),))
        return self.view(self.act("softmax", wide, "output"), scores.axes, scores.sizes)

    def _expand(self, x: Tensor, n: Dim, *others: Tensor) -> Tensor:
        """Keys or values as the math kernel keeps them: one copy a query head when heads are grouped, and their own copy
        when they are one with the queries or keys (of more than one head and sequence: else views keep one storage)."""
        b, s, k, h = x.sizes
        same = k == n and all(x.storage is not other.storage for other in others)
        return x if same else self.tensor(("b", "s", "n", "h"), (b, s, n, h), x.role, x.grad)

    def _flash(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, window: Dim | None, bias: Tensor | None,
        softcap: bool, pairs: Dim, visible: Dim,
    ) -> None:  # fmt: skip
        """One kernel: keeps q, k, v unexpanded, the output and one fp32 log-sum-exp a row and head, and runs the scores
        again backward (5 products against 2). A window takes an additive mask."""
        b, t, n, h = q.sizes
        u = v.sizes[-1]
        if h != u:
            raise UndefinedError(f"flash attention: keys are {h} wide and values {u}; the CPU's kernel takes equal widths only")
        if bias is not None:
            raise UndefinedError("flash attention: a trainable position bias has no flash kernel on the CPU")
        if softcap:
            raise UndefinedError("flash attention: soft-capped scores have no flash kernel on the CPU")
        masks: tuple[Tensor, ...] = ()
        if window is not None:
            masks = (self.buffer(f"mask {window}", ("t", "s"), (t, k["s"]), "activation"),)
        rows = self.tensor(("b", "n", "t"), (b, n, t), "statistic")
        self.record(
            "flash", "attention", out, (q, k, v, *masks), saved=(q, k, v, out, rows, *masks),
            forward=b * n * (h + u), dinput=b * n * (3 * h + 2 * u) if out.grad else 0, pairs=pairs, visible=visible, heads=n, window=window,
        )  # fmt: skip

    # -- mixtures -----------------------------------------------------------------------------------------------------

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

    # -- the loss -----------------------------------------------------------------------------------------------------

    def cross_entropy(self, name: str, logits: Tensor) -> Tensor:
        """Keeps the log-probabilities (b t v), the int64 targets and one scalar."""
        targets = self.tensor(logits.axes[:-1], logits.sizes[:-1], "index", grad=False)
        scalar, out = self.tensor((), ()), self.tensor((), (), grad=logits.grad)
        self.record(name, "loss", out, (logits, targets), saved=(self.like(logits), targets, scalar))
        return out
