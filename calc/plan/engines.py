"""Models as engines run them, where that is not how they are written: the same parameters and caches, another way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from ..blocks.mla import MLA
from ..blocks.moe import DenseMoE, MoE

T = TypeVar("T")


def absorbed(component: T) -> T:
    """A model, or any component, with every latent attention in it absorbed; itself where there is none.

    A decode step multiplies n(2c + r) times a cached position in place of expanding keys and values of all heads from it.
    DeepSeek-V2, arXiv:2405.04434, section 2.1.2.
    """
    return _changed(component, lambda one: replace(one, absorbed=True) if isinstance(one, MLA) else one)


def routed(component: T) -> T:
    """The same with tokens sent to their own experts alone, where they are written to run all; itself where none is.

    Llama 4 as vLLM runs it: vllm/model_executor/models/llama4.py.
    """
    return _changed(component, _routed)


def _routed(one: Any) -> Any:
    if not isinstance(one, DenseMoE):
        return one
    return MoE(e=one.e, a=one.a, expert=one.expert, shared=one.shared, score="sigmoid", renormalise=False)


def _changed(component: T, change: Callable[[Any], Any]) -> T:
    """The component with the change made to it and to all in it; itself where nothing changes."""
    made = change(component)
    if made is not component:
        return made  # type: ignore[no-any-return]
    if type(component) is tuple:
        items = tuple(_changed(item, change) for item in component)
        return items if any(new is not old for new, old in zip(items, component, strict=True)) else component  # type: ignore[return-value]
    if not is_dataclass(component) or isinstance(component, type):
        return component
    old = {field.name: getattr(component, field.name) for field in fields(component)}
    new = {name: found for name, value in old.items() if (found := _changed(value, change)) is not value}
    return replace(component, **new) if new else component
