"""Whole models: an embedding, one or two stacks, a head. Twins of ``blockcalc.model``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .context import Run
from .embedding import Frames, LayerEmbedding, Patches
from .position import LearnedPositions, RelativeBias, Sinusoidal


class Embedding(nn.Module):
    """Token vectors, plus positions and token types where there are such tables, then a norm.

    Narrow tables are projected to the model's width, at once or behind the norm: ALBERT, Lan et al. 2020,
    arXiv:1909.11942, section 3.1.
    """

    def __init__(
        self, token: nn.Parameter, *, project: nn.Linear | None = None, project_last: bool = False,
        position: LearnedPositions | Sinusoidal | None = None, types: nn.Parameter | None = None, norm: nn.Module | None = None,
        smear: nn.Module | None = None, layers: LayerEmbedding | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.token = token  # v i
        self.project, self.project_last = project, project_last  # i d
        self.position = position  # m d
        self.types = types
        self.norm, self.smear, self.layers = norm, smear, layers

    def draw(self, b: int, t: int) -> Tensor:
        """Random tokens (b t) that every table has a row for."""
        tables = [self.token, *([] if self.layers is None else [self.layers.table])]
        return torch.randint(min(map(len, tables)), (b, t))

    def look_up(self, ids: Tensor) -> Tensor:
        """The rows (b t i) of the tokens ids (b t)."""
        return F.embedding(ids, self.token)

    def forward(self, ids: Tensor, run: Run) -> Tensor:
        """The vectors (b t d) of the tokens ids (b t), all of type 0."""
        run.tokens = ids
        x = self.look_up(ids)  # b t i
        if self.project is not None and not self.project_last:
            x = self.project(x)  # b t d
        if isinstance(self.position, Sinusoidal):
            x = x + self.position(ids.size(1), x, run)
        elif self.position is not None:
            x = x + self.position(ids.size(1), run)
        if self.types is not None:
            x = x + F.embedding(torch.zeros_like(ids), self.types)
        if self.norm is not None:
            x = self.norm(x)
        if self.smear is not None:
            x = self.smear(x, run)
        if self.layers is not None:
            run.layer_inputs = self.layers(x, run)  # b t l i
        return run.drop(self.project(x) if self.project is not None and self.project_last else x)  # b t d


class Stack(nn.Module):
    """Layers one after the other and a norm behind the last. The position biases that layers share are made first."""

    def __init__(
        self, name: str, layers: list[nn.Module], *, norm: nn.Module | None = None, project: nn.Linear | None = None,
        enter: nn.Module | None = None, exit: nn.Module | None = None, biases: list[RelativeBias] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.name = name
        self.biases = nn.ModuleList(biases or [])
        self.layers = nn.ModuleList(layers)
        self.enter, self.exit = enter, exit
        self.norm = norm
        self.project = project  # d i

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """x (b t d) to (b t d), or to (b t i)."""
        for bias in self.biases:
            bias(x.size(1), run.start + x.size(1), run)
        run.entered = x
        x = x if self.enter is None else self.enter(x, run)
        for number, layer in enumerate(self.layers):
            run.places.append(f"{self.name}.{number}")
            x = run.again("full", lambda x, *_, layer=layer: layer(x, run), x, *run.closed_over(layer))
            if number == len(self.layers) // 2:
                run.middle = x
        run.places.append("")
        if self.exit is not None:
            x = self.exit(x, run)
        x = x if self.norm is None else self.norm(x)
        return x if self.project is None else self.project(x)


class LMHead(nn.Module):
    """Logits over v outputs. Tied, the token table is the matrix (Press and Wolf 2017, arXiv:1608.05859)."""

    def __init__(
        self, d: int, v: int, *, tied: bool, bias: bool = False, cap: float | None = None, used: int | None = None,
        wide: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.used, self.wide = used, wide
        self.matrix = None if tied else nn.Parameter(torch.randn(v, d) * 0.02)  # v d
        self.bias = nn.Parameter(torch.zeros(v)) if bias else None  # v
        self.cap = cap

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """x (b t d) to (b t v)."""
        logits = F.linear(x, table if self.matrix is None else self.matrix, self.bias)  # b t v
        logits = logits if self.used is None else logits[..., : self.used]
        logits = logits.float() if self.wide else logits
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


class Model(nn.Module):
    """An embedding, a stack, a head; an encoder-decoder has a second stack whose output the first attends to.

    Predictors of further tokens, one behind the other, share the table and the head: DeepSeek-V3, arXiv:2412.19437,
    section 2.2.
    """

    def __init__(
        self, embedding: Embedding | Patches, stack: Stack, head: nn.Module | None,
        encoder_embedding: Embedding | Frames | Patches | None = None, encoder: Stack | None = None,
        predictors: list[nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder_embedding, self.encoder = encoder_embedding, encoder
        self.embedding, self.stack, self.head = embedding, stack, head
        self.predictors = nn.ModuleList(predictors or [])

    def forward(self, ids: Tensor, run: Run, source: Tensor | None = None, *, last: bool = False) -> Tensor:
        """The logits (b t v) of the tokens ids (b t), of the last alone if so asked. A cache makes *source* (b m) needless
        after the first call."""
        return self.outputs(ids, run, source, last=last)[0]

    def outputs(self, ids: Tensor, run: Run, source: Tensor | None = None, *, last: bool = False) -> list[Tensor]:
        """The logits of the next token, and of each further one that is predicted."""
        if self.encoder is not None and self.encoder_embedding is not None and source is not None:
            inner = run.of_source()
            run.memory = self.encoder(self.encoder_embedding(source, inner), inner)  # b m d
        x = self.stack(self.embedding(ids, run), run)  # b t d
        outputs = [self.output(x, last, run)]
        for number, predictor in enumerate(self.predictors, 1):
            assert isinstance(self.embedding, Embedding)
            x = predictor(x, self.embedding.look_up(ids.roll(-number, 1)), run)  # b t d
            outputs.append(self.output(x, last, run))
        if run.caches is not None:
            run.caches.length += ids.size(1)
        return outputs

    def output(self, x: Tensor, last: bool, run: Run) -> Tensor:
        """The logits of x (b t d), or x where there is no head."""
        if self.head is None:
            return x
        given = run.memory if "memory" in getattr(self.head, "reads", ()) else getattr(self.embedding, "token", None)
        logits: Tensor = self.head(x[:, -1:] if last else x, given)
        return logits
