"""Speeds that public runs print: the bound holds, the factors are what the runs give, the printed FLOP/s have a convention."""

import re
from itertools import groupby
from math import ceil, isclose, prod
from statistics import median

import pytest

from blockcalc.comparisons import draw
from blockcalc.comparisons.measured_speed import ranks
from blockcalc.errors import BlockcalcError, InputError
from blockcalc.storage.optimizers import OPTIMIZERS
from blockcalc.tensor import Kernels, Step
from blockcalc.timing.calibration import GRID, Pass, Trial, fit
from blockcalc.timing.efficiency import MEASURED, PROFILES, PUBLISHED, Efficiency
from blockcalc.timing.machine import machine
from blockcalc.timing.measured import timed
from blockcalc.timing.roofline import Part, Peak, Time
from blockcalc.timing.serving import first_token, generate, next_token
from blockcalc.timing.training import training_step

TIMED = timed()
RUNS = [each.run for each in TIMED]
KINDS = ("training", "first token", "generation", "decode")


def name(run):
    return f"{run.row['title']}: {run.row['model']}, {run.row['printed']}"


def trials(side, kind=None):
    return [each.trial for each in TIMED if each.run.side == side and kind in (None, each.run.kind)]


def by_kind(side):
    return {kind: trials(side, kind) for kind in KINDS}


def off(side, profile, kind=None):
    """The median of |estimated/measured - 1|."""
    return median(abs(trial.error(profile)) for trial in trials(side, kind))


# -- the rows ----------------------------------------------------------------------------------------------------------


def test_rows_are_chosen_by_their_place():
    """Every k-th eligible row of a source, k the smallest odd number that leaves twelve at most."""
    for _, group in groupby(RUNS, lambda run: run.row["title"]):
        rows = [run.row for run in group]
        eligible, every = rows[0]["eligible"], rows[0]["every"]
        assert every == next(k for k in range(1, eligible + 1, 2) if ceil(eligible / k) <= 12)
        assert len(rows) == ceil(eligible / every)


def test_rows_are_many_and_of_many():
    for training, sources, machines in ((True, 8, 7), (False, 5, 3)):
        runs = [run for run in RUNS if (run.kind == "training") is training]
        assert len(runs) >= 20
        assert len({run.row["title"] for run in runs}) >= sources
        assert len({(run.setup.machine.name, run.setup.machine.bandwidth) for run in runs}) >= machines
    for run in RUNS:
        assert re.match(r"https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+$", run.row["source"]), name(run)


def test_a_source_and_a_model_are_on_one_side_and_each_side_has_every_kind():
    sides = {}
    for run in RUNS:
        assert sides.setdefault((run.row["title"], run.row["model"]), run.side) == run.side
    for side in ("fit", "test"):
        assert all(by_kind(side).values())


def test_batches_are_whole_microbatches():
    for run in RUNS:
        if run.kind == "training":
            assert run.microbatches * run.row["microbatch"] * run.setup.layout.dp == run.row["batch"], name(run)


