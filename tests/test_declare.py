"""Declarations: frozen dataclasses with shared methods."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest

from blockcalc.blocks.attention import Attention
from blockcalc.blocks.mlp import MLP, Activation, GatedMLP, silu
from blockcalc.blocks.norm import RMSNorm
from blockcalc.errors import InputError
from blockcalc.tensor import Step

GQA = Attention(n=15, k=3, h=22)


def test_a_declaration_is_a_dataclass():
    assert is_dataclass(Attention)
    assert [field.name for field in fields(GQA)][:4] == ["n", "k", "h", "w"]
    assert replace(GQA, w=5) == Attention(n=15, k=3, h=22, w=5)


def test_equal_ones_have_equal_hashes_whatever_the_order_they_are_written_in():
    same = Attention(h=22, causal=True, k=3, n=15)
    assert same == GQA
    assert hash(same) == hash(GQA)
    assert repr(same) == repr(GQA)
    assert Attention(n=15, k=5, h=22) != GQA
    assert len({GQA, same, replace(GQA, w=5)}) == 2


def test_equal_fields_of_two_types_are_not_equal():
    plain, gated = MLP(f=29, act=silu, bias=False), GatedMLP(f=29, act=silu, bias=False)
    assert vars(plain) == vars(gated)
    assert plain != gated
    assert len({plain, gated}) == 2


def test_it_prints_as_the_call_that_makes_it():
    assert eval(repr(GQA)) == GQA


@pytest.mark.parametrize("change", [lambda: setattr(GQA, "n", 30), lambda: setattr(GQA, "z", 1), lambda: delattr(GQA, "n")])
def test_it_is_frozen(change):
    with pytest.raises(FrozenInstanceError, match=r"cannot (assign to|delete) field"):
        change()
    assert GQA.n == 15


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda whole: pickle.loads(pickle.dumps(whole))])
def test_it_can_be_copied_and_pickled(twin):
    assert twin(GQA) == GQA


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Attention(n=15, k=3), "Attention: missing a required argument: 'h'"),
        (lambda: Attention(n=15, k=3, h=22, m=4), "Attention: got an unexpected keyword argument 'm'"),
        (lambda: Attention(n=15, k=3, m=4), "Attention: missing a required argument: 'h'"),
        (lambda: Attention(15, 3, 22), "Attention: too many positional arguments"),
        (lambda: Step(2, 3), "Step: missing a required argument: 's'"),
        (lambda: Step(2, 3, 3, b=2), "Step: multiple values for argument 'b'"),
    ],
)  # fmt: skip
def test_values_that_are_missing_twice_or_unknown_are_refused(call, says):
    with pytest.raises(TypeError, match=says):
        call()


def test_some_take_values_by_position():
    assert Activation("silu", "input") == Activation(keeps="input", name="silu")
    assert Step(2, 3, 5) == Step(b=2, t=3, s=5)


def test_post_init_refuses_a_size_wherever_it_comes_from():
    with pytest.raises(InputError, match="n = 14 is not divisible by k = 3"):
        replace(GQA, n=14)


def test_help_shows_the_fields():
    assert str(inspect.signature(RMSNorm)).startswith("(*, gain: 'bool' = True, offset")
    assert str(inspect.signature(Activation)).startswith("(name: 'str', keeps")
