"""What blockcalc refuses. Both say what was asked, what was found, and what would be right."""

from __future__ import annotations


class BlockcalcError(Exception):
    """Base of every error that blockcalc raises on purpose: one line, fit to be shown as it is."""


class InputError(BlockcalcError, ValueError):
    """What was given cannot be right: an unknown name, a missing or impossible size, a shape that does not fit."""


class UndefinedError(BlockcalcError):
    """The question is well put but has no answer here: a convention or a kernel that is not defined for this model."""
