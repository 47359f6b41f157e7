"""What a twin costs, measured on torch: parameters, FLOPs, what autograd keeps, what the caches hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode, conv_backward_flop, sdpa_backward_flop_count, sdpa_flop_count

from .context import Caches, Run
from .fused import CrossEntropy
from .model import Model

Pass = Callable[[Run], Tensor]


def parameters(module: nn.Module) -> int:
    """Numbers that are trained, a shared one once."""
    return sum(weight.numel() for weight in module.parameters())


def active_parameters(module: nn.Module, step: Pass) -> int:
    """Parameters that *step*, the pass of one token, gives a gradient to, and those that do not train."""
    module.zero_grad(set_to_none=True)
    step(Run()).sum().backward()
    return sum(weight.numel() for weight in module.parameters() if weight.grad is not None or not weight.requires_grad)


# -- steps ----------------------------------------------------------------------------------------------------------------


def inputs(model: Model, b: int, t: int, source: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Random inputs: t tokens a sequence, or as many positions as an image has, and *source* tokens for an encoder."""
    origin = None if model.encoder_embedding is None else model.encoder_embedding.draw(b, t if source is None else source)
    return model.embedding.draw(b, t), origin


def loss(model: Model, b: int, t: int, source: int | None = None) -> Pass:
    """A training step's forward pass: the cross entropy of every output with a random target."""
    ids, origin = inputs(model, b, t, source)

    def step(run: Run) -> Tensor:
        losses = []
        for logits in model.outputs(ids, run, origin):
            rows = logits.flatten(0, -2)  # b·t v
            run.places.append("loss")
            targets = torch.randint(rows.size(-1), (len(rows),))
            losses.append(F.cross_entropy(rows, targets) if run.loss == "plain" else CrossEntropy.apply(rows, targets))
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

    return step


# -- FLOPs ----------------------------------------------------------------------------------------------------------------


class Flops(NamedTuple):
    """Two per multiply-add. What a checkpoint runs again is part of ``backward``."""

    forward: int
    backward: int


def _forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


def _refuse(*_: Any, **__: Any) -> int:
    raise NotImplementedError("FlopCounterMode counts 0 for this fused operation")


def of_groups(*given: Any, out_shape: Any, **_: Any) -> int:
    """torch's own rule, which takes a convolution in groups for a dense one: it counts its weight's gradient once a group."""
    *operands, groups, needed = given
    rule: Callable[..., int] = conv_backward_flop
    inputs, weights = (
        rule(*operands, groups, mask, out_val=out_shape)
        for mask in ((needed[0], False, False), (False, needed[1], False))
    )
    return inputs + weights // groups


RULES: Mapping[str, Callable[..., int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _forward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _backward,
    "convolution_backward": of_groups,
    "_scaled_dot_product_fused_attention_overrideable": _refuse,
    "_grouped_mm": _refuse,
    "_scaled_grouped_mm": _refuse,
}
RULED = {getattr(torch.ops.aten, name): rule for name, rule in RULES.items() if hasattr(torch.ops.aten, name)}
"""What FlopCounterMode counts wrong. Fused operations, as 0: the CPU's attention is counted by torch's own rule for CUDA's,
others not at all. The gradient of a grouped convolution's weight, once a group."""


def flops(step: Pass, run: Run | None = None, *, training: bool = True) -> Flops:
    """FLOPs of *step* forward, and backward from the sum of its result. A checkpoint runs all of its function again."""
    forward, backward = (FlopCounterMode(display=False, custom_mapping=RULED) for _ in range(2))
    with set_checkpoint_early_stop(False):
        with forward:
            out = step(run or Run())
        if training:
            with backward:
                out.sum().backward()
    return Flops(forward.get_total_flops(), backward.get_total_flops())


# -- what autograd keeps --------------------------------------------------------------------------------------------------


class Saved(NamedTuple):
    """Bytes of the storages kept for the backward pass: all, and of that each layer's, the buffers', the loss's, the rest's."""

    bytes: int
    per_layer: tuple[int, ...]
    buffers: int
    loss: int
    rest: int


def place_of(x: Tensor) -> int:
    """What tells one storage from another while both live, on the meta device too, where none has an address."""
    return int(x.untyped_storage()._cdata)


def saved(step: Pass, weights: Iterable[Tensor], run: Run | None = None) -> Saved:
    """Bytes that *step* leaves behind: each storage once, at the place that keeps it first; weights left out, buffers in."""
    run = run or Run()
    skip = {place_of(weight) for weight in weights}
    kept: dict[int, tuple[torch.UntypedStorage, str]] = {}

    def pack(x: Tensor) -> Tensor:
        if place_of(x) not in skip:
            kept.setdefault(place_of(x), (x.untyped_storage(), run.places[-1] if run.places else ""))
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        _alive = step(run)
    buffers = {place_of(buffer): buffer.untyped_storage() for buffer in run.buffers.values()}
    sizes = dict.fromkeys([*run.places, "", "loss"], 0)
    for pointer, (storage, place) in kept.items():
        if pointer not in buffers:
            sizes[place] += storage.nbytes()
    shared, of_loss, rest = sum(buffer.nbytes() for buffer in buffers.values()), sizes.pop("loss"), sizes.pop("")
    return Saved(sum(sizes.values()) + shared + of_loss + rest, tuple(sizes.values()), shared, of_loss, rest)


# -- caches ---------------------------------------------------------------------------------------------------------------


def cache_bytes(caches: Caches) -> dict[str, int]:
    """Bytes that the caches hold, by kind; a tensor that two layers hold, once."""
    sizes = dict.fromkeys(("full", "window", "latent", "cross", "state"), 0)
    for owner, tensors in caches.held.items():
        sizes[caches.kinds[owner]] += sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    return sizes
