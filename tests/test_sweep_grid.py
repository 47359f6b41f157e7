"""Axes and boxes: what is written is what is walked, every point once and in order."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockcalc import InputError
from blockcalc.sweep.axes import axis
from blockcalc.sweep.boxes import Boxes


@pytest.mark.parametrize("text,values", [
    ("b=3,1,2", [3, 1, 2]), ("d=64:256:64", [64, 128, 192, 256]), ("s=2^10:2^13", [1024, 2048, 4096, 8192]),
    ("l=7:9", [7, 8, 9]), ("s=1,2^3:2^5,100", [1, 8, 16, 32, 100]), ("dtype=bf16,fp8", ["bf16", "fp8"]),
    ("sp=true,false", [True, False]), ("zero=0,3", [0, 3]),
])  # fmt: skip
def test_an_axis_is_a_list_a_range_or_powers(text, values):
    found = axis(text)
    assert list(found) == values and len(found) == len(values)
    if found.sizes:
        for start, stop in product(range(len(values)), range(1, len(values) + 1)):
            if start < stop:
                assert found.between(start, stop).tolist() == values[start:stop]


@pytest.mark.parametrize("text", ["b", "b=", "=1", "b=1,,2", "b=2:1", "b=1:10:4", "b=1:2:0", "b=2^3:3^4", "b=1,1", "s=1:2^41"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(InputError, match="--over"):
        axis(text)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40))
def test_boxes_hold_every_point_once_and_in_order(shape, most):
    boxes = Boxes.of(shape, most)
    found = [point for number in range(boxes.total) for point in product(*boxes.box(number))]
    assert found == list(product(*map(range, shape)))
    sizes = [prod(map(len, boxes.box(number))) for number in range(boxes.total)]
    assert max(sizes) == boxes.points <= max(most, 1)
    assert [boxes.first(number) for number in range(boxes.total + 1)] == [sum(sizes[:n]) for n in range(boxes.total + 1)]
