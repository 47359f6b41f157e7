"""What a page is made of: a subject's forms and ledgers, and the settings that it shows first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..budget import Policy
from ..errors import InputError
from ..explain import Subject
from ..tables.table import Unit, rounded
from .forms import Forms
from .ledgers import CHOICES, Ledger, ledgers

FIELDS: Mapping[str, str] = {"batch": "B", "seq": "T", "context": "S", "encoder": "S_encoder"}
"""The symbol of each field of a length."""

NAMES: Mapping[Unit, str] = {"count": "parameters", "flops": "FLOPs", "bytes": "bytes"}
"""What the numbers of a ledger are, by its unit."""


class Settings(NamedTuple):
    """What the page shows first: lengths by field, words by setting, and the cache policy, which the page keeps."""

    lengths: Mapping[str, int]
    words: Mapping[str, str]
    policy: Policy = "minimal"


class Content(NamedTuple):
    """All that the parts of the page are written from."""

    subject: Subject
    settings: Settings
    forms: Forms
    ledgers: Mapping[str, Ledger]

    @classmethod
    def of(cls, subject: Subject, settings: Settings) -> Content:
        """Everything that the page will ask of the subject. Raises InputError for a mode that the page will not offer."""
        forms = Forms(subject)
        content = cls(subject, settings, forms, {one.name: one for one in ledgers(subject, forms, settings.policy)})
        mode = settings.words["mode"]
        if mode not in content.choices.get("mode", (mode,)):
            raise InputError(f"mode {mode}: {subject.name} keeps no cache; run it forward, or train it")
        return content

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the lengths that any form has, with their symbols."""
        return {field: symbol for field, symbol in FIELDS.items() if symbol in self.forms.symbols}

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """The settings that change any number, with their words; what keeps no cache is neither prefilled nor decoded."""
        ledgers = self.ledgers.values()
        found = {setting: words for setting, words in CHOICES.items() if any(one.reads(setting) for one in ledgers)}
        if "mode" in found and not self.ledgers["kv"].rows:
            found["mode"] = ("forward", "train")
        return found

    def form(self, ledger: Ledger, row: str) -> int | None:
        """The number of a row's form at the first settings, if it has one there."""
        case = ledger.case(self.settings.words)
        return None if isinstance(case, str) else case.get(row)

    def value(self, ledger: Ledger, row: str) -> int | None:
        """A row's number at the first settings, if it has one there."""
        form = self.form(ledger, row)
        lengths = {FIELDS[field]: size for field, size in self.settings.lengths.items()}
        return None if form is None else self.forms.value(form, lengths)


def in_words(value: int, unit: Unit) -> str:
    """``1,073,741,824 bytes``, and in the next line ``≈ 1 GiB``."""
    near = rounded(value, unit)
    return f"{value:,} {NAMES[unit]}" + (f"\n≈ {near}" if near else "")
