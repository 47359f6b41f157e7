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
