"""What frameworks and libraries hold on a device besides a model's own tensors, each term from their code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..budget import Budget
from ..declare import declaration
from ..dims import Dim
from ..storage.formats import BF16, Format
from ..storage.weights import weights


@declaration
class Framework:
    """Terms that a framework adds in training.

    ``fused`` are the names of linears that are one matrix, and one product. ``placeholder``: gradients of weights are added
    into a buffer by the product itself, and autograd is handed a tensor of this type in their place, one for all matrices of
    a shape. ``keeps_sent``: the gradient that a pipeline stage sent back stays until the next one is made.
    """

    name: str
    source: str
    fused: tuple[frozenset[str], ...] = ()
    placeholder: Format | None = None
    keeps_sent: bool = False
    workspace: int = 0  # bytes for the libraries that it calls itself

    def placeholders(self, piece: Budget) -> dict[tuple[Dim, Dim], Dim]:
        """Bytes of the placeholder of each shape (outputs, inputs) of the piece's matrices."""
        if self.placeholder is None:
            return {}
        matrices: dict[object, tuple[Dim, Dim]] = {}
        for weight in weights(piece):
            if weight.tensor.grad and weight.kind in ("linear", "expert", "head"):
                owner, _, name = weight.path.rpartition(".")
                group = next((names for names in self.fused if name in names), name)
                rows, columns = matrices.get((owner, group, weight.columns), (0, weight.columns))
                matrices[owner, group, weight.columns] = rows + weight.rows, columns
        return {shape: shape[0] * shape[1] * self.placeholder.width for shape in matrices.values()}


TORCH = Framework(name="torch", source="eager PyTorch, which holds nothing besides")
MEGATRON = Framework(
    name="megatron",
    source="Megatron-LM, megatron/core/tensor_parallel/layers.py (gradient accumulation fusion) and "
           "megatron/core/pipeline_parallel/schedules.py (input_tensor_grad); TransformerEngine, "
           "transformer_engine/pytorch/module/base.py: get_dummy_wgrad, get_cublas_workspace_size_bytes (from Hopper on)",
    fused=(frozenset("qkv"), frozenset(("gate", "up"))), placeholder=BF16, keeps_sent=True,
    workspace=32 * 2**20,
)  # fmt: skip

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType({one.name: one for one in (TORCH, MEGATRON)})
"""The frameworks by name."""

CUBLAS: Mapping[str, int] = MappingProxyType({
    "ampere": 2 * 4096 * 1024 + 16 * 8 * 1024, "hopper": 8 * 4096 * 1024, "blackwell": 8 * 4096 * 1024,
})  # fmt: skip
"""Bytes of the workspace that torch gives a cuBLAS handle, by architecture: aten/src/ATen/cuda/CublasHandlePool.cpp,
parseChosenWorkspaceSize."""
