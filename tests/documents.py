"""Run the commands in the documentation. ``python tests/documents.py`` writes what they print into the documents."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from blockcalc.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_RENDERED = re.compile(r"<!-- \$ (blockcalc [^\n]*) -->\n.*?<!-- end -->", re.DOTALL)
"""What a command prints as Markdown, to be read as such, between the comment that names it and the one that ends it."""


def run(command: str) -> str:
    """What a ``blockcalc`` command prints on both streams, on a terminal 100 columns wide."""
    program, *words = shlex.split(command)
    assert program == "blockcalc", command
    result = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}).invoke(main, words, prog_name="blockcalc")
    assert result.exit_code in (0, 1, 2), (command, result.output, result.exception)
    return "\n".join(line.rstrip() for line in result.output.rstrip().splitlines())


def executed(text: str) -> str:
    """The document with the output of each of its commands."""

    def block(match: re.Match[str]) -> str:
        commands = [line[2:] for line in match[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "\n".join(f"$ {command}\n{run(command)}" for command in commands) + "\n```"

    def rendered(match: re.Match[str]) -> str:
        return f"<!-- $ {match[1]} -->\n\n{run(match[1])}\n\n<!-- end -->"

    return _RENDERED.sub(rendered, _BLOCK.sub(block, text))


def commands(text: str) -> list[str]:
    """The subcommands that the document runs."""
    shown = [line[2:] for block in _BLOCK.findall(text) for line in block.splitlines() if line.startswith("$ blockcalc")]
    return [command.split()[1] for command in (*shown, *_RENDERED.findall(text))]


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(executed(document.read_text(encoding="utf-8")), encoding="utf-8")
