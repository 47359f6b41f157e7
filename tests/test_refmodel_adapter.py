"""Low-rank adapters on frozen models against adapted twins: the gradients that are not needed, and what is then not kept."""

import pytest
import torch
from test_refmodel_models import DTYPES, MODELS, SOURCE, B, T

from blockcalc import Step, widths
from blockcalc.refmodel import measure
from blockcalc.refmodel.adapter import adapt
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.tensor import Adapters, Kernels

TARGETS = {
    "queries and values": ("q", "v"), "down": ("down",), "output": ("o",),
    "all": ("q", "k", "v", "o", "gate", "up", "down"),
}  # fmt: skip


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kernel", ["math", "flash"])
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", ["Llama", "alternating windows", "Mixtral with a dense first layer", "nanochat", "GPT-2"])
def test_an_adapted_model_costs_what_its_twin_costs(name, targets, kernel, recompute):
    adapters, dtype = Adapters(3, frozenset(TARGETS[targets])), "bf16"
    if name == "GPT-2":
        adapters = Adapters(3, adapters.targets - {"gate"})  # its feed-forward has none
    budget = MODELS[name].budget(Step.train(B, T, SOURCE), Kernels(attention=kernel), recompute, adapters)
    torch.manual_seed(0)
    twin = adapt(build(MODELS[name]), 3, adapters.targets).to(DTYPES[dtype])
    step = measure.loss(twin, B, T, SOURCE)
    counts, work, kept = budget.parameters(), budget.work(), budget.activations(widths(dtype))
    assert counts.total == measure.parameters(twin)
    assert counts.trainable == sum(weight.numel() for weight in twin.parameters() if weight.requires_grad)
    found = measure.flops(step, Run(kernel=kernel, recompute=recompute))
    assert (2 * work.forward, 2 * (work.backward + work.recompute)) == found
    saved = measure.saved(step, twin.parameters(), Run(kernel=kernel, recompute=recompute))
    assert (kept.bytes, kept.per_layer, kept.buffers, kept.loss, kept.rest) == saved
