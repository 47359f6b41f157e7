"""What is alive while a piece of a model runs: tensors that later lines read, gradients on their way, what autograd keeps.

Lines run as eager torch runs them: a tensor is freed behind its last use, a gradient behind the line that takes it, what
autograd keeps behind the backward of the line that keeps it first. What a module is called with stays until it returns. A
sum hands its gradient on uncopied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ..budget import Budget, Widths, storage
from ..dims import Dim, chosen, largest
from ..tensor import Line, Tensor

Sent = Mapping[str, Dim]
"""Bytes of the whole tensors that collectives make for one run of a line, by its path."""


class Pass:
    """One run of a piece. *plain* is the same piece without checkpoints; *forth* and *back* are what collectives hold of a
    line's tensors, forward and backward."""

    def __init__(self, piece: Budget, plain: Budget, widths: Widths, forth: Sent, back: Sent) -> None:
        self.widths, self.forth, self.back = widths, forth, back
        self.buffers = frozenset(plain.buffers)
        kept = {storage(x, widths) for line in plain.lines for x in line.saved}
        over = {storage(line.read[0], widths): line.saved[0] for line in plain.lines if _in_place(line)}
        self.over = {logits: gradient for logits, gradient in over.items() if logits not in kept}
        pairs = list(zip((line for line in piece.lines if line.kind != "checkpoint"), plain.lines, strict=True))
        self.again = frozenset(twin for line, twin in pairs if line.recomputed)
        same = {self.own(x): self.own(y) for pair in pairs for x, y in zip(*map(_tensors, pair), strict=False)}
        self.held = frozenset(same.get(self.own(x), self.own(x)) for line in piece.lines for x in line.saved) - self.buffers
        self.segments = _segments(plain.lines)
        self.behind = _behind(self.segments, piece)
        self.passing = _passing(plain)
        self.layers = {layer.layer: layer.further for layer in piece.activations(widths).layers}

    def own(self, tensor: Tensor) -> Tensor:
        """What owns a tensor's memory."""
        found = storage(tensor, self.widths)
        return self.over.get(found, found)

    def size(self, tensor: Tensor) -> Dim:
        """Bytes of one copy."""
        return tensor.numel * self.widths[tensor.role]

    def sizes(self, tensors: Iterable[Tensor]) -> Dim:
        """Bytes of one copy of each, once."""
        return sum(map(self.size, set(tensors)))

    def saved(self, lines: Iterable[Line]) -> set[Tensor]:
        """The storages that autograd keeps of these lines, buffers left out."""
        return {self.own(x) for line in lines for x in line.saved} - self.buffers

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self) -> Dim:
        """The most that is alive in a forward and a backward pass, beyond all that is kept between the two."""
        moments: list[Dim] = [0]
        for lines, (layers, rest) in zip(self.segments, self.behind, strict=True):
            done = sum(count * self.layers.get(name, 0) for name, count in layers) + self.sizes(self.saved(rest) & self.held)
            moments += [size - done for size in (*self._backward(lines), *self._forward(lines))]
        return largest(moments)

    def _backward(self, lines: Sequence[Line]) -> Iterator[Dim]:
        """Gradients and what is kept again, less what is freed, line by line."""
        gradients, first = _Gradients(self), self._first_savers(lines)
        alive: Dim = 0
        start: int | None = None
        for place in range(len(lines) - 1, -1, -1):
            line = lines[place]
            if line in self.again and start is None:
                start = next((i for i in range(place, -1, -1) if lines[i] not in self.again), -1) + 1
                alive += self.sizes(self.saved(lines[start : place + 1]) - self.held)
            start = None if start == place else start
            yield alive + gradients.through(line) + self.back.get(line.path, 0) + self._inside(line)
            gradients.take(line)
            alive -= self.sizes(one for one in self.saved((line,)) if first[one] is line)

    def _first_savers(self, lines: Sequence[Line]) -> dict[Tensor, Line]:
        """Behind whose backward each storage is freed."""
        first: dict[Tensor, Line] = {}
        for line in lines:
            for one in self.saved((line,)):
                first.setdefault(one, line)
        return first

    def _inside(self, line: Line) -> Dim:
        """What a line holds backward besides. A loss that is written out: the gradient of its log-probabilities, when the
        targets are gone; one that wrote it over the logits holds it already."""
        if line.kind != "loss":
            return 0
        logits, targets = map(self.size, line.read)
        return -logits if _in_place(line) else logits - targets

    # -- forward -------------------------------------------------------------------------------------------------------

    def _forward(self, lines: Sequence[Line]) -> Iterator[Dim]:
        """What is alive and not kept, less what is kept and not yet there, line by line."""
        missing: list[Dim] = [0] * len(lines)
        seen: set[Tensor] = set()
        for place, line in enumerate(lines):
            new = ({self.own(x) for x in line.written} | self.saved((line,))) & self.held - seen
            seen |= new
            missing[place] = self.sizes(new)
        ahead = sum(missing)
        for size, alive in zip(missing, self._alive(lines, self.held), strict=True):
            ahead -= size
            yield alive - ahead

    def serving(self) -> Dim:
        """The most that is alive in a forward pass that keeps nothing but the cache."""
        return largest(size for lines in self.segments for size in self._alive(lines, frozenset()))

    def _alive(self, lines: Sequence[Line], kept: frozenset[Tensor]) -> Iterator[Dim]:
        """Line by line, what it reads or writes and what later ones of the segment read; *kept*, buffers and caches not."""
        born: dict[Tensor, int] = {}
        last: dict[Tensor, int] = {}
        for place, line in enumerate(lines):
            for x in line.read:
                born.setdefault(self.own(x), 0)  # it came in
                last[self.own(x)] = place
            for x in line.written:
                born.setdefault(self.own(x), place)
                last[self.own(x)] = max(place, last.get(self.own(x), 0))
        for start, end in _calls(lines):
            inside = {self.own(x) for line in lines[start : end + 1] for x in line.written}
            for x in {self.own(x) for line in lines[start : end + 1] for x in line.read} - inside:
                last[x] = max(last[x], end)
        last |= {self.own(x): len(lines) for x in lines[-1].written}
        besides = self._besides(lines[0].layer, kept)
        counted = [x for x in born if x not in kept and x not in self.buffers and x.role != "key_value"]
        for place, line in enumerate(lines):
            yield besides + self.forth.get(line.path, 0) + self.sizes(x for x in counted if born[x] <= place <= last[x])


    def _besides(self, layer: str | None, kept: frozenset[Tensor]) -> Dim:
        """Bytes of what entered the stack of a layer, where that is not what the layer itself reads: of a single first layer it
        is."""
        if layer not in self.passing:
            return 0
        entered, layers = self.passing[layer]
        size = self.sizes({self.own(entered)} - kept)
        return size if layers is None else chosen(layers, 1, 0, size)


