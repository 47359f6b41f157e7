"""Tensors, patterns and steps."""

import pytest

from blockcalc.errors import InputError
from blockcalc.tape import Tape
from blockcalc.tensor import Step, Tensor, parse


def test_a_pattern_says_what_is_summed_and_what_is_made():
    plan = parse("b t d -> b t n h")
    assert (plan.summed, plan.made) == (("d",), ("n", "h"))


@pytest.mark.parametrize("pattern", ["b t d", "b t t -> b t f", "... d -> b f"])
def test_a_pattern_that_cannot_be_read_is_refused_and_repeated(pattern):
    with pytest.raises(InputError, match="pattern"):
        parse(pattern)


def test_a_linear_on_other_axes_repeats_the_call():
    tape = Tape(Step.forward(2, 3))
    with pytest.raises(InputError, match=r"linear\('q', \(b=2 t=3 f=5\), 'b t d -> b t n'\)"):
        tape.linear("q", tape.tensor(("b", "t", "f"), (2, 3, 5)), "b t d -> b t n", n=7)


def test_a_shared_weight_of_another_shape_is_refused():
    tape = Tape(Step.forward(2, 3))
    table = tape.weight(("v", "d"), (11, 4), "table")
    with pytest.raises(InputError, match="the weight that it shares is"):
        tape.linear("output", tape.tensor(("b", "t", "d"), (2, 3, 5)), "b t d -> b t v", v=11, weight=table)


def test_a_view_shares_the_storage_of_its_base():
    x = Tensor(("b", "d"), (2, 3))
    view = Tape(Step.forward(1, 1)).view(x, ("d", "b"), (3, 2))
    assert view.storage is x
    with pytest.raises(InputError, match="no axis 'q'"):
        view["q"]


def test_the_context_includes_the_new_tokens():
    with pytest.raises(InputError, match="context 5 is shorter than the 7 new tokens"):
        Step.prefill(1, 7, 5)
    assert Step.decode(2, 9).t == 1
    assert Step.train(1, 7).training


@pytest.mark.parametrize("step", [lambda: Step.train(0, 5), lambda: Step.train(1, -5), lambda: Step.decode(1, 2**41)])
def test_an_impossible_step_is_refused(step):
    with pytest.raises(InputError, match="the step"):
        step()
