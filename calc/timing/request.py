"""A request: a prompt that is read at once, and an answer that is written to it token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..dims import Dim
from ..model import Model
from ..tensor import Step


class Request(NamedTuple):
    """A prompt of so many tokens. *apart*: an encoder reads it, and the decoder begins with one token of its own."""

    prompt: Dim
    apart: bool = False

    @classmethod
    def to(cls, model: Model, prompt: Dim) -> Request:
        """As the model reads it: an encoder whose input has a length of its own, such as sound, reads no prompt."""
        source = model.encoder_embedding and model.encoder_embedding.length
        return cls(prompt, model.encoder is not None and source is None)

    def reading(self, batch: Dim) -> Step:
        """All of it at once, for logits of the last token."""
        step = Step.prefill(batch, 1, 1, self.prompt) if self.apart else Step.prefill(batch, self.prompt)
        return replace(step, head="last")

    def writing(self, batch: Dim, answered: Dim) -> Step:
        """One more token, when it sees so many of the answer."""
        return Step.decode(batch, 1 + answered, self.prompt) if self.apart else Step.decode(batch, self.prompt + answered)
