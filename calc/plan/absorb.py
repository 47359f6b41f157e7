"""Latent attention as engines decode with it: queries go to the latents, and no key or value is expanded."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from ..blocks.mla import MLA

T = TypeVar("T")


def absorbed(component: T) -> T:
    """A model, or any component, with every latent attention in it absorbed; itself where there is none.

    Parameters and caches stay; a decode step multiplies n(2c + r) times a cached position in place of expanding keys and
    values of all heads from it. DeepSeek-V2, arXiv:2405.04434, section 2.1.2.
    """
    if isinstance(component, MLA):
        return replace(component, absorbed=True)
    if isinstance(component, tuple) and type(component) is tuple:
        changed = tuple(map(absorbed, component))
        return changed if any(new is not old for new, old in zip(changed, component, strict=True)) else component  # type: ignore[return-value]
    if not is_dataclass(component) or isinstance(component, type):
        return component
    old = {field.name: getattr(component, field.name) for field in fields(component)}
    new = {name: found for name, value in old.items() if (found := absorbed(value)) is not value}
    return replace(component, **new) if new else component
