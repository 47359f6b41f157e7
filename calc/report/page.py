"""The page: its skeleton, its inputs, and the script that keeps every number at whatever is chosen."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any

from ..explain import Subject
from ..plots import parts
from ..plots.scale import OKABE_ITO
from ..tables.markup import html
from .content import Content, Settings, in_words
from .ledgers import ONE_MORE
from .sections import letter, sections

_LABELS = {
    "batch": "Sequences in the batch", "seq": "New tokens a sequence",
    "context": "Context: visible tokens, the new ones included", "encoder": "Tokens of the encoder",
    "mode": "What is run", "convention": "How FLOPs are counted", "attention": "Attention kernel",
    "recompute": "Run again backward", "dtype": "Type of the activations", "kv_dtype": "Type of the cache",
}  # fmt: skip
_HEADLINES = {"params": "Parameters", "flops": "FLOPs", "kv": "KV cache", "activations": "Activations"}
_COLOURS = {
    "attention": 0, "attention projections": 0, "feed-forward": 1, "head": 2, "embedding": 3, "attention scores": 4,
    "routed experts": 5, "norms": 7, "full layers": 0, "window layers": 1, "latent": 2, "cross": 3, "state": 5,
}  # fmt: skip


def write(subject: Subject, settings: Settings, notes: Iterable[str] = ()) -> str:
    """One HTML file with everything in it, which a browser opens by itself. *notes* stand below the title."""
    content = Content.of(subject, settings)
    style, script = _read("report.css"), _script(content)
    lead = ["Parameters, FLOPs, KV cache and activations, exact, with the closed forms that they come from.", *notes]
    return Template(_read("report.html")).substitute(
        name=html(subject.name), lead=html(" ".join(lead)), inputs="\n".join([*_lengths(content), *_choices(content)]),
        headlines="\n".join(_headlines(content)), sections="\n".join(sections(content)),
        style=style, style_hash=_hash(style), script=script, script_hash=_hash(script),
    )  # fmt: skip


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's policy lets run and no other."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# -- inputs and headlines ----------------------------------------------------------------------------------------------


def _lengths(content: Content) -> Iterator[str]:
    for field, symbol in content.fields.items():
        attributes = (
            f'id="{field}" name="{field}" type="text" inputmode="numeric" autocomplete="off" spellcheck="false"'
            f' value="{content.settings.lengths[field]}" aria-invalid="false" aria-describedby="{field}-error {field}-note"'
        )
        remarks = f'<p class="error" id="{field}-error" role="alert"></p><p class="note" id="{field}-note"></p>'
        label = f'<label for="{field}">{_LABELS[field]}, {letter(symbol)}</label>'
        yield f'<div class="field">{label}<input {attributes}>{remarks}</div>'


def _choices(content: Content) -> Iterator[str]:
    for setting, words in content.choices.items():
        first = content.settings.words[setting]
        options = "".join(f"<option{' selected' if word == first else ''}>{word}</option>" for word in words)
        label = f'<label for="{setting}">{_LABELS[setting]}</label>'
        yield f'<div class="field">{label}<select id="{setting}" name="{setting}">{options}</select></div>'


def _headlines(content: Content) -> Iterator[str]:
    for name, title in _HEADLINES.items():
        ledger = content.ledgers[name]
        total = content.value(ledger, "total")
        controls = [*content.fields, *(setting for setting in ledger.depends if setting in content.choices)]
        attributes = f'data-ledger="{name}" for="{" ".join(controls)}" aria-live="polite" aria-labelledby="{name}-headline"'
        if ledger.rows:
            output = f"<output {attributes}>{'—' if total is None else in_words(total, ledger.unit)}</output>"
            yield f'<div><dt id="{name}-headline">{title}</dt><dd>{output}</dd></div>'


# -- script ------------------------------------------------------------------------------------------------------------


def _script(content: Content) -> str:
    """Data and forms, then the program. No text in it can end the element that it stands in."""
    functions = "".join(f"{function},\n" for function in content.forms.javascript())
    program = "\n".join(map(_read, ("numbers.js", "pictures.js", "page.js")))
    data = json.dumps(_data(content), ensure_ascii=False, separators=(",", ":"))
    text = f'"use strict";\nconst DATA = {data};\nconst FORMS = [\n{functions}];\n{program}'
    return text.replace("</", "<\\/").replace("<!--", "<\\!--")


def _data(content: Content) -> dict[str, Any]:
    """What the program reads; integers as digits, for JSON's numbers are read as doubles."""
    positions = getattr(content.subject.component, "positions", None)
    return {
        "sizes": {name: str(size) for name, size in content.subject.sizes.items()},
        "fields": content.fields,
        "words": content.settings.words,
        "positions": None if positions is None else str(positions),
        "ledgers": [
            {"name": one.name, "unit": one.unit, "depends": one.depends, "cases": one.cases} for one in content.ledgers.values()
        ],
        "mathml": [content.forms.mathml(number) for number in range(len(content.forms.formulas))],
        "work": parts.WORK,
        "more": ONE_MORE,
        "colours": {row: OKABE_ITO[index] for row, index in _COLOURS.items()},
    }
