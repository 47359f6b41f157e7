"""Formulas to export, each with drawn sizes and what the ledgers count at them: every block and a dozen families. And what runs
another language's programs."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import sympy

from blockcalc import UndefinedError, formula, load, trace, widths
from blockcalc.catalogue import BLOCKS
from blockcalc.symbolic import QUANTITIES, Formula, capital, symbolize
from blockcalc.whole import bounds, fraction

NODE = shutil.which("node")

SPANS = ((2, 30), (2**9, 2**10), (2**29, 2**30))
"""Sizes are drawn from each of these: results within 2⁵³, past it, and past 2⁶³ or 2¹²⁷."""


class Case(NamedTuple):
    """A formula, and draws: sizes by symbol, with the value that the export must give at them."""

    formula: Formula
    draws: tuple[tuple[dict[str, int], int], ...]


def largest(case: Case, sizes: Mapping[str, int]) -> int:
    """The largest number on the way to the value at these sizes, or a bound of it."""
    above, _ = fraction(case.formula.expr)
    put_in = {symbol: sizes[str(symbol)] for symbol in case.formula.expr.free_symbols}
    return max(int(bound.xreplace(put_in)) for bound in bounds(above))


def lengths(rng: random.Random, low: int, high: int) -> tuple[int, int, int]:
    """B, T and S, of which S includes the T."""
    b, t = rng.randint(low, high), rng.randint(low, high)
    return b, t, t + rng.randint(0, high)


def block_sizes(rng: random.Random, letters: Mapping[str, int], low: int, high: int) -> dict[str, int]:
    """Sizes of a block's letters that fit each other."""
    sizes = {letter: 2 * rng.randint(low, high) for letter in letters}
    if "k" in sizes:
        sizes["n"] = sizes["k"] * rng.randint(1, 3)
    if "n" in sizes and "h" not in sizes and "p" not in sizes:
        sizes["n"] = rng.randint(2, 7)
        sizes["d"] = sizes["n"] * rng.randint(low, high)
    if "e" in sizes:
        sizes["e"] = sizes["a"] + rng.randint(0, high)
    if "i" in sizes:
        sizes["i"] = min(sizes["i"], sizes["d"])
    return sizes


# Config fields by letter; where a head's width is d / n, x stands for it. Letters that are not drawn are drawn all the same.
_LLAMA = {
    "hidden_size": "d", "intermediate_size": "f", "num_hidden_layers": "l", "num_attention_heads": "n",
    "num_key_value_heads": "k", "head_dim": "h", "vocab_size": "v",
}  # fmt: skip
_BERT = {
    "hidden_size": "nx", "intermediate_size": "f", "num_hidden_layers": "l", "num_attention_heads": "n", "vocab_size": "v",
    "max_position_embeddings": "m", "type_vocab_size": "e",
}  # fmt: skip
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "sliding_window": "w"},
    "mixtral": {**_LLAMA, "num_local_experts": "e", "num_experts_per_tok": 2},
    "qwen3": _LLAMA,
    "qwen3_moe": {**_LLAMA, "num_experts": "e", "num_experts_per_tok": 2, "moe_intermediate_size": "i"},
    "gemma2": {**_LLAMA, "num_hidden_layers": 6, "sliding_window": "w"},
    "deepseek_v3": {
        **{field: letter for field, letter in _LLAMA.items() if field not in ("head_dim", "num_key_value_heads")},
        "num_key_value_heads": "n", "num_hidden_layers": 7, "first_k_dense_replace": 3, "n_routed_experts": 8, "n_group": 1,
        "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": "i", "kv_lora_rank": "c", "q_lora_rank": "q",
        "qk_nope_head_dim": "p", "qk_rope_head_dim": "r", "v_head_dim": "u",
    },
    "gpt2": {"n_embd": "nx", "n_inner": "f", "n_layer": "l", "n_head": "n", "vocab_size": "v", "n_positions": "m"},
    "bert": _BERT,
    "albert": {**_BERT, "embedding_size": "i", "num_hidden_groups": 2, "inner_group_num": 1, "num_hidden_layers": 4},
    "t5": {"d_model": "d", "d_kv": "h", "d_ff": "f", "num_layers": "l", "num_heads": "n", "vocab_size": "v"},
    "whisper": {
        "d_model": "nx", "encoder_layers": "l", "encoder_attention_heads": "n", "decoder_layers": "l",
        "decoder_attention_heads": "n", "encoder_ffn_dim": "f", "decoder_ffn_dim": "f", "vocab_size": "v",
        "max_source_positions": "m", "max_target_positions": "w", "num_mel_bins": "i",
    },
    "vit": {"hidden_size": "nx", "intermediate_size": "f", "num_hidden_layers": "l", "num_attention_heads": "n"},
}  # fmt: skip


def config(kind: str, rng: random.Random, low: int, high: int) -> dict[str, Any]:
    """A config of the family with drawn sizes, all different, so that its symbols have the same names at each draw."""
    drawn = "dfxhvmwiecqpru"
    letters = dict(zip(drawn, (2 * size for size in rng.sample(range(low, high + 1), len(drawn))), strict=True))
    letters |= {"k": rng.randint(2, 5), "l": rng.randint(2, 99)}
    letters["n"] = letters["k"] * rng.randint(1, 3)
    letters["nx"] = letters["n"] * letters["x"]
    return {"model_type": kind, **{field: letters.get(what, what) for field, what in FAMILIES[kind].items()}}


