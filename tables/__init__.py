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


@cache
def measured_memory() -> dict[str, Any]:
    """Memory of public runs as their authors print it: ``training`` and ``serving`` rows, the ``sources`` and ``models`` that
    they name, and what is ``left_out``, with the reason. ``beyond`` says why a row is not computed."""
    found: dict[str, Any] = _read("measured_memory.json")
    return found


@cache
def measured_speed() -> tuple[dict[str, Any], ...]:
    """Speeds of public runs as their authors print them, one a row, with what its table says of all of them.

    Of a table's *eligible* rows (their settings printed, and such as are counted here) every *every*-th is taken, in the
    order of the print: the smallest odd number that leaves twelve at most. ``config`` holds the model's fields where it is no
    preset; ``assumed`` says what is not printed.
    """
    found = _read("measured_speed.json")
    models = _read("published.json")["models"] | found["models"]
    rows = ({**table, **row} for table in found["tables"] for row in table["rows"])
    return tuple({name: row[name] for name in row if name != "rows"} | {"config": models.get(row["model"])} for row in rows)


@cache
def machines() -> dict[str, dict[str, Any]]:
    """Accelerators, ``machines``: every figure with its source, what other sources say of it, and what to beware of.

    ``sources`` are the sources by the names that the figures give. Rates are a second, in one direction, of dense products.
    """
    found: dict[str, dict[str, Any]] = _read("machines.json")
    return found
