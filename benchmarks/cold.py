"""How long a command takes from nothing, against Python importing only what the command cannot do without.

    python benchmarks/cold.py [ROUNDS]

Run it with the Python of an environment in which the wheel is installed: it calls the ``blockcalc`` beside that Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

from measure import Row, interleaved, pairs, process, report

CASES = (
    ("params llama-3.1-8b --json", "import click, json", 2.0),
    ("params llama-3.1-8b", "import click, rich.console, rich.table", 1.4),
    ("formula llama", "import sympy", 1.4),
)


def main(rounds: int) -> None:
    """Measure the three commands."""
    script = str(Path(sys.executable).with_name("blockcalc"))
    rows = []
    for words, imports, most in CASES:
        command, baseline = [script, *words.split()], [sys.executable, "-c", imports]
        found = interleaved({"command": process(command), "imports": process(baseline)}, rounds)
        rows.append(Row(f"`blockcalc {words}`", f'`python -c "{imports}"`', pairs(found["command"], found["imports"]), most))
    notes = ("Processor time of the whole process; the page cache is warm.",)
    report("cold", "Whole processes", rows, notes, ("blockcalc", "click", "rich", "sympy"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 31)
