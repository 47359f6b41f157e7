"""The documentation is true: its commands print what it says, its Python runs, its links lead somewhere."""

import doctest
import re

import pytest
from documents import DOCUMENTS, ROOT, commands, executed

from blockcalc.cli import COMMANDS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_prints_what_the_document_shows(document):
    text = document.read_text(encoding="utf-8")
    assert executed(text) == text, "python tests/documents.py brings it up to date"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_python_example_runs(document):
    failed, _ = doctest.testfile(str(document), module_relative=False)
    assert failed == 0


def test_every_command_has_an_example_in_the_documentation():
    used = {command for document in DOCUMENTS for command in commands(document.read_text(encoding="utf-8"))}
    mentioned = {name for name in COMMANDS if f"`blockcalc {name}" in (ROOT / "README.md").read_text(encoding="utf-8")}
    assert set(COMMANDS) <= used | mentioned


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
