"""Data with sources, and the tables that people print."""

from __future__ import annotations

import json
import os.path
from functools import cache
from typing import Any


def _read(name: str) -> Any:
    """A file that stands beside this one. Without pathlib, which is a tenth of what a short command imports."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123
        return json.load(file)


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Named models: title, source, config fields, and the total that transformers counts for them."""
    found: dict[str, dict[str, Any]] = _read("presets.json")
    return found


@cache
def published() -> tuple[dict[str, Any], ...]:
    """Numbers as papers and model cards print them, one a row, each with the model, what is counted, and where it stands.

    ``config`` holds the model's fields where it is no preset; ``differs`` what is right, and why, where the print is not.
    """
    found = _read("published.json")
    return tuple(
        {**{name: value for name, value in table.items() if name != "rows"}, **row, "config": found["models"].get(row["model"])}
        for table in found["tables"]
        for row in table["rows"]
    )
