"""Where each number of a budget comes from: the tree of its components, each with its closed form, the sizes put in, the
value, its share of the whole, the rule that counts it, and the paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from .blocks.norm import LayerNorm
from .breakdown import USUAL, How, breakdown, budget_of, step_of
from .catalogue import BLOCKS
from .dims import Dim, check_sizes, symbol
from .symbolic import check_windows, symbolize, tidy
from .tape import Tape
from .tensor import Line
from .text import text


class Amount(NamedTuple):
    """One quantity of a node: closed form, the same with the numbers put in, value, and share of the whole."""

    formula: str
    put_in: str
    value: int
    share: Fraction


class Node(NamedTuple):
    """A component, or a line of one. The amounts of a node with children are the sums of theirs.

    ``rule`` says what the operation costs and keeps, ``source`` what the ``component`` that wrote it is, and its paper; all
    three are those of leaves. A line that has others under its path stands among them as ``… (itself)``.
    """

    path: str
    amounts: Mapping[str, Amount]
    rule: str = ""
    component: str = ""
    source: str = ""
    children: tuple[Node, ...] = ()

    def leaves(self) -> Iterator[Node]:
        """The nodes without children, in the order of the forward pass."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def pruned(self, depth: int) -> Node:
        """The same to *depth* levels below this one."""
        return self._replace(children=tuple(child.pruned(depth - 1) for child in self.children) if depth > 0 else ())


class Subject(NamedTuple):
    """A model or a block in numbers and on symbols, the sizes by symbol, and the width of a block's input."""

    name: str
    component: Any
    symbolic: Any
    sizes: Mapping[str, int]
    width: int | None

    @classmethod
    def of(cls, name: str, component: Any, width: int | None = None) -> Subject:
        """A model, or a component whose input is so wide."""
        symbolic, values, _ = symbolize(component)
        sizes = {str(s): value for s, value in values.items()}
        return cls(name, component, symbolic, sizes if width is None else {**sizes, "D": width}, width)

    @classmethod
    def block(cls, name: str, changes: Mapping[str, int]) -> Subject:
        """A block of the catalogue, in its own letters."""
        entry = BLOCKS[name]
        component, width = entry.build(changes)
        symbolic = entry.make(**{letter: symbol(letter.upper()) for letter in entry.sizes})
        sizes = {letter.upper(): size for letter, size in {**entry.sizes, **changes}.items()}
        return cls(name, component, symbolic, sizes, width)


def explain(
    subject: Subject, batch: int, seq: int, *, context: int | None = None,
    quantities: Sequence[str] = ("params", "flops"), how: How = USUAL,
) -> Node:  # fmt: skip
    """The tree of a model or block, and what each node adds to the *quantities*.

    ``kv`` and ``decode_flops`` are those at *context* visible tokens, *seq* unless given. The trace of symbols and the trace
    of numbers have the same lines; they are read side by side. Raises InputError for a quantity that is no sum over them.
    """
    check_sizes("explain", batch=batch, seq=seq, context=context)
    seen = seq if context is None else context
    sizes = {**subject.sizes, "B": batch, "T": seq, "S": seen}
    lines: dict[str, list[Line]] = {}
    leaves: dict[str, dict[str, tuple[Dim, int]]] = {}
    for quantity in quantities:
        form = budget_of(subject.symbolic, step_of(quantity, *map(symbol, "BTS")), how, symbol("D"))
        number = budget_of(subject.component, step_of(quantity, batch, seq, seen), how, subject.width)
        for line in number.lines:
            lines.setdefault(line.path, []).append(line)
        check_windows(how.about(quantity).get("policy"), subject.sizes)
        exprs = breakdown(form, quantity, how)
        for path, value in breakdown(number, quantity, how).items():
            leaves.setdefault(path, {})[quantity] = exprs[path], value
    paths = [path for path in (*lines, "buffers") if path in leaves]  # in the order of the forward pass
    return _Tree(sizes, quantities, leaves, lines).node("", subject.name, paths)


