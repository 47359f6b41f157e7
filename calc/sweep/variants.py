"""What stands outside the letters of a closed form: the model, fields of its config, the layout, and how things are counted."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import sympy

from ..breakdown import How
from ..dims import symbol
from ..errors import BlockcalcError, UndefinedError
from ..inverse.sides import DEFAULTS, B, S, Subject, T, is_free, subject
from ..model import Model
from ..parallel.layout import Layout
from ..parallel.stages import stages
from ..plan.engines import routed
from ..readers import load
from ..symbolic import symbolize
from ..tensor import Kernels
from .axes import Value
from .closed import ENCODER, RANKS, Forms, Rank
from .planned import forms
from .plans import Place, Run
from .spec import Spec

LAYOUT = (*RANKS, "pp", "sp", "zero")
"""The words of a layout that may be axes."""

Changes: TypeAlias = tuple[tuple[str, Value], ...]
Options: TypeAlias = tuple[tuple[str, Any], ...]
Layers: TypeAlias = tuple[tuple[str, int], ...]


class Piece(NamedTuple):
    """What one pipeline rank runs, on symbols, with the sizes that it has of its own."""

    component: Any
    sizes: Mapping[str, int]
    width: Any


class Variant(NamedTuple):
    """The pieces of a model on a layout, each as closed forms and sizes; a row shows the most that any of them has."""

    forms: tuple[Forms, ...]
    sizes: tuple[Mapping[str, int], ...]

    def beside(self, other: Variant) -> Variant:
        """Both, of different quantities."""
        return Variant(self.forms + other.forms, self.sizes + other.sizes)


class Variants:
    """Variants by what they are made of. What is read or traced once is remembered, as far as memory stays bounded."""

    def __init__(self, spec: Spec, encoder: bool) -> None:
        self.models, self.quantities, self.plans = spec.models, spec.budgets, spec.plans
        self.machines, self.encoder = dict(spec.machines), encoder
        self._pieces = lru_cache(4096)(self._make_pieces)
        self.read = lru_cache(1024)(self._read)
        self._ranks: dict[Any, Rank] = {}
        self._forms: dict[Any, Forms] = {}
        self._of_piece = lru_cache(4096)(self._make_variant)
        self._of_plan = lru_cache(256)(self._make_plan)

    def variant(
        self, model: int, changes: Changes, options: Options, layout: Mapping[str, Any], layers: Layers, given: frozenset[str]
    ) -> Variant:
        """The variant. *layers* are numbers of layers that are axes while there are stages, *given* the letters that have
        sizes. Raises what its parts refuse."""
        ranks = {rank: layout[rank] for rank in RANKS if rank in layout}
        if ranks.get("etp") == ranks.get("tp", 1):
            ranks.pop("etp", None)
        sequence, zero, pp = bool(layout.get("sp", False)), layout.get("zero", 0), layout.get("pp", 1)
        whole = Layout(pp=pp, sequence=sequence, zero=zero, **ranks)  # refuses what cannot be
        split = frozenset(rank for rank in ranks if rank == "etp" or (rank != "dp" and ranks[rank] != 1))
        found = Variant((), ())
        if self.quantities:
            found = self._of_piece(model, changes, options, split, sequence, zero, pp, layers)
        if self.plans:
            found = found.beside(self._of_plan(model, changes, options, whole, layers, given))
        return found._replace(sizes=tuple({**sizes, **ranks} for sizes in found.sizes)) if ranks else found

    def _make_plan(
        self, model: int, changes: Changes, options: Options, layout: Layout, layers: Layers, given: frozenset[str]
    ) -> Variant:
        chosen = dict(options)
        machine = self.machines[chosen["gpu"]] if "gpu" in chosen else None
        run = Run(**{name: chosen[name] for name in Run._fields if name in chosen})
        b, t, s = (letter if str(letter) in given else DEFAULTS[letter] for letter in (B, T, S))
        place = Place(
            routed(self._model(model, changes, layers, given)), layout, machine, run, b, t, s, ENCODER if self.encoder else None
        )
        made = forms(place, self.plans)
        sizes = {**self.own_sizes(model, changes), **dict(layers)}
        return Variant(made, (sizes,) * len(made))

    def _make_variant(
        self, model: int, changes: Changes, options: Options, split: frozenset[str], sequence: bool, zero: int, pp: int,
        layers: Layers,
    ) -> Variant:  # fmt: skip
        chosen = dict(options)
        kernels = Kernels(attention=chosen.get("attention", "math"))
        how = How(kernels=kernels, **{name: chosen[name] for name in How._fields if name in chosen})
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

    def _read(self, model: int, changes: Changes) -> tuple[Subject, Any]:
        """The subject on symbols, and the Model that it was, where its sizes are known."""
        name, config = self.models[model]
        if is_free(name):
            return subject(name, dict(changes)), None
        try:
            whole = load(name if config is None else json.loads(config), dict(changes))
        except BlockcalcError as error:
            raise type(error)(str(error).replace("config: ", f"{name}: ", 1)) from None
        return subject(whole)._replace(name=name), whole

    def own_sizes(self, model: int, changes: Changes) -> dict[str, int]:
        """The sizes of a model, or the examples of a block; a family has none."""
        found, whole = self.read(model, changes)
        if whole is None and isinstance(found.component, Model):
            return {}
        return {str(letter): size for letter, size in (found.values or found.usual).items()}

    def _model(self, model: int, changes: Changes, layers: Layers, given: Container[str]) -> Model:
        """The model in numbers, but for the letters that are *given*."""
        found, whole = self.read(model, changes)
        if not isinstance(found.component, Model):
            raise UndefinedError(f"{found.name} is a block: stages and plans are of a whole model")
        sizes = {**self.own_sizes(model, changes), **dict(layers)}
        made: Model = _numbered(found.component, {name: size for name, size in sizes.items() if name not in given})
        if whole is None or not whole.stack.order:
            return made
        if layers or any(name in given for name in sizes if _layers(name)):
            raise UndefinedError(f"{found.name}: its layers alternate, so another number of them has no known order")
        return replace(made, stack=replace(made.stack, order=whole.stack.order))

    def _make_pieces(self, model: int, changes: Changes, pp: int, layers: Layers) -> tuple[Piece, ...]:
        found, _ = self.read(model, changes)
        sizes = self.own_sizes(model, changes)
        if pp == 1:
            return (Piece(found.component, {**sizes, **dict(layers)}, found.width),)
        kept = frozenset(name for name in sizes if not _layers(name))
        pieces = {}
        for stage in stages(self._model(model, changes, layers, kept), Layout(pp=pp)):
            stack = stage.layers or stage.model.stack
            stage = replace(stage, model=replace(stage.model, stack=stack))
            component, own, _ = symbolize(stage)
            rest = {name: size for name, size in sizes.items() if name in kept}
            piece = Piece(component, rest | {str(letter): size for letter, size in own.items()}, found.width)
            pieces[component, tuple(sorted(piece.sizes.items()))] = piece
        return tuple(pieces.values())


def _layers(name: str) -> bool:
    return name.partition("_")[0] == "L"


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
