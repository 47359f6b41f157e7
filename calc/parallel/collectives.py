"""What the ranks of a layout send to each other: every collective of a step, read off the lines that need it.

An activation that no rank owns is whole on every rank (or, with sequence parallelism, split along the sequence). Where a
line makes of it something with heads, hidden units or a vocabulary, it *enters*: forward nothing (an all-gather), backward
an all-reduce (a reduce-scatter). Where a line sums over what ranks own, it *leaves*: forward an all-reduce (a
reduce-scatter), backward nothing (an all-gather). Shoeybi et al. 2019, arXiv:1909.08053, figure 3; Korthikanti et al.
2022, arXiv:2205.05198, figures 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from ..budget import Budget, Widths
from ..dims import Dim, check_at_most, spread
from ..tensor import Line, Role, Tensor
from .layout import Layout
from .shard import SPLIT, Shards, fully_sharded

Kind: TypeAlias = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"]
Group: TypeAlias = Literal["tp", "etp", "heads", "cp", "ep", "dp", "edp", "pp", "ends"]
Phase: TypeAlias = Literal["forward", "backward", "recompute", "step"]


class Collective(NamedTuple):
    """One collective of a rank: *elements* of the whole tensor (gathered, or before it is reduced), *copies* a step.

    An all-to-all and a send are of what the rank has. ``ranks`` is the size of its group.
    """

    path: str
    phase: Phase
    kind: Kind
    group: Group
    ranks: Dim
    elements: Dim
    role: Role
    copies: Dim

    def payload(self, widths: Widths) -> Dim:
        """Bytes of the whole tensor, all copies."""
        return self.elements * widths[self.role] * self.copies

    def each(self, widths: Widths) -> Dim:
        """Bytes of the whole tensor."""
        return self.elements * widths[self.role]

    def sent(self, widths: Widths) -> Dim:
        """Bytes that the rank sends, by rings: an all-reduce 2(n − 1)/n of the whole tensor, the others (n − 1)/n, a send all.

        nccl-tests, doc/PERFORMANCE.md.
        """
        whole = self.payload(widths)
        if self.kind == "send":
            return whole
        return spread((2 if self.kind == "all-reduce" else 1) * whole * (self.ranks - 1), self.ranks)


def collectives(budget: Budget, layout: Layout) -> tuple[Collective, ...]:
    """Those inside a microbatch's forward and backward pass, of the whole trace *budget* run on *layout*.

    Sends between stages and sums over data ranks are :func:`sends`, :func:`ends` and :func:`gradients`. What is recomputed
    is recomputed whole; torch's checkpoint, unless told not to stop early, leaves a layer's last sum out.
    """
    return tuple(Crossings(budget, layout).found())


class Crossings:
    """Walks the lines of a whole trace and finds where tensors enter, leave, and change ranks."""

    def __init__(self, budget: Budget, layout: Layout) -> None:
        self.budget, self.layout = budget, layout
        self.shards = Shards(layout, budget)
        self._entered: set[tuple[Tensor, str]] = set()

    def found(self) -> Iterator[Collective]:
        """The collectives in the order of the forward pass, each with those it causes backward."""
        for line in self.budget.lines:
            if self.layout.tp != 1 and line.kind == "loss":
                yield from self._loss(line)
            elif line.written and line.kind != "cache":
                yield from self._experts(line)
                yield from self._crossing(line)
            if self.layout.cp != 1 and line.pairs != 1:
                yield from (self._exchange if self.layout.ulysses else self._ring)(line)

    # -- tensor and sequence parallelism ------------------------------------------------------------------------------

    def _crossing(self, line: Line) -> Iterator[Collective]:
        out = line.written[0]
        if self.shards.owned(out):
            owner = line.path.rpartition(".")[0]
            for x in line.read:
                if not self._stays(x) and (x.storage, owner) not in self._entered:
                    self._entered.add((x.storage, owner))
                    yield from self._enters(line, x)
        elif self._sums_over_ranks(line, out):
            yield from self._leaves(line, out)

    def _stays(self, x: Tensor) -> bool:
        """Is there nothing to gather or to add up: it is owned, or a constant that each rank has?"""
        return self.shards.owned(x) or x in self.shards.buffers or x.role in ("index", "mask") or "b" not in x.axes

    def _sums_over_ranks(self, line: Line, out: Tensor) -> bool:
        ranks = self.layout.expert_tp if line.bank != 1 else self.layout.tp
        if ranks == 1:
            return False
        summed = {axis for weight in line.weights for axis in weight.axes} - set(out.axes)
        return not SPLIT.isdisjoint(summed)

    def _enters(self, line: Line, x: Tensor) -> Iterator[Collective]:
        if self.layout.sequence:
            yield from self._forward(line, "all-gather", x)
        if not self.budget.step.training:
            return
        if self.layout.sequence and line.bank == 1 and any(weight.grad for weight in line.weights):
            yield self._of(line, "backward", "all-gather", x)  # its part is kept, and gathered again for the weight's gradient
        if x.grad:
            yield self._of(line, "backward", "reduce-scatter" if self.layout.sequence else "all-reduce", x)

    def _leaves(self, line: Line, out: Tensor) -> Iterator[Collective]:
        if not self.layout.sequence:
            yield from self._forward(line, "all-reduce", out)
            return
        yield from self._forward(line, "reduce-scatter", out)
        if out.grad and self.budget.step.training:
            yield self._of(line, "backward", "all-gather", out)

    def _forward(self, line: Line, kind: Kind, x: Tensor) -> Iterator[Collective]:
        yield self._of(line, "forward", kind, x)
        if line.recomputed:
            yield self._of(line, "recompute", kind, x)

    def _of(self, line: Line, phase: Phase, kind: Kind, x: Tensor) -> Collective:
        group: Group = "etp" if "a" in x.axes else "tp"
        ranks = self.layout.expert_tp if group == "etp" else self.layout.tp
        elements = self._gathered(x, ranks)
        return Collective(line.path, phase, kind, group, ranks, elements, x.role, line.copies)

    def _gathered(self, x: Tensor, ranks: Dim) -> Dim:
        """Elements of x as a rank of the group sees it whole: its own part, times the ranks that split its positions."""
        part = self.shards.tensor(x).numel
        return part * ranks if self.layout.sequence else part

    def _loss(self, line: Line) -> Iterator[Collective]:
        """Vocabulary-parallel cross entropy: each row's maximum, its target's logit, and its sum of exponentials."""
        logits, targets = line.read
        if self.shards.owned(logits):
            rows = self.shards.tensor(targets).numel
            for what in ("maximum", "target", "sum"):
                path, ranks = f"{line.path}.{what}", self.layout.tp
                yield Collective(path, "forward", "all-reduce", "tp", ranks, rows, "statistic", line.copies)

    # -- expert parallelism -------------------------------------------------------------------------------------------

    def _experts(self, line: Line) -> Iterator[Collective]:
        """Rows go to their experts behind the dispatch, and come back before they are combined; backward the other way."""
        if self.layout.ep == 1 or line.kind not in ("gather", "scatter"):
            return
        rows = line.written[0] if line.kind == "gather" else line.read[0]
        phases: list[Phase] = ["forward"]
        phases += ["recompute"] if line.recomputed else []
        phases += ["backward"] if rows.grad and self.budget.step.training else []
        for phase in phases:
            yield Collective(
                line.path, phase, "all-to-all", "ep", self.layout.ep, self.shards.tensor(rows).numel, rows.role, line.copies
            )

    # -- context parallelism ------------------------------------------------------------------------------------------

    def _ring(self, line: Line) -> Iterator[Collective]:
        """Keys and values go round a ring, cp − 1 hops forward and as many backward; their gradients, added up in fp32 on the
        way, go along and one hop further, home. As torch.distributed.tensor.experimental's ring does it."""
        layout = self.layout
        _, keys, values, *_ = line.read
        blocks = self.shards.tensor(keys).numel + self.shards.tensor(values).numel
        hops = (layout.cp - 1) * line.copies
        yield Collective(line.path, "forward", "send", "cp", layout.cp, blocks, keys.role, hops)
        if line.recomputed:
            yield Collective(line.path, "recompute", "send", "cp", layout.cp, blocks, keys.role, hops)
        if self.budget.step.training:
            yield Collective(line.path, "backward", "send", "cp", layout.cp, blocks, keys.role, hops)
            gradients = layout.cp * line.copies
            yield Collective(f"{line.path}.gradients", "backward", "send", "cp", layout.cp, blocks, "statistic", gradients)


    def _exchange(self, line: Line) -> Iterator[Collective]:
        """Queries, keys and values change positions for heads, and the output back; backward their gradients."""
        phases: list[Phase] = ["forward"]
        phases += ["recompute"] if line.recomputed else []
        phases += ["backward"] if self.budget.step.training else []
        for phase in phases:
            for tensor in (*line.read[:3], *line.written):
                elements = self.shards.tensor(tensor).numel
                yield Collective(line.path, phase, "all-to-all", "cp", self.layout.cp, elements, tensor.role, line.copies)


