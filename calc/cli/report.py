"""``blockcalc report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from . import options

if TYPE_CHECKING:
    from ..explain import Subject


@click.command("report")
@options.model
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE",
              help="Write FILE, an HTML page.")  # fmt: skip
@click.option("--force", is_flag=True, help="Write over FILE where it exists.")
@options.batch
@options.seq
@options.context
@options.encoder_seq
@options.mode
@click.option("--convention", type=click.Choice(["torch", "exact"]), default="torch", show_default=True,
              help="How FLOPs are counted: over full attention squares, or visible pairs.")  # fmt: skip
@options.attention
@options.recompute
@options.dtype
@options.kv_dtype
@options.policy
def command(
    model: str, changes: tuple[str, ...], path: Path, force: bool, batch: int, seq: int, context: int | None,
    encoder_seq: int | None, mode: str, convention: str, attention: str, recompute: str, dtype: str, kv_dtype: str | None,
    policy: Any,
) -> None:  # fmt: skip
    """Write a page that a browser opens by itself: tables, typeset formulas, pictures, and inputs that recompute them.

    The options are what the page shows first; in it all but the policy can be changed. It reads nothing from elsewhere.

    \b
    blockcalc report llama-3.1-8b -o report.html
    blockcalc report path/to/config.json --mode train --seq 4096 --attention flash -o report.html --force
    """
    from ..dims import check_sizes
    from ..report.content import Settings
    from ..report.page import write

    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {path}: expected a name that ends in .html")
    subject = options.subject(model, changes)
    options.check_encoder_seq(subject, encoder_seq)
    check_sizes("the step", batch=batch, seq=seq, context=context, encoder_seq=encoder_seq)
    seen = seq if context is None else context
    step = options.step(mode, batch, seq, seen if mode in ("prefill", "decode") else None, encoder_seq)
    lengths = {"batch": batch, "seq": seq, "context": seen, "encoder": step.source}
    words = {
        "mode": mode, "convention": convention, "attention": attention, "recompute": recompute, "dtype": dtype,
        "kv_dtype": kv_dtype or dtype,
    }  # fmt: skip
    page = write(_symbolic(subject, changes), Settings(lengths, _checked(words), policy), options.notes(subject))
    options.save(path, page, force)
    options.warn_beyond_table(subject, max(seq, seen))


def _symbolic(subject: options.Subject, changes: tuple[str, ...]) -> Subject:
    from ..explain import Subject

    if subject.width is None:
        return Subject.of(subject.name, subject.component)
    return Subject.block(subject.name, options.changes_of(changes))


def _checked(words: dict[str, str]) -> dict[str, str]:
    """The words, each of which the page has."""
    from ..report.ledgers import CHOICES

    for setting, word in words.items():
        if word not in CHOICES[setting]:
            raise InputError(f"{setting} {word!r} is not one of {', '.join(CHOICES[setting])}")
    return words
