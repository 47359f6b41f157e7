"""The measuring itself: what it counts, what it refuses, and that each declaration has a twin."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest
import torch
from torch import nn

import blockcalc.blocks
import blockcalc.heads
import blockcalc.model
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.position import RelativeBias
from blockcalc.refmodel import measure
from blockcalc.refmodel.attention import hidden_pairs
from blockcalc.refmodel.build import build
from blockcalc.refmodel.context import Run
from blockcalc.tape import visible_pairs

OWN_WAY = {"RelativeBias", "Layer"}  # made by the attention around it, and by the stack


def declarations():
    """Every component type of the package: a frozen dataclass with a trace."""
    names = [found.name for found in pkgutil.iter_modules(blockcalc.blocks.__path__)]
    for module in (*(importlib.import_module(f"blockcalc.blocks.{name}") for name in names), blockcalc.heads, blockcalc.model):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__ and name not in ("Activation", *OWN_WAY):
                yield kind


@pytest.mark.parametrize("kind", list(declarations()), ids=lambda kind: kind.__name__)
def test_each_declaration_has_a_twin_of_its_own_in_the_file_of_the_same_name(kind):
    twin = build.dispatch(kind)
    assert twin is not build.dispatch(object)
    file = importlib.import_module(kind.__module__.replace("blockcalc.", "blockcalc.refmodel.").replace(".blocks", ""))
    assert issubclass(getattr(file, kind.__name__), nn.Module)


def test_what_has_no_twin_is_refused():
    with pytest.raises(NotImplementedError, match="RelativeBias has no twin"):
        build(RelativeBias(m=23, n=6), 22)


@pytest.mark.parametrize("t, s", [(7, 7), (1, 7), (3, 11), (11, 11)])
@pytest.mark.parametrize("how", [{}, {"window": 1}, {"window": 3}, {"window": 19}, {"chunk": 2}, {"chunk": 5}, {"chunk": 23}])
def test_visible_pairs_are_those_that_the_mask_lets_through(t, s, how):
    hidden = hidden_pairs(s, t, s, **how)
    assert visible_pairs(t, s, causal=True, **how) == (~hidden).sum()


@pytest.mark.parametrize("window", [None, 1, 3, 19])
def test_visible_pairs_both_ways_are_those_that_the_mask_lets_through(window):
    hidden = hidden_pairs(11, 11, 11, causal=False, window=window)
    assert visible_pairs(11, 11, causal=False, window=window) == (~hidden).sum()


def test_a_storage_is_counted_once_and_a_weight_not_at_all():
    """Two linears on x (2 3 5) keep x once, 4 bytes an entry; the product of their results (2 3 7) keeps both."""
    one, two = nn.Linear(5, 7), nn.Linear(5, 7)
    x = torch.randn(2, 3, 5)
    saved = measure.saved(lambda run: one(x) * two(x), [*one.parameters(), *two.parameters()])
    assert saved == (4 * 2 * 3 * (5 + 7 + 7), (), 0, 0, 4 * 2 * 3 * (5 + 7 + 7))


def test_a_buffer_counts_whether_it_is_kept_or_not():
    def step(run):
        return run.buffer("table", lambda: torch.ones(7, dtype=torch.bfloat16)).sum()

    assert measure.saved(step, []) == (14, (), 14, 0, 0)


def test_fused_attention_is_counted_where_torch_counts_nothing():
    """q, k, v (2 3 5 8): 2 FLOPs · 2·3 heads · 5·5 pairs · (8 + 8) forward, two and a half times as much backward."""
    x = torch.randn(2, 3, 5, 8, requires_grad=True)
    found = measure.flops(lambda run: nn.functional.scaled_dot_product_attention(x, x, x))
    assert found == (2 * 6 * 25 * 16, 5 * 6 * 25 * 16)


def test_a_grouped_matmul_is_refused_rather_than_counted_as_nothing():
    a, b = torch.randn(8, 16, dtype=torch.bfloat16), torch.randn(2, 16, 16, dtype=torch.bfloat16)
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="counts 0"):
        measure.flops(lambda run: torch._grouped_mm(a, b, offs=offsets), training=False)


def test_a_checkpoint_runs_all_of_its_function_again():
    """(2 3 5) through a 5 x 7 matrix: 210 multiply-adds forward; backward as many again, and as many for each gradient."""
    linear, x = nn.Linear(5, 7), torch.randn(2, 3, 5, requires_grad=True)
    found = measure.flops(lambda run: run.again("full", linear, x), Run(recompute="full"))
    assert found == (2 * 210, 3 * 2 * 210)


def test_absorbed_matrices_give_what_expanded_keys_and_values_give():
    torch.manual_seed(0)
    expanded, absorbed = (build(MLA(n=5, c=13, q=17, p=9, r=4, u=7, absorbed=a), 22).double() for a in (False, True))
    absorbed.load_state_dict(expanded.state_dict())
    x = torch.randn(2, 7, 22, dtype=torch.double)
    torch.testing.assert_close(absorbed(x, Run()), expanded(x, Run()))
