"""Ratios between two pieces of work, measured side by side: A B, B A, A B … and the median of the pairs.

A machine that does other things at the same time slows both halves of a pair alike, so that a ratio holds where a time
does not. Processor time is counted, not the wall's.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, TypeAlias

RESULTS = Path(__file__).parent / "results"


class Row(NamedTuple):
    """One comparison: what, against what, the ratio of each pair, and what the median ought to be."""

    what: str
    against: str
    ratios: Sequence[float]
    most: float | None = None

    @property
    def median(self) -> float:
        """The median of the pairs."""
        return statistics.median(self.ratios)

    def cells(self) -> tuple[str, ...]:
        """What the table shows."""
        low, _, high = statistics.quantiles(self.ratios, n=4)
        verdict = "" if self.most is None else "yes" if self.median <= self.most else "no"
        target = "" if self.most is None else f"≤ {self.most:g}"
        return self.what, self.against, f"{self.median:.2f}", f"{low:.2f} to {high:.2f}", target, verdict


Measure: TypeAlias = Callable[[int], float]
"""Processor seconds of a piece of work, given the number of the round."""


def repeated(work: Callable[[], object], times: int = 1) -> Measure:
    """Measure *work* in this process."""

    def seconds(_: int) -> float:
        start = time.process_time()
        for _ in range(times):
            work()
        return time.process_time() - start

    return seconds


def process(command: list[str]) -> Measure:
    """Measure a whole process, user and system time, from its start to its end."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]

    def seconds(_: int) -> float:
        child = os.posix_spawnp(command[0], command, os.environ, file_actions=quiet)
        _, status, used = os.wait4(child, 0)
        if status:
            raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
        return used.ru_utime + used.ru_stime

    return seconds


def interleaved(measures: Mapping[str, Measure], rounds: int) -> dict[str, list[float]]:
    """What each measure returns for round 0, 1, 2 …, all of them in each round, every other round in reverse order."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for round_ in range(rounds):
        for name in list(measures)[:: -1 if round_ % 2 else 1]:
            found[name].append(measures[name](round_))
    return found


def pairs(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each pair."""
    return [a / b for a, b in zip(above, below, strict=True)]


def report(name: str, title: str, rows: Sequence[Row], notes: Sequence[str] = (), packages: Sequence[str] = ()) -> None:
    """Print the table, write it to ``results/NAME.md``, and end with code 1 where a target is missed."""
    head = ("what", "against", "ratio", "middle half", "target", "met")
    table = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    lines = ["| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) + " |" for line in table]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    used = ", ".join([f"Python {platform.python_version()}", *(f"{package} {version(package)}" for package in packages)])
    command = " ".join(["python", f"benchmarks/{name}.py", *sys.argv[1:]])
    text = "\n".join([f"# {title}", "", f"`{command}` with {used}.", "", *lines, *(f"\n{note}" for note in notes)]) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    raise SystemExit(any(row.most is not None and row.median > row.most for row in rows))
