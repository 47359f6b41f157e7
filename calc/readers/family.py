"""What a family is, and the rules that several families share.

A family that is another with two changes is two lines. Field names and defaults are those of Hugging Face's configs
(transformers 5); the tests ask transformers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from ..blocks import mlp
from ..errors import InputError
from ..model import Model
from .config import Reading, Rule, derived, each_layer, shown


class Family(NamedTuple):
    """What builds the model, and its knobs: values, or rules that read them."""

    build: Callable[[Reading], Model]
    knobs: Mapping[str, Any]

    def but(self, **changes: Any) -> Family:
        """The same family with other knobs."""
        return Family(self.build, MappingProxyType({**self.knobs, **changes}))


ACTIVATIONS = {
    "relu": mlp.relu, "gelu": mlp.gelu, "gelu_new": mlp.gelu_tanh, "gelu_pytorch_tanh": mlp.gelu_tanh,
    "gelu_fast": mlp.gelu_tanh, "gelu_python": mlp.gelu, "quick_gelu": mlp.quick_gelu, "silu": mlp.silu, "swish": mlp.silu,
    "tanh": mlp.tanh,
    "sigmoid": mlp.sigmoid, "relu2": mlp.relu_squared,
}  # fmt: skip

# What stands behind a family's name in its classes: the usual one first, each list the one before and one more.
BARE = ("ForCausalLM", "Model")
SEQUENCE = (*BARE, "ForSequenceClassification")
TOKEN = (*SEQUENCE, "ForTokenClassification")
CAUSAL = (*TOKEN, "ForQuestionAnswering")

# Read by some families and without effect on the counts of the others.
NO_TABLE = ("max_position_embeddings", "hidden_act")

full_everywhere = derived(lambda r: [None] * r.l)
window_everywhere = derived(lambda r: [r.w] * r.l)
dense_everywhere = derived(lambda r: [False] * r.l)
sparse_everywhere = derived(lambda r: [True] * r.l)
rotary_everywhere = derived(lambda r: [True] * r.l)
rotary_in_windows = derived(lambda r: [window is not None for window in r.windows])
full_head = derived(lambda r: r.h)


def split_head(r: Reading) -> int:
    """The head width when the config has none: d/n, which must divide."""
    r.check_divides("d", "n")
    return int(r.d // r.n)


def without_default(field: str) -> Callable[[Reading], NoReturn]:
    """The default of a size that transformers makes no model without."""

    def refuse(r: Reading) -> NoReturn:
        raise r.refuse(field, "a whole number: this family has no default")

    return refuse


def settled(knob: str, field: str = "num_key_value_heads") -> Rule:
    """A number that another *knob* has settled, mostly of key-value heads: a file may say it, but no other."""

    def read(r: Reading) -> int:
        found, expected = r.config.get(field), getattr(r, knob)
        if found is not None and (type(found) is not int or found != expected):
            raise r.refuse(field, f"{expected}: transformers builds no other")
        return int(expected)

    return Rule((field,), read)


def rotated(share: float, name: str = "partial_rotary_factor") -> Rule:
    """Rotated entries of a head: *name*, or ``partial_rotary_factor`` among the rope parameters, of its width."""

    def read(r: Reading) -> int:
        factor = share
        inner = r.config.get("rope_scaling") or r.config.get("rope_parameters") or {}
        if not isinstance(inner, dict):
            raise r.refuse("rope_scaling" if r.config.get("rope_scaling") else "rope_parameters", "an object or null")
        for place, field in ((r.config, name), (inner, "partial_rotary_factor")):
            factor = place.get(field, factor)
            if type(factor) not in (int, float) or not 0 <= factor <= 1:
                raise InputError(f"{r.where}: {field}: found {shown(factor)}, expected a number from 0 to 1")
        return int(r.h * factor)

    return Rule((name,), read)


def even(r: Reading) -> int:
    """The rotated entries in whole pairs."""
    return int(r.rotated + r.rotated % 2)


def by_type(default: Callable[[Reading], list[Any]], window: Callable[[Reading], Any] = lambda r: r.w) -> Any:
    """Windows from ``layer_types``."""
    return each_layer("layer_types", {"full_attention": None, "sliding_attention": window}, default)


def listed_window(r: Reading) -> int:
    """The window of a layer that ``layer_types`` gives one; transformers runs none that is null."""
    if r.w is None:
        raise r.refuse("sliding_window", "a whole number, for layer_types has windows")
    return int(r.w)


def after_some(r: Reading) -> list[int | None]:
    """Full attention in the first ``max_window_layers``, a window in the others."""
    return [r.w if i >= r.full_first else None for i in range(r.l)]


def every_nth_full(r: Reading) -> list[int | None]:
    """Full attention in every layer that ``pattern`` divides, counted from 1, a window in the others."""
    return [r.w if (i + 1) % r.pattern else None for i in range(r.l)]


def alternating_at_first(r: Reading) -> list[int | None]:
    """A window in every other of the first ``max_window_layers``, where there are windows at all."""
    return [r.w if r.sliding and i < r.full_first and not i % 2 else None for i in range(r.l)]


def alternating(r: Reading) -> list[int | None]:
    """A window in the first layer and every other."""
    return [None if i % 2 else r.w for i in range(r.l)]