# -- the bound and the estimate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", TIMED, ids=lambda one: name(one.run))
def test_no_run_beats_the_bound(one):
    assert one.lower < one.trial.measured
    assert one.lower < min(one.trial.seconds(profile) for profile in PROFILES.values())


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_trial_is_the_estimate(profile):
    """Serving alike; in training ranks of a pipeline may differ in which is the slowest, and gradients in what hides them."""
    for run, _, trial in TIMED:
        setup = run.setup._replace(efficiency=Efficiency.of(run.setup.machine, profile))
        row, found = run.row, trial.seconds(profile)
        batch, prompt, output = row["batch"], row.get("prompt"), row.get("output", 1)
        if run.kind == "training":
            right = training_step(
                run.model, setup, Step.train(row["microbatch"], row["seq"]), run.microbatches,
                kernels=Kernels(attention=row.get("attention", "flash"), norm="fused"), recompute=row.get("recompute", "none"),
                optimizer=OPTIMIZERS[row.get("optimizer", "adamw-mixed")],
            ).seconds  # fmt: skip
        elif run.kind == "generation":
            right = generate(run.model, setup, batch, prompt, output).seconds
        elif run.kind == "decode":
            right = next_token(run.model, setup, batch, prompt + output // 2).seconds
        else:
            right = first_token(run.model, setup, batch, prompt).seconds
        assert isclose(found, right, rel_tol=0.01 if run.kind == "training" else 1e-9), name(run)


# -- the fit -----------------------------------------------------------------------------------------------------------


def test_the_profile_measured_is_what_the_runs_of_the_side_fit_give():
    assert fit(by_kind("fit"), PUBLISHED)[1:5] == MEASURED[1:5]


def test_it_is_the_default_for_it_is_better_where_nothing_was_fitted():
    assert Efficiency.of(machine("h100-sxm")) == Efficiency.of(machine("h100-sxm"), MEASURED)
    assert off("test", MEASURED) < 0.10 < 0.25 < off("test", PUBLISHED)
    assert all(off("test", MEASURED, kind) < off("test", PUBLISHED, kind) for kind in KINDS)


def test_fitted_the_other_way_round_it_is_better_too():
    other = fit(by_kind("test"), PUBLISHED)
    assert off("fit", other) < off("fit", PUBLISHED)
    assert abs(other.product - MEASURED.product) <= 0.101


def test_a_fit_finds_the_factors_that_runs_were_made_with():
    truth = PUBLISHED._replace(product=0.55, memory=0.7, launch=4.5e-6)
    made = {kind: [trial._replace(measured=trial.seconds(truth)) for trial in trials("fit", kind)] for kind in KINDS}
    assert fit(made, PUBLISHED)[1:] == truth[1:]
    with pytest.raises(InputError, match="fit: decode: no trials"):
        fit(made | {"decode": []}, PUBLISHED)
    with pytest.raises(InputError, match="fit: no trials"):
        fit({}, PUBLISHED)


def test_a_pass_by_hand():
    """At half the product, half the memory and 1 s a kernel: 4 against 6, 10 against 2, a link of 3 s, one of 40 s beside."""
    parts = (
        Part("a", "forward", 4.0, 6.0, 1.0), Part("b", "forward", 10.0, 2.0, 2.0), Part("c", "forward", link=3.0),
        Part("d", "forward", link=40.0, hidden=True),
    )  # fmt: skip
    half = PUBLISHED._replace(product=0.5, memory=0.5, link=1.0, launch=1.0)
    one = Pass.of(Time(Peak(0, 0, 0), parts, 0, 0, 0), half)
    assert one.local(half) == 6 + 10 + 3
    assert one.seconds(half) == 19 + 3 + (40 - 19)
    assert one.local(half._replace(product=0.1)) == 20 + 50 + 3  # both wait for compute
    assert one.local(half._replace(product=1.0, memory=0.05, launch=0.0)) == 60 + 20  # both for memory
    trial = Trial(100.0, ((2, one),), data=30.0, behind=1, moved=4.0)
    assert trial.seconds(half) == 2 * 43 + 8 + (30 - 19)
    assert isclose(trial.error(half), 0.05)


def test_the_grid_is_coarse():
    assert prod(map(len, GRID)) < 10_000
    assert max(GRID.memory) < 0.9  # near what a benchmark of the memory attains


def test_efficiencies_say_whose_factors_they_are():
    notes = Efficiency.of(machine("a100-sxm-80")).notes()
    assert "Given by the profile measured." in notes[0] and "compute 0.61, memory 0.85" in notes[0]
    assert any("blockcalc table measured-speed" in note for note in notes[1:])
    own = Efficiency(compute=0.5).notes()
    assert "Given by hand" in own[0] and not any(note.startswith("compute:") for note in own)
    assert any(note.startswith("memory: 3.31 of 4.0 TB/s") for note in own)
    with pytest.raises(InputError, match="profile = 'mine', but there are published, measured"):
        Efficiency(profile="mine")


# -- FLOP/s and utilization as printed ---------------------------------------------------------------------------------

PRINTED = [run for run in RUNS if {"mfu", "tflops"} & run.row.keys()]


def half_a_digit(text):
    """Half of the last digit that is printed."""
    return 10 ** -len(text.partition(".")[2]) / 2


def reproduces(run, convention):
    """Whether the convention's FLOPs at the printed speed are what is printed: rounded, and the speed rounded or cut off."""
    row, field = run.row, "mfu" if "mfu" in run.row else "tflops"
    scale = 100 / row.get("peak", run.setup.machine.peak("bf16")) if field == "mfu" else 1e-12
    found = run.flops(convention) * run.rate(run.measured) * scale
    slack = half_a_digit(row[field]) + found * 2 * half_a_digit(row["printed"]) / float(row["printed"])
    return abs(found - float(row[field])) <= slack * 1.001


@pytest.mark.parametrize("run", PRINTED, ids=name)
def test_the_sources_convention_gives_what_it_prints(run):
    assert reproduces(run, run.row["convention"])


@pytest.mark.parametrize("convention,others", [
    ("palm", ("torch", "exact", "torchtitan", "kaplan")), ("torch", ("exact", "megatron-lm", "kaplan")),
    ("megatron-lm", ("torch", "palm", "torchtitan")),
])  # fmt: skip
def test_and_others_do_not(convention, others):
    runs = [run for run in PRINTED if run.row["convention"] == convention]
    for other in others:
        def gives(run, other=other):
            try:
                return reproduces(run, other)
            except BlockcalcError:
                return False
        assert sum(map(gives, runs)) < len(runs) / 2, other


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_shows_what_the_runs_have():
    *sources, listed, errors = draw("measured-speed")
    assert [(row[0], row[2]) for row in listed.rows] == [(table.title, len(table.rows)) for table in sources]
    rows = [dict(zip([column.name for column in table.columns], row, strict=True)) for table in sources for row in table.rows]
    for (run, _, trial), row in zip(TIMED, rows, strict=True):
        assert row["measured"] == float(run.row["printed"]) and row["side"] == run.side
        slower = row["estimate"] < row["measured"] if "tokens" in row["unit"] else row["estimate"] > row["measured"]
        assert slower == (row["error"] > 0) and (row["bound"] > row["measured"]) == ("tokens" in row["unit"])
        assert row["error"] == trial.error(MEASURED)
    held_out = next(row for row in errors.rows if row[:3] == ("measured", "test", "all"))
    assert held_out[3:5] == (len(trials("test")), off("test", MEASURED)) and held_out[6] > 0.95


def test_ranks():
    assert ranks([30, 10, 30, 20]) == [2.5, 0, 2.5, 1]
