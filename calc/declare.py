"""The decorator of every declaration: a frozen dataclass whose methods are shared, not written anew for each class.

``dataclasses`` itself reads the fields, so that its ``fields``, ``replace`` and ``is_dataclass`` work as ever. The methods
that it would compile for each class are half a millisecond a class, which a cold start pays for some forty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from inspect import Signature

T = TypeVar("T")


@overload
def declaration(cls: type[T]) -> type[T]: ...
@overload
def declaration(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, kw_only_default=True)
def declaration(cls: type[T] | None = None, *, kw_only: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a frozen, hashable dataclass, keyword-only unless said otherwise. ``__post_init__`` may refuse its fields.

    >>> @declaration
    ... class Size:
    ...     d: int  # width
    ...     l: int = 1
    >>> Size(d=13) == Size(l=1, d=13), Size(d=13)
    (True, Size(d=13, l=1))
    """

    def declare(cls: type[T]) -> type[T]:
        made: Any = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        made.__init__ = _init(made)
        made.__signature__ = _Fields()
        for method in (__repr__, __eq__, __hash__, __setattr__, __delattr__):
            setattr(made, method.__name__, method)
        declared: type[T] = made
        return declared

    return declare if cls is None else declare(cls)


def _init(cls: Any) -> Callable[..., None]:
    """The ``__init__``: the values that are given over the defaults, in the order of the fields, then what checks them."""
    defaults = {field.name: field.default for field in fields(cls)}
    required = {name for name, default in defaults.items() if default is MISSING}
    check = getattr(cls, "__post_init__", None)

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        values = {**defaults, **given}
        if args or len(values) != len(defaults) or not required <= given.keys():
            values = {**defaults, **_bound(cls, args, given)}
        object.__setattr__(self, "__dict__", values)
        if check is not None:
            check(self)

    return __init__


def _bound(cls: Any, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The values by field. Raises TypeError, in Python's words, for those that are missing, twice or unknown."""
    try:
        return _signature(cls).bind(*args, **given).arguments
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}") from None


class _Fields:
    """What ``inspect.signature`` and ``help`` show of a declaration."""

    def __get__(self, instance: object, owner: type) -> Signature:
        return _signature(owner)


@cache
def _signature(cls: Any) -> Signature:
    """The fields as parameters."""
    from inspect import Parameter, Signature

    return Signature([
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=field.type,
        )
        for field in fields(cls)
    ])  # fmt: skip


def __repr__(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def __eq__(self: Any, other: object) -> bool:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def __hash__(self: Any) -> int:
    return hash((type(self), *self.__dict__.values()))


def __setattr__(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
