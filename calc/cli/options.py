"""Options that several commands share, and what they make: a subject, a step, kernels, a form of output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click

from ..dims import check_sizes
from ..errors import InputError
from ..tensor import Adapters, Kernels, Step

F = TypeVar("F", bound=Callable[..., Any])


Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Completes to those of the names that begin so."""
    return lambda context, parameter, incomplete: [name for name in names() if name.startswith(incomplete)]


def _models() -> Iterable[str]:
    from ..catalogue import BLOCKS
    from ..tables import presets

    return *presets(), *BLOCKS


def _machines() -> Iterable[str]:
    from ..tables import machines

    return machines()["machines"]


def _formats() -> Iterable[str]:
    from ..storage.precision import FORMATS

    return FORMATS


def _optimizers() -> Iterable[str]:
    from ..storage.optimizers import OPTIMIZERS

    return OPTIMIZERS


def _conventions() -> Iterable[str]:
    from ..convention import CONVENTIONS

    return CONVENTIONS


complete_model, complete_machine, complete_format, complete_optimizer, complete_convention = map(
    completing, (_models, _machines, _formats, _optimizers, _conventions)
)


def _stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    def wrap(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return wrap


model = _stack(
    click.argument("model", shell_complete=complete_model),
    click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE",
                 help="Override a field of the config, or a letter of a block."),
)  # fmt: skip
output = _stack(
    click.option("--json", "form", flag_value="json", help="One JSON object, integers exact."),
    click.option("--csv", "form", flag_value="csv", help="Comma-separated values."),
    click.option("--markdown", "form", flag_value="markdown", help="A Markdown table."),
    click.option("--latex", "form", flag_value="latex", help="A LaTeX table with booktabs' rules."),
    click.option("--html", "form", flag_value="html", help="An HTML table."),
)
batch = click.option("--batch", default=1, show_default=True, metavar="B", help="Sequences in the batch.")
seq = click.option("--seq", default=2048, show_default=True, metavar="T",
                   help="New tokens a sequence; when decoding without --context, the context.")  # fmt: skip
context = click.option("--context", type=int, default=None, metavar="S", help="Visible tokens, the new ones included.")
encoder_seq = click.option(
    "--encoder-seq", type=int, default=None, metavar="T", help="The encoder's tokens, where they are not the decoder's."
)
dtype = click.option(
    "--dtype", default="bf16", show_default=True, help="Type of activations or cache: fp32, bf16, fp16; a cache also fp8, int8."
)
kv_dtype = click.option("--kv-dtype", default=None, metavar="TYPE", help="Type of the cache, where it is not --dtype.")
def _attention(usual: str) -> Callable[[F], F]:
    kinds = click.Choice(["math", "flash", "fused"])
    return click.option("--attention", type=kinds, default=usual, show_default=True,
                        help="math writes scores out; one kernel does not: flash as on CPUs, fused as on GPUs.")  # fmt: skip


def _norm(usual: str) -> Callable[[F], F]:
    return click.option("--norm", type=click.Choice(["composed", "fused"]), default=usual, show_default=True,
                        help="RMSNorm out of elementary operations, or one kernel.")  # fmt: skip


attention = _attention("math")
_besides = _stack(
    click.option("--gated", type=click.Choice(["plain", "fused"]), default="plain", show_default=True,
                 help="A gated feed-forward's product written out, or one kernel that keeps gate and up."),
    click.option("--loss", type=click.Choice(["plain", "fused"]), default="plain", show_default=True,
                 help="Cross entropy written out, or one kernel that writes the gradient over the logits."),
    click.option("--dropout", type=click.Choice(["none", "noise", "mask"]), default="none", show_default=True,
                 help="Dropout in training, and what it keeps: noise as wide as its input, or a byte an element."),
)  # fmt: skip
kernels = _stack(attention, _norm("composed"), _besides)
"""The kernels of torch on a CPU where nothing is said."""
device_kernels = _stack(_attention("fused"), _norm("fused"), _besides)
"""Those that run on accelerators."""
recompute = click.option("--recompute", type=click.Choice(["none", "selective", "full"]), default="none", show_default=True,
                         help="Run again backward: nothing, the core attention, each layer.")  # fmt: skip
policy = click.option("--policy", type=click.Choice(["minimal", "transformers", "static", "unified"]), default="minimal",
                      show_default=True, help="What a window layer's cache holds.")  # fmt: skip
convention = click.option("--convention", default="torch", show_default=True, metavar="NAME",
                          shell_complete=complete_convention,
                          help="How FLOPs are counted: see 'blockcalc conventions'.")  # fmt: skip
mode = click.option("--mode", type=click.Choice(["forward", "prefill", "decode", "train"]), default="forward",
                    show_default=True, help="What is run.")  # fmt: skip
head = click.option("--head", type=click.Choice(["all", "last"]), default="all", show_default=True,
                    help="Logits of every position, or of the last only.")  # fmt: skip
lora = click.option("--lora", default=None, metavar="R:NAMES",
                    help="Freeze all but adapters of rank R on linears of these names: 16:q,v or 8:gate,up,down.")  # fmt: skip


