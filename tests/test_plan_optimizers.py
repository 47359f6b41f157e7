"""Bytes of optimizers against the state tensors of the real ones, after a step on modules of several shapes."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.optimization import Adafactor as TransformersAdafactor

from blockcalc import InputError, Step, UndefinedError, load, trace
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.dims import symbol
from blockcalc.storage.formats import BF16, FP32, NF4
from blockcalc.storage.optimizers import (
    ADAFACTOR,
    ADAFACTOR_MOMENTUM,
    ADAFACTOR_TRANSFORMERS,
    ADAMW,
    ADAMW_8BIT,
    ADAMW_BF16,
    ADAMW_MEGATRON,
    ADAMW_MIXED,
    MUON,
    OPTIMIZERS,
    SGD,
    SGD_MOMENTUM,
    training_bytes,
)
from blockcalc.storage.precision import Precision, weight_bytes
from blockcalc.storage.weights import Weight, weights
from blockcalc.tensor import Adapters, Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import bitsandbytes

OURS = ("weights", "gradients", "accumulated", "master", "frozen")
SHAPES = [(1,), (17,), (4099,), (5, 3), (64, 64), (63, 65), (97, 130), (256, 1), (300, 512)]


def weight_of(shape):
    """A vector, or outputs by inputs."""
    if len(shape) == 1:
        return Weight(Tensor(("d",), shape, "vector"), "vector", ("d",))
    return Weight(Tensor(("d", "f"), shape[::-1], "matrix"), "linear", ("d",))


def states(parameters, *optimizers):
    """Bytes of each state by name after a step with gradients of the parameters' type; what is shared once."""
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    found, seen = {}, set()
    for optimizer in optimizers:
        optimizer.step()
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.data_ptr() not in seen:
                    seen.add(value.data_ptr())
                    found[name] = found.get(name, 0) + value.nbytes
    return found


def ours(optimizer, shapes):
    found = {}
    for weight in map(weight_of, shapes):
        for name, size in optimizer.nbytes(weight).items():
            if name not in OURS:
                found[name] = found.get(name, 0) + size
        found.update(optimizer.shared(weight))
    return found


