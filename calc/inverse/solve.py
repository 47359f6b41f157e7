"""For what size does a formula have a value: the closed form, or the whole number with what the Budget counts there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..breakdown import How
from ..budget import Policy
from ..dims import check_sizes
from ..errors import InputError
from ..model import Component, Model
from ..readers.config import printable
from ..recorder import Recompute
from ..tensor import Kernels
from .fields import solve_field
from .grammar import equation as read_equation
from .problem import WORDS, Problem
from .sides import STEP, Subject, family, subject
from .solution import Solution

if TYPE_CHECKING:
    from pathlib import Path


def solve(
    equation: str,
    unknown: str,
    model: Model | Component | str | Path | Mapping[str, Any] | None = None,
    *,
    family: str | None = None,
    changes: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int | str] | None = None,
    batch: int | None = None,
    seq: int | None = None,
    context: int | None = None,
    encoder_seq: int | None = None,
    multiple: int = 1,
    dtype: str = "bf16",
    convention: str = "torch",
    policy: Policy = "minimal",
    kernels: Kernels | None = None,
    recompute: Recompute = "none",
) -> Solution:
    """Solve an equation between quantities for one size.

    *equation*: ``kv <= 16GiB``, ``params = 7e9``, ``params = params(mlp, f=4d)``, ``flops[scores, mix] >= flops[mlp]``.
    *unknown*: a letter (``d``, ``l_moe``), a word (``batch``, ``seq``, ``context``, ``layers``), or a field of the config.
    The sizes of a block and of a *family* are free but for those in *sizes*, which are numbers or in terms of others
    (``l="d/128"``); those of a preset or a config, with *changes* to its fields, are its own. While a size is free the answer
    is a closed form, else the whole numbers at the boundary, multiples of *multiple*, each counted by the Budget. Raises
    InputError for an equation or a size that cannot be read.

    >>> solve("kv <= 16GiB", "context", "llama-3.1-8b").answer
    131072
    >>> solve("params = params(mlp, f=4d)", "f", "gated-mlp").closed[0].text()
    '8·D/3'
    """
    check_sizes("solve", batch=batch, seq=seq, context=context, encoder_seq=encoder_seq, multiple=multiple)
    how = How(dtype, convention, policy, kernels or Kernels(), recompute)
    step = dict(zip(STEP, (batch, seq, context, encoder_seq), strict=True))
    asked, default = read_equation(equation), _default(model, family, changes)
    if default is not None and default.values and not _is_size(unknown, default):
        for letter in sizes or {}:
            instead = "sizes are given as fields of the config, and as batch, seq and context"
            raise InputError(f"{printable(letter)}: while a field, {printable(unknown)}, is asked for, {instead}")
        return solve_field(asked, unknown, model, dict(changes or {}), step, how, multiple)
    return Problem(asked, unknown, default, sizes or {}, step, how).solved(multiple)


def _default(model: Any, kind: str | None, changes: Mapping[str, Any] | None) -> Subject | None:
    """What is meant where a side names no subject."""
    if kind is not None:
        if model is not None or changes:
            raise InputError(f"a family, {printable(kind)}, has neither a model nor a config beside it")
        return family(kind)
    return None if model is None else subject(model, changes)


def _is_size(name: str, of: Subject) -> bool:
    """Is it a letter or a word, and not a field of a config."""
    plain = name[:1].upper() + name[1:]
    return len(name) == 1 or name.replace("-", "_") in WORDS or plain in map(str, of.usual)
