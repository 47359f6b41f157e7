"""Predicting more than the next token."""

from __future__ import annotations

from typing import Any

from ..declare import declaration
from ..tape import Tape
from ..tensor import Tensor
from .norm import LayerNorm, RMSNorm


@declaration
class MultiTokenPrediction:
    """block([norm(x); norm(Emb(tokens one further on))] M): a module that predicts one token more than what made x.

    DeepSeek-V3, arXiv:2412.19437, section 2.2, equations 21 and 22; its logits and loss (equations 23 and 24) are of the
    main model's head, its vectors of the main model's table. Parameters 2d + 2d² and the block's. It runs at all t
    positions, of which the paper's kth module leaves out the last k.
    """

    block: Any  # a component
    norm: LayerNorm | RMSNorm = RMSNorm()
    last: LayerNorm | RMSNorm | None = None  # behind the block, before the head: the published weights have one

    def trace(self, tape: Tape, x: Tensor, table: Tensor | None = None) -> Tensor:
        """x (b t d) to (b t d), beside vectors of a token table (v d)."""
        if table is None:
            ahead = tape.like(x)
        else:
            ids = tape.tensor(("b", "t"), x.sizes[:2], "index", grad=False)
            ahead = tape.lookup("token", ids, table)
        stream, token = tape.call("stream_norm", self.norm, x), tape.call("token_norm", self.norm, ahead)
        both = tape.view(pair := tape.concat("concat", stream, token), ("b", "t", "e"), pair.sizes)
        x = tape.call("block", self.block, tape.linear("project", both, "b t e -> b t d", d=x["d"]))
        return x if self.last is None else tape.call("norm", self.last, x)
