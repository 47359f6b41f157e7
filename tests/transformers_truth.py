"""What transformers and torch themselves count: models built on the meta device, run under torch's own counter.

Attention is the eager one and experts run as batched products, for the fused kernels of both are counted as nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel, masking_utils
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from blockcalc.refmodel import measure

# Both look at values, which a tensor on the meta device has none of. Neither changes the graph of a batch without padding.
masking_utils.find_packed_sequence_indices = lambda position_ids: None
PreTrainedModel.warn_if_padding_and_no_attention_mask = lambda self, input_ids, attention_mask: None

GROUPED = {torch.ops.aten.convolution_backward: measure.of_groups}


def config_of(config: dict[str, Any]) -> Any:
    """The config object that transformers makes of a config.json's fields."""
    return CONFIG_MAPPING[config["model_type"]].from_dict(config)


def build(config: dict[str, Any], name: str, device: str = "meta") -> Any:
    """The bf16 model of a config's fields, of the class called *name*, on the meta device or another."""
    with torch.device(device):
        model = getattr(transformers, name)._from_config(
            config_of(config), attn_implementation="eager", experts_implementation="batched_mm", dtype=torch.bfloat16
        )
    return model.eval()  # no dropout and no layer drop; gradients flow all the same


def parameters(model: Any) -> int:
    """Parameters, each object once."""
    return sum(weight.numel() for weight in model.parameters())


def active_parameters(model: Any) -> int:
    """All parameters but the experts, and of these those that one token uses: the chosen of as many as there are."""
    banks = [weight for name, weight in model.named_parameters() if ".experts." in name]
    own = getattr(model.config, "ffn_config", None)  # DBRX's, whose banks are one long matrix
    words = [word for word in ("num_experts_per_tok", "top_k_experts") if hasattr(model.config, word)]
    chosen = own.moe_top_k if own else getattr(model.config, words[0]) if words else None
    chosen = chosen[0] if isinstance(chosen, list) else chosen
    experts = own and own.moe_num_experts
    return parameters(model) - sum(bank.numel() - bank.numel() // (experts or len(bank)) * chosen for bank in banks)


def inputs(model: Any, b: int, t: int, source: int) -> dict[str, torch.Tensor]:
    """Inputs of a model, by the names of its forward: *t* tokens, and *source* of the encoder where there is one."""
    config = model.config
    two = "decoder_input_ids" in inspect.signature(model.forward).parameters
    tokens = _ids(model, b, source if two else t)
    given = {
        "input_ids": lambda: tokens,
        "input_features": lambda: _meta(b, config.num_mel_bins, 2 * config.max_source_positions),
        "pixel_values": lambda: _images(b, config),
    }[model.main_input_name]()
    images = {"pixel_values": _images(b, config.vision_config)} if hasattr(config, "vision_config") else {}
    return {model.main_input_name: given} | ({"decoder_input_ids": _ids(model, b, t)} if two else images)


def _images(b: int, config: Any) -> torch.Tensor:
    return _meta(b, config.num_channels, *_pair(config.image_size))


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _ids(model: Any, *shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long, device=model.device)


def _meta(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16, device="meta")


def forward_flops(model: Any, b: int, t: int, source: int) -> int:
    """FLOPs of a forward pass."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs(model, b, t, source))
    return counter.get_total_flops()


def training_flops(model: Any, b: int, t: int, source: int) -> tuple[int, int]:
    """FLOPs of a forward and of a backward pass from the sum of all that the model returns; the gradient of a grouped
    convolution's weight once, not once a group."""
    with FlopCounterMode(display=False, custom_mapping=GROUPED) as counter:
        returned = model(**inputs(model, b, t, source), **_without_cache(model)).values()
        forward = counter.get_total_flops()
        sum(out.sum() for out in returned if isinstance(out, torch.Tensor) and out.requires_grad).backward()
    return forward, counter.get_total_flops() - forward


def _without_cache(model: Any) -> dict[str, bool]:
    return {"use_cache": False} if {"use_cache", "cache"} & inspect.signature(model.forward).parameters.keys() else {}


class Served(NamedTuple):
    """Bytes of the cache after a prefill, and the FLOPs of the next token."""

    cache_bytes: int
    decode_flops: int


def serve(model: Any, b: int, t: int, source: int) -> Served:
    """A prefill of t tokens into a real cache, then one token more."""
    given = inputs(model, b, t, source)
    model.requires_grad_(False)  # of DBRX's experts, which are views, the counter would look for a gradient
    two = model.config.is_encoder_decoder
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache()) if two else DynamicCache(config=model.config)
    with torch.no_grad():
        if two:
            done = model(**given, cache=cache, use_cache=True)
            given = {"encoder_outputs": (done.encoder_last_hidden_state,), "decoder_input_ids": _ids(model, b, 1)}
        else:
            model(**given, cache=cache, use_cache=True)
            given = {"input_ids": _ids(model, b, 1)}
        held = _bytes(cache)
        with FlopCounterMode(display=False) as counter:
            model(**given, cache=cache, use_cache=True)
    return Served(held, counter.get_total_flops())


def _bytes(cache: Any) -> int:
    if isinstance(cache, EncoderDecoderCache):
        return _bytes(cache.self_attention_cache) + _bytes(cache.cross_attention_cache)
    held = [tensor for layer in cache.layers for tensor in _tensors(layer) if tensor is not None]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _tensors(layer: Any) -> Iterator[torch.Tensor | None]:
    """Keys and values, and the states of convolutions and recurrences."""
    yield from (getattr(layer, name, None) for name in ("keys", "values"))
    for name in ("conv_states", "recurrent_states"):
        yield from getattr(layer, name, {}).values()
