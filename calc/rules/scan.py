"""State-space models: a state that each position scales down and adds to, and that is read at each."""

from __future__ import annotations

from ..dims import Dim, ceiling
from ..tensor import Tensor
from .delta import DeltaRules


class ScanRules(DeltaRules):
    """Rules of state-space models. All of them run in fp32."""

    def state_space(self, x: Tensor, pace: Tensor, decay: Tensor, b: Tensor, c: Tensor, chunk: Dim) -> Tensor:
        """S ← e^decay S + B ⊗ pace·x, out = C S + D x for x (b t n u), pace and decay (b t n), B and C (b t k h), D trained,
        one a head. For each sequence and head c chunks of C positions cost C²(h + u) multiply-adds inside and C·h·u twice with
        the states; from chunk to chunk all are weighed at once, (c + 1)²·h·u.

        The last chunk is filled up: Dao and Gu 2024, arXiv:2405.21060, section 6. One position behind others (decoding) costs
        h·u.

        Keeps what the products and the exponentials need, each chunk's state among it. The cache holds the state (n u h), fp32.
        """
        batch, t, n, u = x.sizes
        h = b.sizes[-1]
        self.remember("state", ("b", "n", "u", "h"), (batch, n, u, h), "statistic")
        wide = self.widen("x_wide", x)
        skip = self.scale("skip", wide, self.weight(("n",), (n,), "vector"))
        out = self.tensor(x.axes, x.sizes, grad=True)
        alone = self._decodes(t)
        chunks = (1 - alone) * ceiling(t, chunk)
        if type(alone) is int and alone == 1:
            state = self.tensor(("b", "n", "u", "h"), (batch, n, u, h), "statistic")
            self.record("recurrence", "state space", (out, state), (wide, pace, decay, b, c, state), forward=state.numel)
        else:
            parts = self._scanned(self.mul("x_pace", wide, pace), decay, b, c, chunks, chunk)
            self.record("out", "add", out, (*parts, skip))
        return out

    def _scanned(
        self, x: Tensor, decay: Tensor, b: Tensor, c: Tensor, chunks: Dim, chunk: Dim
    ) -> tuple[Tensor, Tensor]:
        """What a position reads of its own chunk and of those before, *chunks* of *chunk* positions."""
        batch, _, n, u = x.sizes
        h, places = b.sizes[-1], (batch, n, chunks, chunk)
        x = self._chunked("x_chunks", x, (*places, u), "u")
        b = self._chunked("b_chunks", self.widen("b_wide", b), (*places, h), "h")
        c = self._chunked("c_chunks", self.widen("c_wide", c), (*places, h), "h")
        decay = self._chunked("decay_chunks", decay, places)
        total = self.like(decay)
        self.record("total", "reduce", total, (decay,))
        later = self.buffer("later in a chunk", ("x", "y"), (chunk, chunk), "mask")
        between = self._exponential("between", (total, later), (*places, chunk), "y")
        scores = self.product("scores", c, self.view(b, ("b", "n", "c", "y", "h"), b.sizes), "b n c x y")
        scores = self.mul("scores_decay", scores, between)
        near = self.product("near", scores, self.view(x, ("b", "n", "c", "y", "u"), x.sizes), "b n c x u")
        since, until = (self._exponential(name, (total,), places) for name in ("since", "until"))
        added = self.product("added", self.mul("b_until", b, until), x, "b n c h u")
        states = self._passed_on(added, total, chunks)
        far = self.mul("far_decay", self.product("far", c, states, "b n c x u"), since)
        return near, far

    def _passed_on(self, added: Tensor, total: Tensor, chunks: Dim) -> Tensor:
        """The states (b n c h u) that the chunks begin with: those before them, weighed all at once, of which the last that is
        made is for a cache alone."""
        batch, n, _, h, u = added.sizes
        states = self.tensor(("b", "n", "z", "h", "u"), (batch, n, chunks + 1, h, u), "statistic", added.grad)
        self.record("first", "concat", states, (added,))
        ends = self.view(total, ("b", "n", "y"), (batch, n, chunks + 1))
        later = self.buffer("later chunks", ("y", "z"), (chunks + 1, chunks + 1), "mask")
        passing = self._exponential("passing", (ends, later), (batch, n, chunks + 1, chunks + 1), "z")
        reached = self.product("passed", passing, states, "b n y h u")
        begun = self.tensor(added.axes, added.sizes, "statistic", reached.grad)
        self.record("begun", "copy", begun, (reached,))
        return begun

    def selective_scan(self, x: Tensor, pace: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """S ← e^(−pace·exp(A)) S + pace·x ⊗ B, out = S C + D x for x and pace (b t f), B and C (b t h), A (f h) and D (f)
        trained: f·h multiply-adds a position where S is read, and what is elementwise counted as nothing.

        Gu and Dao 2023, arXiv:2312.00752, algorithm 2, one position after the other. Keeps every position's state and decay,
        and one state before them. The cache holds the last, fp32.
        """
        batch, t, f = x.sizes
        h = b.sizes[-1]
        self.remember("state", ("b", "f", "h"), (batch, f, h), "statistic")
        trained, axes = self.weight(("f", "h"), (f, h), "vector"), ("b", "t", "f", "h")
        rate = self.tensor(("f", "h"), (f, h), "statistic", trained.grad)
        self.record("rate", "act", rate, (), (trained,), saved=(rate,))
        decay, added = (self.tensor(axes, (batch, t, f, h), "statistic", x.grad or trained.grad) for _ in range(2))
        wide = self.widen("x_wide", x)
        self.record("decay", "act", decay, (pace, rate), saved=(pace, rate, decay))
        moved, b = self.mul("x_pace", wide, pace), self.widen("b_wide", b)
        self.record("added", "mul", added, (moved, b), saved=self._factors(moved, b))
        states = self.tensor(axes, (batch, t + 1, f, h), "statistic", x.grad or trained.grad)
        self.record("states", "scan", states, (decay, added), saved=(decay, states))
        c = self.widen("c_wide", c)
        out, work = self.tensor(x.axes, x.sizes, grad=states.grad or c.grad), batch * t * f * h
        self.record(
            "read", "product", out, (states, c), saved=self._factors(states, c), forward=work,
            dinput=(states.grad + c.grad) * work,
        )  # fmt: skip
        return self.add("skip_add", out, self.scale("skip", wide, self.weight(("f",), (f,), "vector")))
