"""Data with sources, and the tables that people print."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Named models: title, source, config fields, and the total that transformers counts for them."""
    found: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "presets.json").read_text(encoding="utf-8"))
    return found


@cache
def published() -> tuple[dict[str, Any], ...]:
    """Numbers as papers and model cards print them, one a row, each with the model, what is counted, and where it stands.

    ``config`` holds the model's fields where it is no preset; ``differs`` what is right, and why, where the print is not.
    """
    found = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
    return tuple(
        {**{name: value for name, value in table.items() if name != "rows"}, **row, "config": found["models"].get(row["model"])}
        for table in found["tables"]
        for row in table["rows"]
    )