class _Tree:
    """The leaves as a tree of nodes, by the dots in their paths."""

    def __init__(
        self, sizes: Mapping[str, int], quantities: Sequence[str], leaves: Mapping[str, Mapping[str, tuple[Dim, int]]],
        lines: Mapping[str, Sequence[Line]],
    ) -> None:  # fmt: skip
        self.sizes, self.quantities, self.leaves, self.lines = sizes, quantities, leaves, lines
        self.whole = {q: sum(amounts[q][1] for amounts in leaves.values() if q in amounts) for q in quantities}

    def node(self, path: str, name: str, paths: Sequence[str]) -> Node:
        """The node at *path* (the root is shown by its *name*), over the leaves *paths*, which stand at it or under it."""
        if list(paths) == [path]:
            return self._leaf(path, path)
        below: dict[str, list[str]] = {}
        for one in paths:
            step = one.removeprefix(path).lstrip(".").partition(".")[0]
            below.setdefault(f"{path}.{step}".strip("."), []).append(one)
        children = tuple(
            self._leaf(path, f"{path} (itself)") if child == path else self.node(child, child, under)
            for child, under in below.items()
        )
        return Node(path or name, self._amounts(paths), children=children)

    def _leaf(self, path: str, shown: str) -> Node:
        lines = self.lines.get(path, ())
        rules = dict.fromkeys(filter(None, map(rule, lines)))
        origin = lines[0].origin if lines else None
        name = "" if origin is None else origin.__name__
        return Node(shown, self._amounts([path]), " ".join(rules), name, source(origin))

    def _amounts(self, paths: Sequence[str]) -> Mapping[str, Amount]:
        found = {}
        for quantity in self.quantities:
            parts = [self.leaves[path][quantity] for path in paths if quantity in self.leaves[path]]
            expr, value = tidy(sum(part for part, _ in parts)), sum(number for _, number in parts)
            share = Fraction(value, self.whole[quantity] or 1)
            found[quantity] = Amount(text(expr), text(expr, self.sizes), value, share)
        return MappingProxyType(found)


def select(root: Node, pattern: str | None) -> tuple[Node, ...]:
    """The nodes at a path (``decoder.layer``), or the uppermost that a glob matches (``*.attention.?``), with all below."""
    if pattern is None:
        return (root,)
    if root.path == pattern or (any(sign in pattern for sign in "*?[") and fnmatchcase(root.path, pattern)):
        return (root,)
    return tuple(node for child in root.children for node in select(child, pattern))


# -- the rule and the paper --------------------------------------------------------------------------------------------

RULES: Mapping[str, Any] = MappingProxyType({
    "linear": Tape.linear, "router": Tape.linear, "convolution": Tape.convolution,
    "causal convolution": Tape.causal_convolution, "lookup": Tape.lookup,
    "product": Tape.product, "attention": Tape.attention, "flash": Tape._flash, "fused": Tape._fused, "cache": Tape.cache,
    "rotate": Tape.rotate, "layer norm": Tape.layer_norm, "rms norm": Tape.rms_norm, "act": Tape.act, "add": Tape.add,
    "mul": Tape.mul, "div": Tape.divide, "scale": Tape.scale, "reduce": Tape.reduce, "concat": Tape.concat, "cast": Tape.widen,
    "loss": Tape.cross_entropy, "gather": Tape.dispatch, "scatter": Tape.combine, "checkpoint": Tape.checkpoint,
    "mask": Tape.attention, "sort": Tape.route, "dropout": Tape.dropout, "solve": Tape._solve, "unit": Tape.unit,
    "recurrence": Tape.delta_rule, "state space": Tape.state_space, "scan": Tape.selective_scan,
})  # fmt: skip
"""By the kind of a line, the rule that wrote it."""

_CITES = re.compile(r"arXiv:|github\.com/|\b(?:19|20)\d\d\b")
_SENTENCE = re.compile(r"(?<=[.;])\s+(?=[A-Z])")


def rule(line: Line) -> str:
    """What the operation costs and keeps: the first paragraph of its rule's docstring, behind the name of the rule."""
    name = line.kind
    if name == "norm":
        name = "layer norm" if line.origin is LayerNorm else "rms norm"
    elif name == "convolution" and line.weights[0].axes[-1] == "taps":
        name = "causal convolution"
    elif name == "attention" and (last := line.path.rpartition(".")[2]) in ("flash", "fused"):
        name = last
    return f"{name}: {_flat(RULES[name].__doc__.partition(chr(10) * 2)[0])}" if name in RULES else ""


def source(origin: type | None) -> str:
    """What the component is, in the first paragraph of its docstring, and whatever papers the others name."""
    first, _, rest = ((origin and origin.__doc__) or "").partition("\n\n")
    cited = [sentence for sentence in _SENTENCE.split(_flat(rest)) if _CITES.search(sentence)]
    said = " ".join([_flat(first), *cited]).strip()
    return said if _CITES.search(said) else f"{said} No paper of its own.".strip()


def _flat(paragraph: str) -> str:
    return " ".join(paragraph.replace("*", "").replace("``", "").split())
