"""Memory of public runs against what is computed for them."""

from pathlib import Path
from statistics import median

import pytest

from blockcalc import Step, load
from blockcalc.memory.frameworks import MEGATRON
from blockcalc.memory.held import Training, training
from blockcalc.memory.measured import measured
from blockcalc.parallel.layout import Layout
from blockcalc.storage.optimizers import ADAMW_MEGATRON
from blockcalc.tables import measured_memory
from blockcalc.tensor import Kernels

RUNS = measured()
EACH, MIDDLE = 0.05, 0.02


@pytest.mark.parametrize("run", [run for run in RUNS if run.beyond is None], ids=lambda run: f"{run.model}, {run.run}")
def test_a_run_is_computed_within_five_percent(run):
    assert abs(run.difference) < EACH


def test_half_of_the_runs_are_computed_within_two_percent():
    assert len(RUNS) >= 20
    assert median(abs(run.difference) for run in RUNS) < MIDDLE


def test_training_runs_are_computed_within_a_fifth_of_a_percent():
    """Their parts are all there: a wrong one of 1 GiB would be seen."""
    found = [abs(run.difference) for run in RUNS if run.source == "simumax"]
    assert len(found) == 17
    assert max(found) < 0.002


def test_latent_attention_and_mixtures_are_computed_within_three_percent_and_never_too_low():
    """What is known to be counted too much: the rows that experts hand back, a tensor a layer and microbatch."""
    found = [run.difference for run in RUNS if run.source == "simumax-mixtures"]
    assert len(found) == 6
    assert all(0 < share < 0.03 for share in found)


@pytest.mark.parametrize("part", ["activations", "working", "placeholders", "workspace", "sent", "master"])
def test_no_part_of_the_training_runs_can_be_missing(part):
    """Without one of them some run would be further off than any is."""
    worst = max(abs(run.difference) for run in RUNS if run.source == "simumax")
    having = [run for run in RUNS if run.source == "simumax" and run.computed.parts.get(part)]
    without = [abs((run.computed.bytes - run.computed.parts[part]) / run.measured - 1) for run in having]
    assert max(without) > (1 if part in ("workspace", "sent") else 3) * worst


@pytest.mark.parametrize("run", [run for run in RUNS if run.beyond is not None], ids=lambda run: run.model)
def test_what_is_not_computed_is_so_for_the_reason_given(run):
    """Two copies of the tied table while loading: the weights and one table more are what was printed."""
    config = load(run.model).embedding
    assert abs(run.difference) >= EACH
    assert abs((run.computed.parts["weights"] + 2 * config.v * config.d) / run.measured - 1) < 0.01


def test_the_page_links_to_every_source():
    page = (Path(__file__).resolve().parent.parent / "docs" / "tables" / "measured-memory.md").read_text(encoding="utf-8")
    assert all(f"[{one['title']}]({one['url']})" in page for one in measured_memory()["sources"].values())


def test_every_row_names_a_source_a_model_and_a_figure():
    data = measured_memory()
    for row in (*data["training"], *data["serving"]):
        assert data["sources"][row["source"]]["url"].startswith("https://github.com/")
        assert row["measured"] > 0
    assert all(one["what"] and one["why"] for one in data["left_out"])


@pytest.mark.parametrize("layers", [2, 3])
def test_placeholders_are_one_a_shape_of_what_is_multiplied_at_once(layers):
    """Queries, keys and values are one matrix, gate and up too: 4 shapes in bf16, and the head's, which queries' has too."""
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
    }  # fmt: skip
    d, kv, f = 64, 32, 96  # and v = d + 2·kv
    run = Training(step=Step.train(1, 8), kernels=Kernels(), optimizer=ADAMW_MEGATRON, framework=MEGATRON)
    (held,) = training(load(config), Layout(), run)
    assert held.parts["placeholders"] == 2 * ((d + 2 * kv) * d + d * d + 2 * f * d + d * f)
