"""Reading a config.json: the file, its fields, and the rules that make a value of a field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dims import LARGEST_SIZE
from ..errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_FILE = 16 * 2**20
MOST_LAYERS = 2**16

_ABSENT = object()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises InputError for whatever is not one, or is larger than 16 MB."""
    where = printable(str(path))
    try:
        if path.is_fifo() and not str(path).startswith("/dev/"):
            raise InputError(f"{where}: a pipe; a config is a file")
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise InputError(f"{where}: more than {LARGEST_FILE} bytes, the most that a config may have")
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_no_doubles)
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be a config") from None
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{where}: found {shown(found)} at the top, expected an object of config fields")
    return found


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{printable(name)}: the field stands twice in the same object")
        found[name] = value
    return found


def printable(text: str) -> str:
    """The text on one line and of a length to read, for an error."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 400 else f"{text[:399]}…"


def shown(value: Any) -> str:
    """A value of a field, as an error names it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}…"


class Rule(NamedTuple):
    """How a knob is read: the fields it may stand in, and what makes its value of a :class:`Reading`.

    Fields that have a value are read even where no builder asks for their knob, ``always`` rules in any case: to refuse.
    Errors call the knob by its field, or by its *name*.
    """

    fields: tuple[str, ...]
    read: Callable[[Reading], Any]
    always: bool = False
    name: str = ""


class Reading:
    """One config under one family's rules: ``reading.d`` is the knob d, read and checked when it is first asked for."""

    def __init__(self, knobs: Mapping[str, Any], config: Mapping[str, Any], where: str) -> None:
        self.knobs = knobs
        self.config = config
        self.where = where

    def __getattr__(self, knob: str) -> Any:
        try:
            value = self.knobs[knob]
        except KeyError:
            raise AttributeError(knob) from None
        if isinstance(value, Rule):
            value = value.read(self)
        self.__dict__[knob] = value
        return value

    def find(self, fields: tuple[str, ...]) -> tuple[str, Any]:
        """The first of the fields that the config has, and its value. Other names of it must say the same, or be null."""
        found = [field for field in fields if field in self.config]
        told = [field for field in found if self.config[field] is not None] or found or [fields[0]]
        value = self.config.get(told[0], _ABSENT)
        for other in told[1:]:
            if type(self.config[other]) is not type(value) or self.config[other] != value:
                raise self.refuse(other, f"{shown(value)}, as {told[0]} says: two names of one field")
        return told[0], value

    def refuse(self, field: str, expected: str) -> InputError:
        """The error for a field whose value is not what was expected."""
        found = self.config.get(field, _ABSENT)
        what = "nothing" if found is _ABSENT else shown(found)
        return InputError(f"{self.where}: {field}: found {what}, expected {expected}")

    def field_of(self, knob: str) -> str:
        """The name that the config has, or would have, for a knob."""
        rule = self.knobs[knob]
        if not isinstance(rule, Rule) or not rule.fields:
            return knob
        return rule.name or self.find(rule.fields)[0]

    def check_divides(self, total: str, part: str) -> None:
        """Refuse unless knob *part* divides knob *total*, by their fields' names."""
        a, b = getattr(self, total), getattr(self, part)
        if a % b:
            raise InputError(f"{self.where}: {self.field_of(total)} = {a} is not divisible by {self.field_of(part)} = {b}")


Default = Any
"""A value, or a function of the reading."""


def _default(reading: Reading, default: Default) -> Any:
    return default(reading) if callable(default) else default


def size(fields: str | tuple[str, ...], default: Default, null: Default = _ABSENT, least: Default = 1) -> Rule:
    """A whole number from *least* to 2**40. ``null`` in the config is refused unless *null* says what it means."""
    names = (fields,) if isinstance(fields, str) else fields

    def read(reading: Reading) -> Any:
        field, value = reading.find(names)
        if value is _ABSENT:
            return _default(reading, default)
        if value is None and null is not _ABSENT:
            return _default(reading, null)
        lowest = _default(reading, least)
        if type(value) is not int or not lowest <= value <= LARGEST_SIZE:
            raise reading.refuse(field, f"a whole number from {lowest} to 2**40")
        return value

    return Rule(names, read)


