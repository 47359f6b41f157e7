"""The gated delta rule: a matrix a head that forgets, and of which each position corrects one row."""

from __future__ import annotations

from ..dims import Dim, ceiling, smaller
from ..tensor import Tensor
from .state import StateRules


class DeltaRules(StateRules):
    """Rules of linear attention whose state is corrected, not only added to. All of it runs in fp32."""

    def pace(self, name: str, a: Tensor) -> Tensor:
        """softplus(a + δ) of a (b t n), δ trained, one a head: how far a position moves its head's state. Keeps the softplus's
        input."""
        wide = self.shift(f"{name}_shift", self.widen(f"{name}_wide", a), self.weight(a.axes[2:], a.sizes[2:], "vector"))
        return self.act(f"{name}_softplus", wide, "input")

    def forget(self, name: str, pace: Tensor) -> Tensor:
        """−exp(A) times the pace (b t n), A trained, one a head: the logarithm of what a state keeps. Keeps both factors."""
        trained = self.weight(pace.axes[2:], pace.sizes[2:], "vector")
        rate = self.tensor(pace.axes[2:], pace.sizes[2:], "statistic", trained.grad)
        self.record(f"{name}_rate", "act", rate, (), (trained,), saved=(rate,))
        return self.mul(f"{name}_mul", pace, rate)

    def unit(self, name: str, x: Tensor) -> Tensor:
        """x divided by its length along the last axis: keeps x in fp32 and 1/length of each row."""
        wide = self.widen(f"{name}_wide", x)
        out, inverse = self.like(wide), self.tensor(x.axes[:-1], x.sizes[:-1], "statistic", x.grad)
        self.record(name, "unit", out, (wide,), saved=(wide, inverse))
        return out

    def delta_rule(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, chunk: Dim) -> Tensor:
        """S ← e^decay S, S ← S + k ⊗ β(v − kS), out = qS, for q and k (b t k h), v (b t n u), beta and decay (b t n).

        Chunks of so many positions, the last one filled up, have one triangular system each (UT transform: Yang et al. 2024,
        arXiv:2406.06484, section 3). For each chunk of C, head and sequence: C²(2h + u) multiply-adds inside it, C·h·u thrice
        with the state S (n h u). Solving the system is counted as nothing, as FlopCounterMode does; of its gradients,
        C²(h + u) products with the solution are. No gradient flows to the first state, none from the last. One position
        behind others (decoding) multiplies elementwise: counted as nothing too.

        Keeps what the products, the solutions and the exponentials need, each chunk's state among it. The cache holds S, fp32.
        """
        b, t, n, u = v.sizes
        h = q.sizes[-1]
        self.remember("state", ("b", "n", "h", "u"), (b, n, h, u), "statistic")
        out = self.tensor(v.axes, v.sizes, grad=any(x.grad for x in (q, k, v, beta, decay)))
        alone = self._decodes(t)
        chunks = (1 - alone) * ceiling(t, chunk)
        if type(alone) is int and alone == 1:
            state = self.tensor(("b", "n", "h", "u"), (b, n, h, u), "statistic")
            self.record("recurrence", "recurrence", (out, state), (q, k, v, beta, decay, state))
            return out
        return self._in_chunks(q, k, v, beta, decay, chunks, chunk, out)

    def _in_chunks(
        self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, chunks: Dim, chunk: Dim, out: Tensor
    ) -> Tensor:
        """The delta rule, *chunks* of *chunk* positions."""
        b, _, n, u = v.sizes
        h = q.sizes[-1]
        places = (b, n, chunks, chunk)
        q = self._chunked("q_chunks", self.unit("q_unit", q), (*places, h), "h")
        k = self._chunked("k_chunks", self.unit("k_unit", k), (*places, h), "h")
        v = self._chunked("v_chunks", self.widen("v_wide", v), (*places, u), "u")
        beta = self._chunked("beta_chunks", self.widen("beta_wide", beta), places)
        decay = self._chunked("decay_chunks", decay, places)
        keys, values = self.mul("k_beta", k, beta), self.mul("v_beta", v, beta)
        total = self.like(decay)
        self.record("total", "reduce", total, (decay,))
        later = self.buffer("later in a chunk", ("x", "y"), (chunk, chunk), "mask")
        between = self._exponential("between", (total, later), (*places, chunk), "y")
        others = self.view(k, ("b", "n", "c", "y", "h"), k.sizes)
        system = self.mul("system_decay", self.product("system", keys, others, "b n c x y"), between)
        scores = self.mul("scores_decay", self.product("scores", q, others, "b n c x y"), between)
        since, until = (self._exponential(name, (total,), places) for name in ("since", "until"))
        whole = self._exponential("whole", (total,), places[:3])
        values = self._solve("solve_v", system, values)
        reads = self._solve("solve_k", system, self.mul("k_since", keys, since))
        queries, writes = self.mul("q_since", q, since), self.mul("k_until", k, until)
        for rows in (queries, writes):  # of a single chunk none are kept: its state has no gradient
            rows.copies *= smaller(1, chunks - 1)
        states = self.tensor(("b", "n", "c", "h", "u"), (*places[:3], h, u), "statistic", values.grad or k.grad)
        seen = self._through("reads", reads, states)
        new = self.add("new", values, seen)
        far = self._through("queries", queries, states)
        near = self.product("mix", scores, self.view(new, ("b", "n", "c", "y", "u"), new.sizes), "b n c x u")
        self.mul("state_decay", states, whole)
        self._to_next("writes", writes, new, states)
        self.record("out", "add", out, (far, near))
        return out

    def _chunked(self, name: str, x: Tensor, sizes: tuple[Dim, ...], *width: str) -> Tensor:
        """x (b t n …) or, one for several heads, (b t k …), copied to the heads and chunks that they are needed in."""
        made = self.tensor(("b", "n", "c", "x", *width), sizes, "statistic", x.grad)
        self.record(name, "copy", made, (x,))
        return made

    def _exponential(self, name: str, read: tuple[Tensor, ...], sizes: tuple[Dim, ...], *axes: str) -> Tensor:
        """exp of differences of what is read: keeps its output."""
        out = self.tensor((*read[0].axes, *axes)[: len(sizes)], sizes, "statistic", read[0].grad)
        self.record(name, "act", out, read, saved=(out,))
        return out

    def _solve(self, name: str, system: Tensor, right: Tensor) -> Tensor:
        """The solution (… x h) of a triangular system (… x y): keeps the system and the solution."""
        out = self.like(right)
        out.grad = right.grad or system.grad
        self.record(
            name, "solve", out, (system, right), saved=(system, out),
            dinput=right.numel * system["y"] if system.grad else 0,
        )  # fmt: skip
        return out

    def _through(self, name: str, rows: Tensor, states: Tensor) -> Tensor:
        """Rows (b n c x h) times the state (b n c h u) that their chunk begins with, the first of which has no gradient: keeps
        both."""
        b, n, chunks, x, h = rows.sizes
        out = self.tensor(("b", "n", "c", "x", "u"), (b, n, chunks, x, states["u"]), "statistic", rows.grad or states.grad)
        work = b * n * x * h * states["u"]
        self.record(
            name, "product", out, (rows, states), saved=self._factors(rows, states),
            forward=chunks * work, dinput=((chunks if rows.grad else 0) + (chunks - 1 if states.grad else 0)) * work,
        )  # fmt: skip
        return out

    def _to_next(self, name: str, rows: Tensor, new: Tensor, states: Tensor) -> None:
        """Rows (b n c x h) with what they write (b n c x u), added to the states (b n c h u). The last is for a cache alone."""
        b, n, chunks, x, h = rows.sizes
        work = b * n * x * h * new["u"]
        self.record(
            name, "product", states, (rows, new), saved=self._factors(rows, new),
            forward=chunks * work, dinput=(rows.grad + new.grad) * (chunks - 1) * work,
        )  # fmt: skip
