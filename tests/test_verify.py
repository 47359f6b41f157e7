"""``blockcalc verify``: every block of the catalogue has a twin that agrees, and a difference is told."""

import json

import pytest
from click.testing import CliRunner

from blockcalc import UndefinedError, load
from blockcalc.catalogue import BLOCKS
from blockcalc.cli import main
from blockcalc.refmodel.verify import BOUND, LARGEST, SMALLEST, draws_for, verify_block, verify_model
from blockcalc.rules.linear import Linear


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_has_a_twin_and_agrees_with_it(block):
    """At one draw a quantity, which finds what is missing; ``verify --all`` makes as many as prove it."""
    verdicts = list(verify_block(block, seed=1, most=1))
    assert {"parameters", "FLOPs forward math", "saved bf16 math", "cache bf16 minimal"} <= {v.quantity for v in verdicts}
    assert [v for v in verdicts if not v.equal] == []


@pytest.mark.parametrize("degree", range(1, LARGEST - SMALLEST + 1))
def test_the_draws_bring_the_chance_below_the_bound(degree):
    box, draws = LARGEST - SMALLEST + 1, draws_for(degree)
    assert (degree / box) ** draws < BOUND <= (degree / box) ** (draws - 1)


def test_a_degree_that_the_box_cannot_tell_is_refused():
    with pytest.raises(UndefinedError, match="needs a box of more than"):
        draws_for(LARGEST)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "mixtral-8x7b", "t5-v1.1-xl"])
def test_a_large_model_is_compared_on_the_meta_device(name):
    assert [v for v in verify_model(load(name)) if not v.equal] == []


def test_a_difference_is_shown_and_ends_with_exit_code_1(monkeypatch):
    right = Linear.lookup
    other = ("v", "d"), (2, 2)
    monkeypatch.setattr(Linear, "lookup", lambda self, name, ids, table: right(self, name, ids, self.weight(*other)))
    result = CliRunner().invoke(main, ["verify", "learned-positions", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["equal"] is False


def test_verify_says_what_it_did():
    result = CliRunner().invoke(main, ["verify", "rmsnorm", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)["verify"]
    assert all(0 < one["bound"] < BOUND and one["draws"] >= 1 and one["equal"] for one in found)


@pytest.mark.parametrize("words", [["verify"], ["verify", "mlp", "--all"], ["verify", "nothing"]])
def test_verify_refuses_nothing_and_too_much(words):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
