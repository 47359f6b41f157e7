"""What stands outside the letters of a closed form: the model, fields of its config, the layout, and how things are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import sympy

from ..breakdown import How
from ..dims import symbol
from ..errors import BlockcalcError, UndefinedError
from ..inverse.sides import Subject, is_free, subject
from ..model import Model
from ..parallel.layout import Layout
from ..parallel.stages import stages
from ..readers import load
from ..symbolic import symbolize
from ..tables import presets
from ..tensor import Kernels
from .axes import Value
from .closed import RANKS, Forms, Rank

LAYOUT = (*RANKS, "pp", "sp", "zero")
"""The words of a layout that may be axes."""


class Piece(NamedTuple):
    """What one pipeline rank runs, on symbols, with the sizes that it has of its own."""

    component: Any
    sizes: Mapping[str, int]
    width: Any


class Variant(NamedTuple):
    """The pieces of a model on a layout, each as closed forms and sizes; a row shows the most that any of them has."""

    forms: tuple[Forms, ...]
    sizes: tuple[Mapping[str, int], ...]


class Variants:
    """Variants by what they are made of. What is read or traced once is remembered, as far as memory stays bounded."""

    def __init__(self, models: tuple[tuple[str, Any], ...], quantities: tuple[str, ...], encoder: bool) -> None:
        self.models, self.quantities, self.encoder = models, quantities, encoder
        self._pieces = lru_cache(4096)(self._make_pieces)
        self.read = lru_cache(1024)(self._read)
        self._ranks: dict[Any, Rank] = {}
        self._forms: dict[Any, Forms] = {}
        self._of_piece = lru_cache(4096)(self._make_variant)

    def variant(
        self, model: int, changes: tuple[tuple[str, Value], ...], options: tuple[tuple[str, str], ...],
        layout: Mapping[str, Any], layers: tuple[tuple[str, int], ...],
    ) -> Variant:  # fmt: skip
        """The variant. *layers* are numbers of layers that are axes while there are stages. Raises what its parts refuse."""
        ranks = {rank: layout[rank] for rank in RANKS if rank in layout}
        if ranks.get("etp") == ranks.get("tp", 1):
            ranks.pop("etp", None)
        sequence, zero, pp = bool(layout.get("sp", False)), layout.get("zero", 0), layout.get("pp", 1)
        Layout(pp=pp, sequence=sequence, zero=zero, **ranks)  # refuses what cannot be
        split = frozenset(rank for rank in ranks if rank == "etp" or (rank != "dp" and ranks[rank] != 1))
        found = self._of_piece(model, changes, options, split, sequence, zero, pp, layers)
        return found._replace(sizes=tuple({**sizes, **ranks} for sizes in found.sizes)) if ranks else found

    def _make_variant(
        self, model: int, changes: tuple[tuple[str, Value], ...], options: tuple[tuple[str, str], ...], split: frozenset[str],
        sequence: bool, zero: int, pp: int, layers: tuple[tuple[str, int], ...],
    ) -> Variant:  # fmt: skip
        given: dict[str, Any] = dict(options)
        kernels = Kernels(attention=given.pop("attention"))
        how = How(kernels=kernels, **given)
        pieces = self._pieces(model, changes, pp, layers)
        made = (self._forms_of(piece, how, split, sequence, zero == 3) for piece in pieces)
        return Variant(tuple(made), tuple(piece.sizes for piece in pieces))

    def _forms_of(self, piece: Piece, how: How, split: frozenset[str], sequence: bool, cut: bool) -> Forms:
        key = piece.component, piece.width, split, sequence, cut
        if key not in self._ranks:
            self._ranks[key] = Rank(piece.component, piece.width, split, sequence=sequence, cut=cut, encoder=self.encoder)
        if (key, how) not in self._forms:
            self._forms[key, how] = self._ranks[key].forms(self.quantities, how)
        return self._forms[key, how]

    def _read(self, model: int, changes: tuple[tuple[str, Value], ...]) -> tuple[Subject, Any]:
        """The subject on symbols, and the Model that it was, where its sizes are known."""
        name, config = self.models[model]
        if is_free(name):
            return subject(name, dict(changes)), None
        try:
            whole = load(name if name in presets() else config, dict(changes))
        except BlockcalcError as error:
            raise type(error)(str(error).replace("config: ", f"{name}: ", 1)) from None
        return subject(whole)._replace(name=name), whole

    def own_sizes(self, model: int, changes: tuple[tuple[str, Value], ...]) -> dict[str, int]:
        """The sizes of a model, or the examples of a block; a family has none."""
        found, whole = self.read(model, changes)
        if whole is None and isinstance(found.component, Model):
            return {}
        return {str(letter): size for letter, size in (found.values or found.usual).items()}

    def _make_pieces(
        self, model: int, changes: tuple[tuple[str, Value], ...], pp: int, layers: tuple[tuple[str, int], ...]
    ) -> tuple[Piece, ...]:
        found, whole = self.read(model, changes)
        sizes = self.own_sizes(model, changes)
        if pp == 1:
            return (Piece(found.component, {**sizes, **dict(layers)}, found.width),)
        if not isinstance(found.component, Model):
            raise UndefinedError(f"{found.name} is a block: pipeline stages are of a whole model")
        counted = {name: size for name, size in {**sizes, **dict(layers)}.items() if name.partition("_")[0] == "L"}
        staged = _numbered(found.component, counted)
        if whole is not None and whole.stack.order:
            if layers:
                raise UndefinedError(f"{found.name}: its layers alternate, so another number of them has no known order")
            staged = replace(staged, stack=replace(staged.stack, order=whole.stack.order))
        pieces = {}
        for stage in stages(staged, Layout(pp=pp)):
            stack = stage.layers or stage.model.stack
            stage = replace(stage, model=replace(stage.model, stack=stack))
            component, own, _ = symbolize(stage)
            rest = {name: size for name, size in sizes.items() if name not in counted}
            piece = Piece(component, rest | {str(letter): size for letter, size in own.items()}, found.width)
            pieces[component, tuple(sorted(piece.sizes.items()))] = piece
        return tuple(pieces.values())


def _numbered(component: Any, sizes: Mapping[str, int]) -> Any:
    """The component with these numbers for their symbols, and symbols for the rest."""
    if isinstance(component, tuple):
        return tuple(_numbered(item, sizes) for item in component)
    if isinstance(component, sympy.Expr):
        size = component.xreplace({symbol(name): sympy.Integer(number) for name, number in sizes.items()})
        return int(size) if size.is_Integer else size
    if not is_dataclass(component) or isinstance(component, type):
        return component
    return replace(component, **{one.name: _numbered(getattr(component, one.name), sizes) for one in fields(component)})
