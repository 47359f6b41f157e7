"""Experiments on whole blocks, mixtures and adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import nn

from ...catalogue import BLOCKS
from ..build import build
from ..context import Run
from ..measure import parameters
from .scores import jacobian_rank


def torch_layer() -> tuple[float, ...]:
    """Parameters of torch's own encoder layer, and of the twin without biases."""
    with torch.device("meta"):
        theirs = nn.TransformerEncoderLayer(512, 8, 2048)
    return parameters(theirs), parameters(build(BLOCKS["post-norm"].make(512, 8, 2048), 512))


def torch_transformer() -> tuple[float, ...]:
    """Parameters of torch's own Transformer base, without embeddings."""
    with torch.device("meta"):
        return (parameters(nn.Transformer(batch_first=True)),)


def same_shape() -> tuple[float, ...]:
    """Rows and entries of a block's output for 6 tokens 768 wide."""
    out = build(BLOCKS["pre-norm"].make(768, 12, 3072), 768)(torch.randn(1, 6, 768), Run())
    return tuple(out.shape[1:])


def decoder_layer() -> tuple[float, ...]:
    """Parameters that torch's decoder layer has more than its encoder layer, 512 wide."""
    with torch.device("meta"):
        return (parameters(nn.TransformerDecoderLayer(512, 8, 2048)) - parameters(nn.TransformerEncoderLayer(512, 8, 2048)),)


def distinct_experts() -> tuple[float, ...]:
    """Distinct experts that 8 tokens touch when each takes 2 of 8 at random: the mean of 20,000 draws."""
    chosen = torch.rand(20_000, 8, 8).topk(2).indices  # draws tokens 2
    return (float(torch.zeros(20_000, 8).scatter(1, chosen.flatten(1), 1.0).sum(1).mean()),)


def adapter_rank() -> tuple[float, ...]:
    """Degrees of freedom of B A, 7 to 5 through 2."""
    return (jacobian_rank(lambda w: w[:14].view(7, 2) @ w[14:].view(2, 5), torch.randn(24)),)


EXPERIMENTS: Mapping[str, Callable[[], tuple[float, ...]]] = MappingProxyType({
    "block-512": torch_layer, "transformer-base": torch_transformer, "block-768": same_shape, "same-blocks": decoder_layer,
    "moe-not-flops": distinct_experts, "lora": adapter_rank,
})  # fmt: skip
