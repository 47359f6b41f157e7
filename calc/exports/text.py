"""One line of Unicode: ``4·B·D·T·(2·D + T)``."""

from __future__ import annotations

from ..symbolic import Formula


def write(formula: Formula) -> str:
    """The formula alone."""
    return formula.text()
