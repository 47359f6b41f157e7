"""A grid: its axes, in the order of its columns, and which names are whose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ..errors import BlockcalcError, InputError
from ..inverse.sides import DEFAULTS, is_free
from ..readers import known_fields
from ..readers.config import printable
from ..tables import presets
from .axes import Axis, Value, axis
from .boxes import Boxes
from .exact import LIMIT
from .letters import GPU_MEMORY, Fraction, column, letter, tie, unknown, where
from .spec import OPTIONS, Spec, check_option
from .variants import LAYOUT, Variant, Variants

MOST = 2**18  # points of a box
PLANNED = 2**15  # of plans, which make many letters on the way
_STEP = ("B", "T", "S", "T_encoder")
_ALONE = ("tp", "cp", "dp", "ep", "pp")  # ranks that there are 1 of unless given
_USUAL = {str(letter): size for letter, size in DEFAULTS.items()}


class Chosen(NamedTuple):
    """The values of the axes outside the closed forms, and what they lead to: a variant, or why there is none."""

    values: tuple[Value, ...]
    variant: Variant | str


class Grid:
    """A sweep's points, numbered: the axis of variants (models, fields, options, layouts) first, then the letters', the last
    fastest."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        given = [axis(text) for text in spec.over]
        _once([letter(one.name) for one in given])
        encoder = any(letter(one.name) == "T_encoder" for one in given)
        self.variants = Variants(spec, encoder)
        self.staged = any(one.name == "pp" for one in given)
        self.model = Axis("model", words=tuple(name for name, _ in spec.models))
        kinds = {id(one): self._kind(one) for one in given}
        self.outer = [self.model, *(one for one in given if kinds[id(one)] != "letter")]
        self.kinds = ["model", *(kinds[id(one)] for one in self.outer[1:])]
        self.letters = [Axis(letter(one.name), one.runs) for one in given if kinds[id(one)] == "letter"]
        self.points = prod(map(len, (*self.outer, *self.letters)))
        if self.points >= LIMIT:
            raise InputError(f"--over: {self.points} points, at most 2^63 - 1 are numbered")
        most = min(PLANNED if spec.plans else MOST, spec.block)
        self.boxes = Boxes.of((prod(map(len, self.outer)), *map(len, self.letters)), most)
        self.together = max(spec.block // self.boxes.points, 1)
        self.names = self._names()
        self.ties = self._ties()
        known = {name for name in self.names if not (self.staged and _layers(name))} | set(_ALONE)
        self.where = tuple(where(text, known, spec.quantities, machine=bool(spec.machines)) for text in spec.where)
        self._check()

    # -- which name is whose ------------------------------------------------------------------------------------------

    def _kind(self, one: Axis) -> str:
        """What an axis is of: a layout, an option, a letter (of layers, where there are stages), or a field of the configs."""
        name = letter(one.name)
        if one.name in LAYOUT:
            _check_layout(one)
            return "layout"
        if one.name in OPTIONS:
            for value in one:
                check_option(one.name, value)
            return "option"
        places = range(len(self.spec.models))
        if name == "T_encoder":
            for i in places:
                self._check_encoder(i)
        lacking = [i for i in places if name not in _STEP and name not in self._symbols(i)]
        if not lacking:
            if not one.sizes:
                raise InputError(f"--over {one.name}: expected sizes from 1 to 2^40, for it is a letter")
            return "layers" if self.staged and _layers(name) else "letter"
        if any(is_free(model) for model, _ in self.spec.models):
            raise self._unknown(one.name, lacking[0])
        for i, (model, config) in enumerate(self.spec.models):
            if one.name not in known_fields(presets()[model]["config"] if config is None else json.loads(config)):
                raise self._unknown(one.name, i)
        return "field"

    def _check_encoder(self, model: int) -> None:
        """Refuse a length for an encoder that is not there, or that has its own."""
        found, whole = self.variants.read(model, ())
        component, name = whole or found.component, printable(self.spec.models[model][0])
        if getattr(component, "encoder", None) is None:
            raise InputError(f"--over encoder_seq: {name} has no encoder beside its decoder")
        source = component.encoder_embedding
        if source is not None and source.length is not None:
            raise InputError(f"--over encoder_seq: the encoder of {name} always has {source.length} positions")

    def _unknown(self, name: str, model: int) -> InputError:
        what = unknown(name, self._symbols(model) | {"B", "T", "S"}, (*LAYOUT, *OPTIONS))
        subject = self.spec.models[model][0]
        field = "" if is_free(subject) else "; nor has its config such a field"
        return InputError(f"--over {printable(name)}: of {printable(subject)}, {what}{field}")

    def _symbols(self, model: int) -> frozenset[str]:
        found, _ = self.variants.read(model, ())
        return frozenset(map(str, found.usual))

    def _names(self) -> frozenset[str]:
        every = [self._symbols(i) for i in range(len(self.spec.models))]
        return frozenset.intersection(*every) | {"B", "T", "S"} | {one.name for one in self.letters}

    def _ties(self) -> tuple[Fraction, ...]:
        """Ties in an order in which each finds its letters: as given, so that one may use those before it."""
        found = tuple(tie(text, self.names) for text in self.spec.ties)
        made = [one.name for one in found]
        _once([*made, *(one.name for one in self.letters)])
        for place, one in enumerate(found):
            if one.name not in self.names:
                raise InputError(f"--tie {one.text}: {unknown(column(one.name), self.names)}")
            if self.staged and _layers(one.name):
                raise InputError(f"--tie {one.text}: with pipeline stages the number of layers is an axis, or the model's own")
            late = [name for name in one.forms.symbols if name in made[place:]]
            if late:
                raise InputError(f"--tie {one.text}: {column(late[0])} is tied only after it")
        return found

    @property
    def longest(self) -> int:
        """The most tokens that any point has."""
        return max((run[-1] for one in self.letters if one.name in ("T", "S") for run in one.runs), default=1)

    @property
    def given(self) -> list[str]:
        """The letters that an axis or a tie gives sizes to."""
        return [*(one.name for one in self.letters), *(one.name for one in self.ties)]

    def _check(self) -> None:
        """Refuse a grid whose first point of every model lacks a size."""
        per_model = prod(map(len, self.outer[1:]))
        for i, (name, _) in enumerate(self.spec.models):
            chosen = self.chosen(i * per_model)
            if isinstance(chosen.variant, str):
                continue
            given = {*self.given}
            for forms, sizes in zip(chosen.variant.forms, chosen.variant.sizes, strict=True):
                missing = sorted(map(column, forms.symbols - given - sizes.keys()))
                if missing:
                    raise InputError(f"{printable(name)} needs sizes for {', '.join(missing)}: give --over or --tie")

    # -- what is where ------------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.boxes.total // self.together)

    def span(self, block: int) -> range:
        """The numbers of the points of a block."""
        last = min((block + 1) * self.together, self.boxes.total)
        return range(self.boxes.first(block * self.together), self.boxes.first(last))

    def chosen(self, index: int) -> Chosen:
        """What stands at an index of the axis of variants."""
        places = []
        for one in reversed(self.outer):
            index, place = divmod(index, len(one))
            places.append(place)
        places.reverse()
        values = tuple(one[place] for one, place in zip(self.outer, places, strict=True))
        try:
            return Chosen(values, self._variant(places[0], values))
        except BlockcalcError as error:
            return Chosen(values, str(error))

    def _variant(self, model: int, values: Sequence[Value]) -> Variant:
        by: dict[str, dict[str, Any]] = {kind: {} for kind in ("model", "field", "option", "layout", "layers")}
        for one, kind, value in zip(self.outer, self.kinds, values, strict=True):
            by[kind][letter(one.name) if kind == "layers" else one.name] = value
        self._check_letters(model, tuple(by["field"].items()))
        options = {**dict(self.spec.options), **by["option"]}
        found = self.variants.variant(
            model, tuple(by["field"].items()), tuple(options.items()), by["layout"], tuple(by["layers"].items()),
            frozenset(self.given),
        )  # fmt: skip
        ranks = {name: by["layout"].get(name, 1) for name in _ALONE}
        if "gpu" in options:
            ranks[GPU_MEMORY] = self.variants.machines[options["gpu"]].memory_bytes
        return found._replace(sizes=tuple({**_USUAL, **ranks, **sizes} for sizes in found.sizes))

    def _check_letters(self, model: int, changes: tuple[tuple[str, Value], ...]) -> None:
        """Another value of a field may leave a model without a letter that has an axis or a tie."""
        there = {*_STEP, *map(str, self.variants.read(model, changes)[0].usual)}
        for name in self.given:
            if name not in there:
                raise InputError(f"{self.spec.models[model][0]} has no letter {column(name)} here")


def _once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--over {column(name)}: given twice; put all its values in one")


def _check_layout(one: Axis) -> None:
    if one.name == "zero":
        if not all(value in (0, 1, 2, 3) and type(value) is int for value in one):
            raise InputError("--over zero: ZeRO has the stages 0 (off), 1, 2 and 3")
    elif one.name == "sp":
        if not all(type(value) is bool for value in one):
            raise InputError("--over sp: expected true, false or both")
    elif not one.sizes:
        raise InputError(f"--over {one.name}: expected numbers of ranks from 1 to 2^40")


def _layers(name: str) -> bool:
    return name.partition("_")[0] == "L"