REAL = {
    SGD: torch.optim.SGD,
    SGD_MOMENTUM: lambda p: torch.optim.SGD(p, momentum=0.9),
    ADAMW: torch.optim.AdamW,
    ADAFACTOR: torch.optim.Adafactor,
    ADAFACTOR_TRANSFORMERS: TransformersAdafactor,
    ADAFACTOR_MOMENTUM: lambda p: TransformersAdafactor(p, beta1=0.9),
    ADAMW_8BIT: bitsandbytes.optim.AdamW8bit,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("declared", REAL, ids=lambda optimizer: optimizer.name)
@pytest.mark.parametrize("shapes", [*([shape] for shape in SHAPES), SHAPES], ids=str)
def test_states_of_the_real_optimizers(declared, dtype, shapes):
    parameters = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    format = FP32 if dtype is torch.float32 else BF16
    made = replace(declared, weight=format, gradient=format)
    assert ours(made, shapes) == states(parameters, REAL[declared](parameters))
    parts = [made.nbytes(weight_of(shape)) for shape in shapes]
    assert sum(part["weights"] for part in parts) == sum(parameter.nbytes for parameter in parameters)
    assert sum(part["gradients"] for part in parts) == sum(parameter.grad.nbytes for parameter in parameters)


def test_adam_keeps_what_adamw_keeps():
    parameters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    assert ours(ADAMW, SHAPES) == states(parameters, torch.optim.Adam(parameters))


def test_bf16_weights_without_a_master_have_bf16_moments():
    parameters = [nn.Parameter(torch.randn(shape, dtype=torch.bfloat16)) for shape in SHAPES]
    assert ours(ADAMW_BF16, SHAPES) == states(parameters, torch.optim.AdamW(parameters))


def test_a_master_copy_and_its_moments():
    """An optimizer of fp32 copies of bf16 weights."""
    masters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    found = states(masters, torch.optim.AdamW(masters))
    del found["step"]  # flat groups count their steps once
    assert ours(ADAMW_MIXED, SHAPES) == ours(ADAMW_MEGATRON, SHAPES) == found
    assert sum(ADAMW_MIXED.nbytes(weight_of(s))["master"] for s in SHAPES) == sum(master.nbytes for master in masters)


def test_muon_has_matrices_and_adamw_the_rest():
    vectors, matrices = ([s for s in SHAPES if len(s) == n] for n in (1, 2))
    rest, hidden = ([nn.Parameter(torch.randn(shape)) for shape in shapes] for shapes in (vectors, matrices))
    real = torch.optim.AdamW(rest), torch.optim.Muon(hidden)
    assert ours(MUON, vectors + matrices) == states(rest + hidden, *real)
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([nn.Parameter(torch.randn(3, 4, 5))])


CONFIG = {
    "hidden_size": 42, "intermediate_size": 94, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 10, "vocab_size": 131, "tie_word_embeddings": False,
}  # fmt: skip


def named_parameters():
    return dict(LlamaForCausalLM(LlamaConfig(**CONFIG)).named_parameters())


@pytest.mark.parametrize("declared", REAL, ids=lambda optimizer: optimizer.name)
def test_states_of_a_whole_model(declared):
    parameters = list(named_parameters().values())
    budget = load({"model_type": "llama", **CONFIG}).budget(Step.train(1, 5))
    found = training_bytes(budget, replace(declared, weight=FP32, gradient=FP32))
    assert {name: size for name, size in found.items() if name not in OURS} == states(parameters, REAL[declared](parameters))
    assert found["weights"] == found["gradients"] == sum(parameter.nbytes for parameter in parameters)


def test_muon_of_a_whole_model():
    named = named_parameters()
    hidden, rest = ([p for name, p in named.items() if ("proj" in name) == wanted] for wanted in (True, False))
    real = torch.optim.AdamW(rest), torch.optim.Muon(hidden)
    budget = load({"model_type": "llama", **CONFIG}).budget(Step.train(1, 5))
    found = training_bytes(budget, MUON)
    assert {name: size for name, size in found.items() if name not in OURS} == states(hidden + rest, *real)


def test_bytes_a_weight_as_papers_count_them():
    """ZeRO, section 3.1: 2 + 2 + (4 + 4 + 4); with gradients in fp32 2 + 4 + 12; plain fp32 4 + 4 + 8."""
    budget = load("llama-3.1-8b").budget(Step.train(1, 2))
    n = budget.parameters().total
    assert sum(training_bytes(budget, ADAMW_MIXED).values()) == 16 * n
    assert sum(training_bytes(budget, ADAMW_MEGATRON).values()) == 18 * n
    assert sum(training_bytes(budget, replace(ADAMW_MIXED, accumulated=FP32)).values()) == 20 * n
    found = training_bytes(budget, ADAMW)
    assert sum(found.values()) - found["step"] == 16 * n


def test_sizes_may_be_symbols():
    d, f = symbol("D"), symbol("F")
    budget = trace(GatedMLP(f=f), Step.train(1, 2), d)
    assert sum(training_bytes(budget, ADAMW_MIXED).values()) == 16 * (3 * d * f)
    assert training_bytes(budget, ADAFACTOR)["row_var"] == 4 * (2 * f + d)
    with pytest.raises(InputError, match="8-bit states begin at 4096 elements"):
        training_bytes(budget, ADAMW_8BIT)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_weights_have_no_gradient_and_no_state(name):
    """QLoRA: an NF4 model that keeps only itself, and adapters that train like any other weight."""
    adapters = Adapters(r=4, targets=frozenset({"q", "v"}))
    budget = load("llama-3.2-1b").budget(Step.train(1, 2), adapters=adapters)
    found = training_bytes(budget, OPTIMIZERS[name], Precision.of(NF4))
    base = load("llama-3.2-1b").budget(Step.forward(1, 2))
    assert found.pop("frozen") == sum(weight_bytes(base, Precision.of(NF4)).values())
    small = budget.parameters().trainable
    assert found["weights"] == OPTIMIZERS[name].weight.width * small
    alone = {}
    for weight in weights(budget):
        if "lora" in weight.path:
            for part, size in OPTIMIZERS[name].nbytes(weight).items():
                alone[part] = alone.get(part, 0) + weight.tensor.copies * size
            alone.update(OPTIMIZERS[name].shared(weight))
    assert found == alone


def test_a_convolution_has_no_declared_factors():
    budget = load("vit-base").budget(Step.train(1, 197))
    with pytest.raises(UndefinedError, match=r"Adafactor of embedding\.patch"):
        training_bytes(budget, ADAFACTOR)
    assert sum(training_bytes(budget, ADAMW_MIXED).values()) == 16 * budget.parameters().total


def test_optimizers_have_names_and_sources():
    assert all(optimizer.name == name and optimizer.source for name, optimizer in OPTIMIZERS.items())