def pair(field: str, default: int) -> Rule:
    """Height and width: a list of two sizes, or one size for both."""

    def read(reading: Reading) -> tuple[int, int]:
        value = reading.config.get(field, default)
        sides = value if isinstance(value, list) else [value, value]
        if len(sides) != 2 or not all(type(side) is int and 1 <= side <= LARGEST_SIZE for side in sides):
            raise reading.refuse(field, "a whole number from 1 to 2**40, or a list of two")
        return sides[0], sides[1]

    return Rule((field,), read)


def layers(
    fields: str | tuple[str, ...], default: Default, null: Default = _ABSENT, least: int = 1, most: int = MOST_LAYERS
) -> Rule:
    """A number of layers: a size of at most 65,536."""
    rule = size(fields, default, null, least)

    def read(reading: Reading) -> Any:
        value = rule.read(reading)
        if value > most:
            raise reading.refuse(reading.find(rule.fields)[0], f"at most {most} layers")
        return value

    return Rule(rule.fields, read)


def flag(fields: str | tuple[str, ...], default: Default, null: Default = _ABSENT) -> Rule:
    """true or false."""
    names = (fields,) if isinstance(fields, str) else fields

    def read(reading: Reading) -> Any:
        field, value = reading.find(names)
        if value is _ABSENT:
            return _default(reading, default)
        if value is None and null is not _ABSENT:
            return _default(reading, null)
        if type(value) is not bool:
            raise reading.refuse(field, "true or false")
        return value

    return Rule(names, read)


def number(field: str, default: Default) -> Rule:
    """A finite number, or null for none."""

    def read(reading: Reading) -> Any:
        _, value = reading.find((field,))
        if value is _ABSENT:
            return _default(reading, default)
        if value is not None and (type(value) not in (int, float) or value != value or abs(value) == float("inf")):
            raise reading.refuse(field, "a finite number or null")
        return value

    return Rule((field,), read)


def word(fields: str | tuple[str, ...], default: Default, words: Mapping[str, Any]) -> Rule:
    """One of the words, which each mean a value."""
    names = (fields,) if isinstance(fields, str) else fields

    def read(reading: Reading) -> Any:
        field, value = reading.find(names)
        if value is _ABSENT:
            value = _default(reading, default)
        if not isinstance(value, str) or value not in words:
            raise reading.refuse(field, f"one of {', '.join(words)}")
        return words[value]

    return Rule(names, read)


def fixed(field: str, value: Any, why: str) -> Rule:
    """A field that may be absent or null but else must have this value; *why* is the reason in the error."""

    def read(reading: Reading) -> Any:
        found = reading.config.get(field)
        if found is not None and (type(found) is not type(value) or found != value):
            raise reading.refuse(field, f"{json.dumps(value)}: {why}")
        return value

    return Rule((field,), read, always=True)


def inside(field: str, rule: Rule) -> Rule:
    """A rule on the fields of an object that stands in the config; without the object, they are all absent."""

    def read(reading: Reading) -> Any:
        inner = reading.config.get(field)
        if inner is not None and not isinstance(inner, dict):
            raise reading.refuse(field, "an object or null")
        return rule.read(Reading(reading.knobs, inner or {}, f"{reading.where}: {field}"))

    return Rule((field,), read, rule.always, f"{field}: {rule.fields[0]}")


def each_layer(field: str, words: Mapping[str, Any], default: Callable[[Reading], list[Any]]) -> Rule:
    """A list with one of the words a layer, and what each means."""

    def read(reading: Reading) -> list[Any]:
        value = reading.config.get(field)
        if value is None:
            return default(reading)
        if not isinstance(value, list) or len(value) != reading.l:
            raise reading.refuse(field, f"a list of {reading.l} entries, one a layer ({reading.field_of('l')})")
        if not all(isinstance(entry, str) and entry in words for entry in value):
            raise reading.refuse(field, f"a list of {' and '.join(map(repr, words))}")
        return [words[entry](reading) if callable(words[entry]) else words[entry] for entry in value]

    return Rule((field,), read)


def indices(field: str, default: Default) -> Rule:
    """A list of layer numbers."""

    def read(reading: Reading) -> Any:
        value = reading.config.get(field)
        if value is None:
            return _default(reading, default)
        if not isinstance(value, list) or not all(type(entry) is int and 0 <= entry < reading.l for entry in value):
            raise reading.refuse(field, f"a list of layer numbers below {reading.l}")
        return frozenset(value)

    return Rule((field,), read)


def derived(make: Callable[[Reading], Any]) -> Rule:
    """A knob that stands in no field of its own."""
    return Rule((), make)
