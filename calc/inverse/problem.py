"""An equation on symbols: what is known, what is asked for, what is free, and so in which way it is answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import sympy

from ..breakdown import How, quantity
from ..dims import LARGEST_SIZE
from ..errors import InputError
from ..readers.config import printable
from ..text import text
from ..tidy import tidy
from .answers import Answer, Scale, answers, reason
from .closed import closed_forms
from .grammar import Equation, Relation, Side
from .grammar import size as read_size
from .search import search
from .sides import DEFAULTS, ENCODER, STEP, Subject, Term, subject, whole
from .signs import NotPiecewise, signs
from .solution import LOOKED, ROOTS, Solution

WORDS = MappingProxyType({
    "batch": "B", "seq": "T", "context": "S", "encoder_seq": "T_encoder", "layers": "L", "width": "D", "heads": "N",
    "hidden": "F", "experts": "E", "window": "W", "vocabulary": "V",
})  # fmt: skip
"""Words for letters."""


class Problem:
    """The equation on symbols: what is known, what is asked for, what is free."""

    def __init__(
        self, equation: Equation, unknown: str, default: Subject | None, sizes: Mapping[str, int | str], step: dict[Any, Any],
        how: How,
    ) -> None:  # fmt: skip
        self.equation, self.how = equation, how
        self.encoder = step[ENCODER] is not None or unknown in ("encoder_seq", "encoder-seq")
        sides = [side for side in (equation.left, equation.right) if isinstance(side, Side)]
        if default is None:
            if equation.left.subject is None:
                raise InputError("no model: name one, or a family, or put it in brackets, as in params(gated-mlp)")
            default = subject(equation.left.subject)
            sides[0] = sides[0]._replace(subject=None)
        self.default = default
        subjects = [default if side.subject is None else subject(side.subject) for side in sides]
        self.symbols = set(STEP).union(*(one.usual for one in subjects))
        self.x = self.letter(unknown)
        self.sizes = self._sizes(sizes.items())
        self.step = self._step(step)
        if self.x in self.sizes or step.get(self.x) is not None:
            raise InputError(f"{self.x}: asked for and given at once")
        self.terms = [self._term(side, of) for side, of in zip(sides, subjects, strict=True)]
        self.left = self.terms[0].expr
        self.right = self.terms[1].expr if len(self.terms) > 1 else read_size(str(equation.right), self.letter)
        if self.x not in self.left.free_symbols | self.right.free_symbols:
            here = ", ".join(sorted(map(str, set().union(*(term.symbols for term in self.terms))))) or "no size"
            raise InputError(f"{self.x} does not occur in {equation.left.quantity} of {default.name}, which depends on {here}")

    def letter(self, name: str) -> Any:
        """The symbol of a letter or a word."""
        plain = WORDS.get(name.replace("-", "_"), name)
        plain = plain[:1].upper() + plain[1:]
        by_name = {str(symbol): symbol for symbol in self.symbols}
        if plain in by_name and (plain != "T_encoder" or self.encoder):
            return by_name[plain]
        several = sorted(one for one in by_name if one.startswith(f"{plain}_") and one != "T_encoder")
        if several:
            raise InputError(f"{printable(name)}: there are {', '.join(several)}; name one of them")
        known = ", ".join(sorted(one for one in by_name if one != "T_encoder"))
        raise InputError(f"{printable(name)}: no such size here; there are {known}, and the words {', '.join(WORDS)}")

    def size(self, size: int | str) -> Any:
        """A size as an expression of letters."""
        return read_size(str(size), self.letter)

    def _sizes(self, given: Iterable[tuple[str, int | str]]) -> dict[Any, Any]:
        """Sizes by symbol. Raises InputError for a number that is no size, and for a letter that stands twice."""
        found: dict[Any, Any] = {}
        for name, written in given:
            letter, size = self.letter(name), self.size(written)
            if letter in found:
                raise InputError(f"{letter}: given twice")
            found[letter] = size if size.free_symbols else self.size(whole(str(letter), size))
        return found

    def _step(self, given: Mapping[Any, int | None]) -> dict[Any, Any]:
        """The step as it is given; with a model whose sizes are known, the usual one for what is not."""
        for s, n in given.items():
            if n is not None and s in self.sizes:
                raise InputError(f"{s}: given twice")
        usual = DEFAULTS if self.default.values else {}
        found = {symbol: given[symbol] if given[symbol] is not None else usual.get(symbol) for symbol in STEP}
        return {s: self.size(n) for s, n in found.items() if n is not None and s is not self.x and s not in self.sizes}

    def _term(self, side: Side, of: Subject) -> Term:
        """The side, where a preset in brackets keeps its own sizes, and whatever the brackets fix is fixed."""
        fixed = self._sizes(side.fixed)
        named = of is not self.default
        own = {s: n for s, n in of.values.items() if named or (s is not self.x and s not in self.sizes)}
        shared = {} if named and of.values else self.sizes
        known = {**self.step, **shared, **{s: self.size(n) for s, n in own.items()}, **fixed}
        return Term(side, of, known, self.how, self.encoder)

    # -- answers ------------------------------------------------------------------------------------------------------

    def solved(self, multiple: int) -> Solution:
        """The solution: closed forms while sizes are free, else whole numbers."""
        relation, difference = self.equation.relation, self.left - self.right
        free = (self.left.free_symbols | self.right.free_symbols) - {self.x}
        closed = closed_forms(difference, relation, self.x)
        same = sympy.expand(difference) == 0
        found: list[Answer] = []
        why, proved = None, ROOTS
        if not free:
            found, why, proved = self._whole(relation, difference, multiple)
        elif same or closed == ():
            why = f"every {self.x} satisfies it: both sides are the same" if same else f"no positive {self.x} satisfies it"
        elif closed is None:
            raise InputError(f"no closed form for {self.x} while {', '.join(sorted(map(str, free)))} are free: fix some sizes")
        unit = quantity(self.equation.left.quantity).unit
        held = {**self.terms[0].idle(), **self.default.values, **self.sizes, **self.step}
        used = set().union(*(term.symbols for term in self.terms))
        kept = MappingProxyType({str(s): text(self.size(n)) for s, n in held.items() if s is not self.x and s in used})
        sides = text(tidy(self.left)), text(tidy(self.right))
        return Solution(self.equation, str(self.x), unit, *sides, closed or (), tuple(found), why, proved, kept)

    def _values(self, at: int) -> tuple[int, int]:
        """Both sides at a size, counted."""
        left, *right = (term.at(self.x, at) for term in self.terms)
        return left, right[0] if right else int(self.right)

    def _whole(self, relation: Relation, difference: Any, multiple: int) -> tuple[list[Answer], str | None, str]:
        scale, proved = Scale(self._values, relation, multiple, LARGEST_SIZE), ROOTS
        try:
            known = signs(difference, self.x, LARGEST_SIZE)
        except NotPiecewise:
            known, seen = search(scale, 1)
            proved = LOOKED.format(seen)
        found = answers(known.runs, scale)
        asked = self.equation.left.quantity
        return found, None if found else reason(known, scale, str(self.x), asked, quantity(asked).unit), proved
