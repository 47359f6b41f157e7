"""From a reading of BERT and its like to a Model."""

from __future__ import annotations

from ..blocks.attention import Attention
from ..blocks.wiring import Block, Residual
from ..model import Embedding, Layer, LMHead, MaskedLMHead, Model, Pooler, Stack
from .config import Reading
from .decoder import feed_forward
from .heads import class_of, head_of, labels


def encoder(r: Reading) -> Model:
    """Post-norm layers that see in both directions."""
    r.check_divides("d", "n")
    attention = Attention(n=r.n, k=r.n, h=r.d // r.n, causal=False, qkv_bias=True, o_bias=True)
    block = Block(branches=(
        Residual(name="attention", branch=attention, outer=r.norm),
        Residual(name="mlp", branch=feed_forward(r, r.f), outer=r.norm),
    ))  # fmt: skip
    output = LMHead(v=r.v, tied=r.tied, bias=True)
    head = head_of(r, MaskedLMHead(output=output, act=r.act), Pooler())
    if class_of(r) == "ForSequenceClassification":
        head = Pooler(v=labels(r))
    return Model(
        name=r.where,
        embedding=Embedding(v=r.v, d=r.d, position=r.position, types=r.types, norm=r.norm),
        stack=Stack(name="encoder", layers=(Layer(block=block, l=r.l),)),
        head=head,
    )