# -- once a step -------------------------------------------------------------------------------------------------------


def sends(boundary: Tensor, layout: Layout, budget: Budget, path: str) -> tuple[Collective, ...]:
    """What a stage hands to the next for one microbatch, and gets back: its output (b t d), or the rank's part of that."""
    elements = Shards(layout, budget).tensor(boundary).numel
    phases: tuple[Phase, ...] = ("forward", "backward") if budget.step.training else ("forward",)
    return tuple(Collective(path, phase, "send", "pp", layout.pp, elements, boundary.role, 1) for phase in phases)


def ends(last: Budget, layout: Layout) -> tuple[Collective, ...]:
    """What the first stage and the *last* send once a step: the gradients of a tied table, of which both have their own."""
    tables = {
        weight: Shards(layout, last).tensor(weight).numel
        for line in last.lines
        for weight in line.weights
        if weight.role == "table" and weight.grad and line.kind != "lookup"
    }
    if layout.pp == 1 or not last.step.training:
        return ()
    return tuple(Collective("gradients", "step", "all-reduce", "ends", 2, elements, "table", 1) for elements in tables.values())


def gradients(whole: Budget, layout: Layout) -> tuple[Collective, ...]:
    """What the ranks that hold the same weights of a stage send once a step: sums of gradients, and weights sent back.

    Data ranks (and context ranks) all-reduce; ZeRO 1 and 2 reduce-scatter gradients and all-gather weights; stage 3 gathers
    each layer's weights forward and again backward, those outside the layers forward alone, and reduce-scatters. Tensor
    ranks all-reduce the gradients of what each of them has whole and uses on its own positions (sequence parallelism) or
    heads (a norm that they share); ranks that share a key-value head those of its weights. Elements are those of a rank's
    part of the weights, of which stage 3 pads the first axis.
    """
    if not whole.step.training:
        return ()
    totals = _Totals()
    shards = Shards(layout, whole)
    seen: set[Tensor] = set()
    for line in whole.lines:
        for weight in line.weights:
            if weight not in seen:
                seen.add(weight)
                totals.add(line, weight, shards)
    return tuple(totals.collectives(layout))