class _Gradients:
    """The gradients that are alive: of each storage, in whose gradient's memory its own is."""

    def __init__(self, run: Pass) -> None:
        self.run = run
        self.place: dict[Tensor, Tensor] = {}

    def through(self, line: Line) -> Dim:
        """Bytes while the line runs backward. What it read has its gradients from then on."""
        given = [self.run.own(x) for x in line.written if _flows(x)]
        for out in given:
            self.place.setdefault(out, out)
        added: Dim = 0
        for own in [self.run.own(x) for x in line.read if _flows(x)] if given else ():
            if own not in self.place:
                self.place[own] = self.place[given[0]] if line.kind in _HANDED_ON else own
            elif line.kind not in _HANDED_ON and own not in given:
                added += self.run.size(own)
        return self.run.sizes(self.place.values()) + added

    def take(self, line: Line) -> None:
        """The line has taken the gradients of what it wrote."""
        read = {self.run.own(x) for x in line.read}
        for tensor in line.written:
            if self.run.own(tensor) not in read:
                self.place.pop(self.run.own(tensor), None)


_HANDED_ON = frozenset(("add", "concat"))
"""Lines whose gradients are views of that of what they wrote."""


def _in_place(line: Line) -> bool:
    """Is it a loss whose gradient is written over the logits?"""
    return line.kind == "loss" and len(line.saved) == 1


def _flows(tensor: Tensor) -> bool:
    return tensor.grad and tensor.role not in ("index", "mask")


def _tensors(line: Line) -> tuple[Tensor, ...]:
    return (*line.read, *line.written, *line.saved)


def _segments(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines of each distinct layer, and those before, between and behind the layers. What runs once and is recorded
    inside a layer stands before it."""
    found: dict[object, list[Line]] = {}
    for layer, group in groupby(lines, key=lambda line: line.layer):
        found.setdefault(layer or object(), []).extend(group)
    return list(found.values())


def _calls(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """The first and the last line of each module, as the paths name them."""
    found: dict[str, tuple[int, int]] = {}
    for place, line in enumerate(lines):
        names = line.path.split(".")
        for depth in range(1, len(names)):
            module = ".".join(names[:depth])
            found[module] = found.get(module, (place, place))[0], place
    return iter(found.values())


def _passing(piece: Budget) -> dict[str, tuple[Tensor, Dim | None]]:
    """What entered the stack of each layer, and of the first kind how many layers there are."""
    copies = {line.layer: line.copies for line in piece.lines}
    entered: dict[str, Tensor] = {}
    found: dict[str, tuple[Tensor, Dim | None]] = {}
    for carry in piece.carries:
        stack, _, _ = carry.layer.rpartition(".")
        first = stack not in entered
        entered.setdefault(stack, carry.before)
        found[carry.layer] = entered[stack], copies.get(carry.layer, 1) if first else None
    return found


def _behind(segments: Sequence[Sequence[Line]], piece: Budget) -> list[tuple[list[tuple[str, Dim]], list[Line]]]:
    """Of each segment, the layers, and the other lines, that are done when it runs backward."""
    runs = piece.order()
    last = {name: place for place, (name, _) in enumerate(runs)}
    found: list[tuple[list[tuple[str, Dim]], list[Line]]] = []
    for place, lines in enumerate(segments):
        later = segments[place + 1 :]
        layer = (lines[0].layer or "").removesuffix(" (first)")
        if layer in last:
            layers = list(runs[last[layer] + 1 :])
        else:
            names = {line.layer for lines in later for line in lines[:1]}
            layers = [(name, count) for name, count in runs if name in names]
        found.append((layers, [line for lines in later for line in lines if line.layer is None]))
    return found
