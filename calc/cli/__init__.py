"""The ``blockcalc`` command. A command's module is imported when the command is called."""

from __future__ import annotations

import gc
import sys
from errno import EPIPE
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from ..errors import BlockcalcError

COMMANDS = {
    "params": "Count parameters: total, active, embedding, head, and each component.",
    "flops": "Count the FLOPs of a forward pass, a prefill, a decode step or a training step.",
    "kv": "Size the KV cache at a context, by kind of layer.",
    "activations": "Size what autograd keeps between forward and backward.",
    "budget": "All of these at once.",
    "memory": "Size what one device of a parallel run holds, by part and by pipeline rank.",
    "comm": "List every collective of a step, with its bytes.",
    "fit": "Does it fit, what is missing, the largest batch or context, the fewest devices, which machines and formats.",
    "plan": "Search the layout that trains fastest or serves best on so many devices.",
    "train": "A training run: memory, time by phase, MFU, days, energy, cost, compute-optimal sizes.",
    "serve": "Serving: time to first token, time per token, tokens a second, concurrency, cost.",
    "mfu": "Read a measured speed as utilization, under every convention.",
    "compare": "Models or blocks side by side.",
    "table": "Draw a comparison table: attention, feed-forward, positions, mixtures, KV caches, conventions …",
    "plot": "Draw pictures of models, in the terminal or as PNG or SVG files.",
    "report": "Write an HTML page of a model: tables, typeset formulas, pictures, inputs that recompute them.",
    "formula": "Print the closed form of a quantity of a model or a block.",
    "explain": "Show the tree of components: formula, numbers put in, value, share, rule and paper of each.",
    "sweep": "Compute quantities over a grid of models, sizes, steps and layouts, into a file.",
    "solve": "Turn a formula round: for what size is a quantity a number, at most one, or equal to another.",
    "verify": "Hold blocks or models against their torch twins, in every quantity.",
    "checkpoint": "Read a checkpoint's header: bytes by type, parameters, and whether they are a model's.",
    "bench": "Predict how long blocks take on this machine, and time their torch twins.",
    "machines": "List accelerators, or show one with its sources: dense rates, memory, links.",
    "claims": "List what three articles say of the block, each with its verdict; or show one in full.",
    "models": "List the presets.",
    "blocks": "List the blocks.",
    "conventions": "List the ways of counting FLOPs.",
    "completion": "Print the script that completes blockcalc in a shell.",
}


class Commands(click.Group):
    """A group that imports a command when it is asked for, and turns refusals into one line and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __name__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names. Fails with the nearest name where it names none."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            ctx.fail(f"no such command {args[0]!r}{f'; did you mean {near[0]}?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run; what a stream cannot encode is replaced."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
                stream.reconfigure(errors="replace")
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever blockcalc refuses ends it with one line on standard error."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()
            return result
        except BlockcalcError as error:
            click.echo(f"blockcalc: {' '.join(str(error).split())}", err=True)
            ctx.exit(2)
        except click.UsageError as error:
            click.echo(f"blockcalc: {' '.join(error.format_message().split())}", err=True)
            ctx.exit(2)
        except OSError as error:
            if error.errno == EPIPE:
                raise
            click.echo(f"blockcalc: cannot write: {error.strerror}", err=True)
            ctx.exit(2)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="blockcalc")
def main() -> None:
    """Exact budgets of transformers: parameters, FLOPs, activation memory, KV cache, and the formulas they come from.

    MODEL is a preset's name (blockcalc models), a path to a config.json or to its folder, or a block's name
    (blockcalc blocks). Exit code 0: done; 1: the answer is no; 2: the input was refused, with one line that
    says why.
    """


def run() -> None:
    """The program. What a cold start imports lives on to its end, and the garbage collector need not look through it."""
    gc.set_threshold(1_000_000, 50, 50)
    try:
        main()
    finally:
        gc.freeze()