class _Totals:
    """Elements of a rank's weights, by who else has them."""

    def __init__(self) -> None:
        self.sums: dict[tuple[Group, bool, bool], Dim] = {}
        self.shared: dict[tuple[Group, Dim], Dim] = {}

    def add(self, line: Line, whole: Tensor, shards: Shards) -> None:
        layout, part, expert = shards.layout, shards.tensor(whole, line.bank), line.bank != 1
        group: Group = "edp" if expert else "dp"
        ranks = layout.expert_replicas if expert else layout.replicas
        elements = ranks * fully_sharded(line, part, ranks).numel if layout.zero == 3 else part.numel
        key = group, whole.grad, line.layer is not None
        self.sums[key] = self.sums.get(key, 0) + elements * part.copies
        if not whole.grad:
            return
        tensor: tuple[Group, Dim] = ("etp", layout.expert_tp) if expert else ("tp", layout.tp)
        if tensor[1] != 1 and SPLIT.isdisjoint(whole.axes) and (layout.sequence or shards.owned(line.written[0])):
            self.shared[tensor] = self.shared.get(tensor, 0) + part.numel * part.copies
        if "k" not in whole.axes:
            return
        if type(layout.tp) is not int or type(whole["k"]) is not int:
            refusal = "tp = {} ranks that share k = {} heads sum gradients, which is another closed form"
            check_at_most(layout.tp, whole["k"], refusal)
        elif layout.tp > whole["k"]:
            heads: tuple[Group, Dim] = "heads", layout.tp // whole["k"]
            self.shared[heads] = self.shared.get(heads, 0) + part.numel * part.copies

    def collectives(self, layout: Layout) -> Iterator[Collective]:
        for (group, trains, layer), elements in self.sums.items():
            ranks = layout.expert_replicas if group == "edp" else layout.replicas
            if ranks == 1:
                continue
            for path, phase, kind in _DATA[layout.zero]:
                again = path == "weights" and phase == "backward"
                if (layer or not again) and (trains or (path == "weights" and layout.zero == 3)):
                    yield Collective(path, phase, kind, group, ranks, elements, "matrix", 1)
        for (group, ranks), elements in self.shared.items():
            yield Collective("gradients", "step", "all-reduce", group, ranks, elements, "matrix", 1)


_DATA: dict[int, tuple[tuple[str, Phase, Kind], ...]] = {
    0: (("gradients", "step", "all-reduce"),),
    1: (("gradients", "step", "reduce-scatter"), ("weights", "step", "all-gather")),
    2: (("gradients", "step", "reduce-scatter"), ("weights", "step", "all-gather")),
    3: (
        ("weights", "forward", "all-gather"),
        ("weights", "backward", "all-gather"),
        ("gradients", "backward", "reduce-scatter"),
    ),
}  # fmt: skip
"""What data parallelism sends, by the stage of ZeRO. Of stage 3 what stands outside the layers is gathered once: torch's
``fully_shard`` reshards each layer behind its forward pass, the root (``reshard_after_forward``) only behind the backward."""