def make_kernels(given: Mapping[str, Any]) -> Kernels:
    """The kernels that the options describe."""
    return Kernels(**{name: given[name] for name in ("attention", "norm", "gated", "loss", "dropout")})


def adapters(text: str | None) -> Adapters | None:
    """``16:q,v`` as adapters; a name may be a config's module name, such as ``q_proj``."""
    if text is None:
        return None
    rank, sign, names = text.partition(":")
    targets = frozenset(name.strip().removesuffix("_proj") for name in names.split(",") if name.strip())
    if not sign or not rank.isascii() or not rank.isdigit() or not targets:
        raise InputError(f"--lora {text}: expected a rank and names of linears, as in 16:q,v")
    return Adapters(int(rank), targets)


class Subject(NamedTuple):
    """What a command is asked of: a model, or a block with the width of its input."""

    name: str
    component: Any
    width: int | None

    def budget(
        self, step: Step, kernels: Kernels | None = None, recompute: Any = "none", lora: str | None = None
    ) -> Any:
        """Its budget in a step."""
        from ..model import trace

        if self.width is None:
            return self.component.budget(step, kernels, recompute, adapters(lora))
        return trace(self.component, step, self.width, kernels, recompute, adapters(lora))


def changes_of(texts: Sequence[str]) -> dict[str, Any]:
    """``field=value`` pairs; a value is JSON where it can be read as such, else a word."""
    found: dict[str, Any] = {}
    for text in texts:
        field, sign, value = text.partition("=")
        if not sign or not field:
            raise InputError(f"--set {text}: expected FIELD=VALUE")
        try:
            found[field] = json.loads(value)
        except (ValueError, RecursionError):
            found[field] = value
    return found


def subject(name: str, texts: Sequence[str]) -> Subject:
    """The block or the model of that name."""
    from ..readers import load

    changes = changes_of(texts)
    if is_block(name):
        from ..catalogue import BLOCKS

        component, width = BLOCKS[name].build(changes)
        return Subject(name, component, width)
    return Subject(name, load(name, changes), None)


def is_block(name: str) -> bool:
    """A preset of the same name wins, and a preset needs no block imported."""
    from ..tables import presets

    if name in presets() or "/" in name or name.endswith(".json"):
        return False
    from ..catalogue import BLOCKS

    return name in BLOCKS


def step(
    mode: str, batch: int, seq: int, context: int | None, encoder_seq: int | None = None, head: Any = "all"
) -> Step:
    """The step that the options describe. Raises InputError for a context that the mode has no use for."""
    from dataclasses import replace

    check_sizes("the step", batch=batch, seq=seq, context=context, encoder_seq=encoder_seq)
    if mode == "decode":
        made = Step.decode(batch, seq if context is None else context, encoder_seq)
    elif mode == "prefill":
        made = Step.prefill(batch, seq, context, encoder_seq)
    else:
        if context is not None and context != seq:
            raise InputError(f"--context {context}: a {mode} pass sees what it runs, --seq {seq}; use --mode prefill or decode")
        made = (Step.train if mode == "train" else Step.forward)(batch, seq, encoder_seq)
    return replace(made, head=head) if head != "all" else made


def warn_beyond_table(subject: Subject, tokens: int) -> None:
    """Say on standard error that a length is past the learned position table."""
    rows = getattr(subject.component, "positions", None)
    if rows is not None and tokens > rows:
        click.echo(f"blockcalc: warning: {tokens} tokens, but {subject.name} has {rows} learned positions", err=True)


def notes(subject: Subject) -> tuple[str, ...]:
    """What a preset says of itself."""
    from ..tables import presets

    note = presets().get(subject.name, {}).get("note")
    return (note,) if note else ()


def check_encoder_seq(subject: Subject, encoder_seq: int | None) -> None:
    """Refuse a length for an encoder that is not there, or that has its own."""
    if encoder_seq is None or subject.width is not None:
        return
    if subject.component.encoder is None:
        raise InputError(f"--encoder-seq {encoder_seq}: {subject.name} has no encoder beside its decoder")
    source = subject.component.encoder_embedding
    if source is not None and source.length not in (None, encoder_seq):
        raise InputError(f"--encoder-seq {encoder_seq}: the encoder of {subject.name} always has {source.length} positions")


def emit(form: str | None, data: Any, *tables: Any) -> None:
    """Print the object as JSON, or the tables in the form asked for."""
    if form is not None:
        click.echo(written(form, data, *tables), nl=False)
        return
    from ..tables.table import print_table

    for table in tables:
        print_table(table)


def save(path: Path, text: str, force: bool) -> None:
    """Write a new file, with *force* over one that is there. Raises InputError where it cannot be written."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"-o {path}: the file exists; --force overwrites it") from None
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"-o {str(path)!r}: {error}") from None


def written(form: str, data: Any, *tables: Any) -> str:
    """The object as JSON, or the tables in another form, as text."""
    if form == "json":
        return json.dumps(data, ensure_ascii=False) + "\n"
    from ..tables import markup, table

    forms = {"csv": table.as_csv, "markdown": table.as_markdown, "latex": markup.as_latex, "html": markup.as_html}
    return "\n".join(map(forms[form], tables))