def of_blocks() -> Iterator[tuple[str, str, list[tuple[Any, int | None, dict[str, int]]]]]:
    """Each block's name, and its component with width and sizes, a draw each."""
    for name, entry in BLOCKS.items():
        draws = []
        for low, high in SPANS:
            sizes = block_sizes(random.Random(f"{name} {low}"), entry.sizes, low, high)
            component, width = entry.build(sizes)
            draws.append((component, width, {capital(letter): size for letter, size in sizes.items()}))
        yield name, name, draws


def of_families() -> Iterator[tuple[str, Any, list[tuple[Any, int | None, dict[str, int]]]]]:
    """Each family's name, the model that its formulas are read off, and a model with its sizes, a draw each."""
    for kind in FAMILIES:
        draws: list[tuple[Any, int | None, dict[str, int]]] = []
        for low, high in SPANS:
            model = load(config(kind, random.Random(f"{kind} {low}"), low, high))
            _, values, _ = symbolize(model)
            draws.append((model, None, {str(symbol): size for symbol, size in values.items()}))
        yield kind, draws[-1][0], draws


def counted(quantity: str, draws: list[Any], convention: str = "torch") -> list[tuple[dict[str, int], int]]:
    """The quantity as the ledgers give it, without a formula."""
    asked = QUANTITIES[quantity]
    found = []
    for index, (component, width, sizes) in enumerate(draws):
        b, t, s = lengths(random.Random(f"{index}"), *SPANS[index])
        budget = _budget(component, width, asked.step, b, t, s)
        found.append(({**sizes, "B": b, "T": t, "S": s}, asked.read(budget, widths("bf16"), convention)))
    return found


@cache
def _budget(component: Any, width: int | None, step: Callable[..., Any], b: int, t: int, s: int) -> Any:
    made = step(b, t, s)
    return component.budget(made) if width is None else trace(component, made, width)


def _symbols(letters: str) -> list[Any]:
    return [sympy.Symbol(letter, integer=True, positive=True) for letter in letters]


def made_up() -> Iterator[Case]:
    """Expressions with all that a printer may meet: halves, branches, floors and ceilings, differences, sums kept whole."""
    C, D, F, R, S, T, W = _symbols("CDFRSTW")
    like = formula("window", "flops")
    shapes = {
        "half": T * (T + 1) / 2,
        "thirds": (D**3 - D) / 3 + D,
        "kept-whole": sympy.Mul(2, D + F, evaluate=False) * T,
        "difference": D**2 * F - (F - 1) * (D - S) + 3 * S,
        "powers": (D + F) ** 3 - D**2 - F**2,
        "negative": -(D**2) * (F + S) + (D + 1) ** 2 * (F + S),
        "triangle": T * sympy.Min(T, W) - sympy.Min(T, W) * (sympy.Min(T, W) - 1) / 2,
        "of-three": sympy.Max(D, F, S) * sympy.Min(D, F + 1, S, 7),
        "floor": sympy.floor(S / W) * W + sympy.floor((D - S) / (F + 1)),
        "ceiling": sympy.ceiling(S / W) + 5 * sympy.ceiling((D + F) / 4),
        "least-of-fractions": 6 * sympy.Min(S / 2, T / 3),
        "branches": D * sympy.Piecewise((C, S < W), (R, sympy.Eq(S, W)), (C + R, True)) + 1,
        "half-a-branch": sympy.Piecewise((C / 2, S / 3 >= W / 5), (R, True)) * 2,
    }
    for name, expr in shapes.items():
        draws = []
        for low, high in SPANS:
            rng = random.Random(f"{name} {low}")
            sizes = {str(symbol): rng.randint(low, high) for symbol in sorted(expr.free_symbols, key=str)}
            put_in = {symbol: sizes[str(symbol)] for symbol in expr.free_symbols}
            draws.append((sizes, int(expr.subs(put_in))))
        meanings, units = (dict.fromkeys(expr.free_symbols, text) for text in ("a size", "units"))
        yield Case(like._replace(subject=f"made-up {name}", expr=expr, meanings=meanings, units=units), tuple(draws))


def cases() -> list[Case]:
    """All of them, each under a name of its own."""
    found = list(made_up())
    for name, subject, draws in (*of_blocks(), *of_families()):
        for quantity in QUANTITIES:
            try:
                found.append(Case(formula(subject, quantity)._replace(subject=name), tuple(counted(quantity, draws))))
            except UndefinedError:
                continue
    by_name = {name: draws for name, _, draws in (*of_blocks(), *of_families())}
    for name in ("mha", "window", "chunked"):
        for quantity in ("flops", "decode_flops", "train_flops"):
            exact = formula(name, quantity, convention="exact")._replace(subject=f"exact {name}")
            found.append(Case(exact, tuple(counted(quantity, by_name[name], "exact"))))
    return found


def run(words: list[Any], text: str | None = None) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
