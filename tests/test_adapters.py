"""Low-rank adapters on a frozen model: parameters, FLOPs and saved bytes against torch modules written here."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from blockcalc import InputError, Step, flops, load, widths
from blockcalc.tensor import Adapters

CONFIG = {
    "model_type": "llama", "hidden_size": 42, "intermediate_size": 58, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 97, "attention_bias": False,
}  # fmt: skip


class Adapted(nn.Module):
    """W x + B A x with W frozen (Hu et al. 2021, arXiv:2106.09685, equation 3)."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def adapted(targets, rank):
    config = LlamaConfig(**{name: value for name, value in CONFIG.items() if name != "model_type"})
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager").requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if name.removesuffix("_proj") in targets:
                    setattr(part, name, Adapted(child, rank))
    return model


@pytest.mark.parametrize("targets", ["qv", "o", ("down",), ("q", "k", "v", "o", "gate", "up", "down"), ("k",), ("up",)])
def test_parameters_and_flops_of_frozen_and_adapted_weights(targets):
    """The first layer needs no gradient of its input, and so costs less than the others."""
    model = adapted(targets, 7)
    ids = torch.zeros(2, 11, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        loss = model(ids, use_cache=False).logits.sum()
        forward = counter.get_total_flops()
        loss.backward()
    budget = load(CONFIG).budget(Step.train(2, 11), adapters=Adapters(7, frozenset(targets)))
    found = flops(budget)
    assert budget.parameters().total == sum(p.numel() for p in model.parameters())
    assert budget.parameters().trainable == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (found.forward, found.backward) == (forward, counter.get_total_flops() - forward)


def test_a_frozen_feed_forward_keeps_less():
    """A frozen linear keeps nothing: what stays are the adapters' inputs and what the activation and the product keep."""
    d, f, r, rows = 13, 29, 3, 10
    up, down = (Adapted(nn.Linear(i, o, bias=False), r) for i, o in ((d, f), (f, d)))
    gate = nn.Linear(d, f, bias=False).requires_grad_(False)
    kept = {}

    def keep(tensor):
        if not isinstance(tensor, nn.Parameter) and not (tensor._base is not None and isinstance(tensor._base, nn.Parameter)):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(2, 5, d, requires_grad=True)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        down(nn.functional.silu(gate(x)) * up(x)).sum()
    from blockcalc import trace
    from blockcalc.blocks.mlp import GatedMLP

    budget = trace(GatedMLP(f=f), Step.train(2, 5), d, adapters=Adapters(r, frozenset({"up", "down"})))
    # x, A x of up; gate, silu(gate), up; the product, A x of down
    assert budget.activations(widths("fp32")).bytes == 4 * rows * (d + r + 3 * f + f + r) == sum(kept.values())


def test_adapters_shrink_what_is_kept_and_need_a_target_that_is_there():
    model = load(CONFIG)
    full, low = (model.budget(Step.train(2, 11), adapters=a) for a in (None, Adapters(7, frozenset("qv"))))
    assert low.activations(widths("bf16")).bytes < full.activations(widths("bf16")).bytes
    with pytest.raises(InputError, match="no linear is named w_q; here are down, gate"):
        model.budget(Step.train(2, 11), adapters=Adapters(7, frozenset({"w_q"})))


def test_one_layer_is_the_first_and_the_last():
    model = load(CONFIG, {"num_hidden_layers": 1})
    budget = model.budget(Step.train(2, 11), adapters=Adapters(7, frozenset("qv")))
    kept = budget.activations(widths("bf16"))
    assert len(kept.per_layer) == 1
    assert sum(kept.per_layer) + kept.buffers + kept.loss + kept.rest == kept.bytes
