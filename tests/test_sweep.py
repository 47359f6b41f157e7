"""Grids: every row is the Budget of its configuration or says why not, and none is lost or doubled, whatever happens."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from blockcalc import InputError, load
from blockcalc.breakdown import How, measure, step_of
from blockcalc.cli import main
from blockcalc.errors import BlockcalcError
from blockcalc.parallel.layout import Layout
from blockcalc.parallel.shard import fully_sharded, shard
from blockcalc.parallel.stages import stages
from blockcalc.sweep.evaluate import rows
from blockcalc.sweep.grid import Grid
from blockcalc.sweep.parts import Parts
from blockcalc.sweep.run import sweep
from blockcalc.sweep.spec import spec
from blockcalc.tensor import Kernels

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="blockcalc[sweep] is not installed: no pyarrow")
needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="blockcalc[sweep] is not installed: no dask")


def lines(*models, over, quantities=("params",), **rest):
    """All rows of a small grid."""
    grid = Grid(spec(models, over, quantities, **rest))
    return [line for block in range(grid.blocks) for line in rows(grid, block).lines()]


# -- every row is a Budget ---------------------------------------------------------------------------------------------


def truth(line, quantity):
    """The number of a row, or the refusal, from the model itself on a layout of numbers: no closed form, no symbol."""
    how = How(
        line.get("dtype", "bf16"), "torch", line.get("policy", "minimal"), Kernels(attention=line.get("attention", "math")),
        line.get("recompute", "none"),
    )  # fmt: skip
    ranks = {name: line.get(name, 1) for name in ("tp", "cp", "dp", "ep", "pp")}
    layout = Layout(**ranks, etp=line.get("etp"), sequence=line.get("sp") == "true", zero=line.get("zero", 0))
    model = load(line["model"], {field: line[field] for field in ("num_hidden_layers", "hidden_size") if field in line})
    step = step_of(quantity, line.get("b", 1), line.get("t", 2048), line.get("s", 8192))
    found = []
    for piece in stages(model, layout) if layout.pp > 1 else [model]:
        part = shard(piece.budget(step, how.kernels, how.recompute), layout)
        found.append(_held(part, layout) if layout.zero == 3 and quantity == "params" else measure(part, quantity, how))
    return max(found)


def _held(part, layout):
    owners = {}
    for line in part.lines:
        for weight in line.weights:
            owners.setdefault(weight, line)
    ranks = {True: layout.expert_replicas, False: layout.replicas}
    return sum(w.copies * fully_sharded(line, w, ranks[line.bank != 1]).numel for w, line in owners.items())


@pytest.mark.parametrize("models,over,quantities", [
    (["llama-3.1-8b", "gpt2"], ["tp=1,2,3,12,16", "pp=1,2,3", "sp=true,false", "b=1,3", "t=96,4096", "s=512,8192"],
     ["params", "kv", "prefill_flops", "activations"]),
    (["deepseek-v3"], ["tp=1,2", "ep=1,2,7,8", "dp=1,8", "etp=1,2", "sp=true", "t=128,4096"],
     ["params", "train_flops", "active"]),
    (["mixtral-8x7b"], ["ep=1,2,8", "dp=1,8", "pp=1,4", "zero=0,3", "attention=math,flash"], ["params", "activations"]),
    (["llama-3.1-8b"], ["tp=1,2", "cp=1,2,3", "dp=1,3", "zero=0,3", "t=96,4096", "attention=flash,math"],
     ["params", "flops", "kv"]),
    (["gemma-2-9b"], ["tp=1,4", "pp=1,2", "policy=minimal,transformers,unified", "dtype=fp8,bf16", "s=100,5000,100000"],
     ["kv", "kv_per_token"]),
    (["llama-3.1-8b"], ["num_hidden_layers=1,5", "hidden_size=128,130", "dtype=fp32,bf16", "s=1,7"], ["params", "kv"]),
])  # fmt: skip
def test_random_rows_are_the_budgets_of_their_configurations(models, over, quantities):
    every = lines(*models, over=over, quantities=quantities)
    seen = set()
    for line in random.Random(7).sample(every, min(40, len(every))):
        for quantity in quantities:
            try:
                wanted = truth(line, quantity)
            except BlockcalcError:
                wanted = None
            if quantity == "active" and line["ep"] != 1:
                wanted = None  # a token's experts lie on several ranks, which the sum over lines does not say
            assert line[quantity] == wanted, (quantity, line)
            assert wanted is not None or line["refused"]
            seen.add(wanted is None)
    assert False in seen


def test_a_family_with_tied_letters_is_the_model_of_such_a_config():
    found = lines(
        "llama", over=["d=96,128", "n=4,6", "l=2,3", "v=100"], ties=["h=d/n", "k=n", "f=8d/3"], quantities=["params", "flops"]
    )
    refused = 0
    for line in found:
        whole = line["d"] % line["n"] == 0 and 8 * line["d"] % 3 == 0
        assert (line["refused"] is None) == whole
        if not whole:
            refused += 1
            assert line["params"] is None and "is no whole number" in line["refused"]
            continue
        model = load({
            "model_type": "llama", "hidden_size": line["d"], "num_attention_heads": line["n"], "num_key_value_heads": line["n"],
            "num_hidden_layers": line["l"], "vocab_size": 100, "intermediate_size": 8 * line["d"] // 3,
        })  # fmt: skip
        assert line["h"] == line["d"] // line["n"] and line["f"] == 8 * line["d"] // 3
        assert line["params"] == model.budget(step_of("params", 1, 2048, 2048)).parameters().total
        assert line["flops"] == 2 * model.budget(step_of("flops", 1, 2048, 2048)).work().forward
    assert 0 < refused < len(found)


def test_sizes_that_no_model_can_have_are_refused_row_by_row():
    heads = {(line["n"], line["k"]): line["refused"] for line in lines("llama-3.1-8b", over=["n=6,8", "k=2,3,4"])}
    assert {pair for pair, why in heads.items() if why} == {(6, 4), (8, 3)}
    assert heads[6, 4] == "Attention: n is not divisible by k"
    experts = {(line["e"], line["a"]): line["refused"] for line in lines("mixtral-8x7b", over=["e=1,2,4", "a=2,3"])}
    assert {pair for pair, why in experts.items() if why} == {(1, 2), (1, 3), (2, 3)}


def test_a_window_of_one_which_transformers_caches_whole_is_refused_as_another_closed_form():
    for line in lines("gemma-2-9b", over=["policy=minimal,transformers", "w=1,2,5", "s=4"], quantities=["kv"]):
        model = load("gemma-2-9b", {"sliding_window": line["w"]})
        wanted = measure(model.budget(step_of("kv", 1, 1, 4)), "kv", How(policy=line["policy"]))
        assert line["kv"] == (None if (line["policy"], line["w"]) == ("transformers", 1) else wanted)


# -- exact or refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest,contexts", [(22, 1), (36, 1), (22, 600)])
def test_numbers_are_exact_up_to_int64_and_refused_past_it(largest, contexts):
    """6·B·T·D·F at the edge, and far past it: rows below 2⁶³ are exact, rows above say so, and both stand in one block."""
    over = [f"d=2^20:2^{largest}", "f=3,2^15", "b=2^10", "t=2^14", f"s=1:{contexts}"]
    found = lines("gated-mlp", over=over, quantities=["flops"])
    for line in found:
        exact = 6 * line["b"] * line["t"] * line["d"] * line["f"]
        assert line["flops"] == (exact if exact < 2**63 else None)
        assert line["refused"] == (None if exact < 2**63 else "flops is past 2^63 - 1")
    assert len({line["refused"] for line in found}) == 2


def test_a_refused_quantity_leaves_the_others_of_its_row():
    (line,) = lines("llama-3.1-8b", over=["cp=2", "attention=flash"], quantities=["params", "kv"])
    assert line["params"] == load("llama-3.1-8b").budget(step_of("params", 1, 1, 1)).parameters().total
    assert line["kv"] is None and line["refused"].startswith("kv: context parallelism")


def test_conditions_keep_the_rows_that_satisfy_them_and_those_that_cannot_tell():
    every = lines("llama-3.1-8b", over=["tp=1,3,8", "s=2^10:2^14", "b=1,4"], quantities=["kv", "params"])
    kept = lines("llama-3.1-8b", over=["tp=1,3,8", "s=2^10:2^14", "b=1,4"], quantities=["kv", "params"],
                 where=["kv <= 1/2*GiB", "b*s < 20000", "devices != 1"])  # fmt: skip
    wanted = [
        line for line in every
        if line["tp"] != 1 and line["b"] * line["s"] < 20000 and (line["refused"] or line["kv"] <= 2**29)
    ]  # fmt: skip
    assert kept == wanted and 0 < len(kept) < len(every)
    sound = lines("llama-3.1-8b", over=["tp=1,3,8", "s=2^10:2^14", "b=1,4"], quantities=["kv", "params"], valid=True)
    assert sound == [line for line in every if not line["refused"]]


@pytest.mark.parametrize("condition,kept", [
    ("d*d*d <= 8", [2]), ("d*d*d > 8*d", [2**19, 2**22, 2**30]), ("0 - d*d*d < d", None),
])  # fmt: skip
def test_a_condition_past_int64_is_decided_all_the_same(condition, kept):
    found = lines("gated-mlp", over=["d=2,2^19,2^22,2^30"], where=[condition])
    assert [line["d"] for line in found] == ([2, 2**19, 2**22, 2**30] if kept is None else kept)


def test_blocks_of_any_size_hold_the_same_rows():
    over = ["tp=1,2,3", "dp=1,2", "d=64:640:64", "b=1,2,3", "s=1:7"]
    every = [lines("llama-3.1-8b", over=over, quantities=["params", "kv"], block=block) for block in (1, 7, 64, 2**18)]
    assert every[0] == every[1] == every[2] == every[3]
    assert [line["point"] for line in every[0]] == list(range(3 * 2 * 10 * 3 * 7))


def test_a_grid_of_a_million_million_points_takes_no_more_memory_than_one_of_a_million():
    peaks = []
    for contexts in (10**4, 10**10):
        grid = Grid(spec(["llama-3.1-8b"], ["tp=1,2", "b=1:50", f"s=1:{contexts}"], ["kv", "params"], block=2**15))
        assert grid.points == 100 * contexts
        room = {}
        rows(grid, 0, room)  # what is compiled once is compiled
        tracemalloc.start()
        for block in (0, grid.blocks // 2, grid.blocks - 1):
            found = rows(grid, block, room)
            assert found.columns["point"].values[[0, -1]].tolist() == [grid.span(block)[0], grid.span(block)[-1]]
            last = {name: column.only(slice(-1, None)).cells()[0] for name, column in found.columns.items()}
            assert last["kv"] == truth(last, "kv")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 2**20


# -- files -------------------------------------------------------------------------------------------------------------

SMALL = spec(["gated-mlp"], ["d=8:400:8", "f=1:40", "b=1,2"], ["params", "flops"], ties=["t=3d"], block=100)
SLOW = ["sweep", "gated-mlp", "--over", "d=8:400:8", "--over", "f=1:40", "--over", "b=1,2", "--quantity", "params",
        "--quantity", "flops", "--tie", "t=3d", "--block", "20", "--quiet"]  # fmt: skip


def invoked(*words):
    return CliRunner().invoke(main, ["sweep", *words], prog_name="blockcalc")


def command(*words):
    program = [sys.executable, "-c", "from blockcalc.cli import main; main()", *map(str, words)]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_pyarrow
def test_the_three_formats_hold_the_same_rows(tmp_path):
    from pyarrow import parquet

    asked = spec(["llama-3.1-8b"], ["tp=1,3,8", "dtype=bf16,fp8", "s=1:50"], ["kv", "params"], block=64)
    summaries = [sweep(asked, tmp_path / f"out.{ending}") for ending in ("parquet", "csv", "jsonl")]
    assert len({(one.rows, one.blocks, tuple(one.refused.items())) for one in summaries}) == 1
    assert summaries[0].refused == {"n is not divisible by tp": 100}
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    by_line = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    with (tmp_path / "out.csv").open() as file:
        by_comma = [{name: cell or None for name, cell in line.items()} for line in csv.DictReader(file)]
    assert table == by_line == [line for block in range(Grid(asked).blocks) for line in rows(Grid(asked), block).lines()]
    assert by_comma == [{name: None if cell is None else str(cell) for name, cell in line.items()} for line in table]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.jsonl", "out.parquet"]


@needs_pyarrow
def test_parts_are_a_folder_that_reads_as_one_table(tmp_path):
    from pyarrow import parquet

    found = sweep(SMALL, tmp_path / "out.parquet", parts=True)
    whole = sweep(SMALL, tmp_path / "whole.parquet")
    assert found.output.endswith("out.parquet.parts") and found.blocks > 10
    parts = parquet.ParquetDataset(sorted(Path(found.output).glob("part-*"))).read()
    assert parts.equals(parquet.read_table(whole.output)) and parts.num_rows == found.points


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_sweep_that_was_killed_goes_on_with_nothing_lost_or_doubled(tmp_path):
    out, whole, parts = tmp_path / "out.csv", tmp_path / "whole.csv", tmp_path / "out.csv.parts"
    dice, killed = random.Random(), 0
    for resume in ([], ["--resume"]):
        goal = len(list(parts.glob("part-*"))) + dice.randint(1, 40)
        process = command(*SLOW, "-o", out, *resume)
        while process.poll() is None and len(list(parts.glob("part-*"))) < goal:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed == 2 and not out.exists()
    process = command(*SLOW, "-o", out, "--resume")
    assert process.communicate() == ("", "") and process.returncode == 0
    found = sweep(SMALL._replace(block=20), whole)
    assert out.read_bytes() == whole.read_bytes()
    assert found.points == 50 * 40 * 2 == found.rows
    assert not parts.exists()


def test_what_is_torn_or_changed_is_computed_again_or_refused(tmp_path):
    out = tmp_path / "out.csv"
    whole = sweep(SMALL, tmp_path / "whole.csv")
    sweep(SMALL, out, parts=True)
    folder = tmp_path / "out.csv.parts"
    log = folder / "blocks.jsonl"
    log.write_bytes(log.read_bytes()[:-20])  # the last line was being written
    (folder / "part-000000003.csv").write_text("short")
    (folder / "part-000000005.csv").unlink()
    found = sweep(SMALL, out, resume=True, parts=True)
    assert found.blocks - found.resumed == 3 and found.rows == whole.rows
    part = folder / "part-000000002.csv"
    part.write_bytes(part.read_bytes().replace(b"8", b"9", 1))
    with pytest.raises(InputError, match="its bytes are not those that were written"):
        sweep(SMALL, out, resume=True)
    part.unlink()
    sweep(SMALL, out, resume=True)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_nothing_of_the_users_is_written_over_unasked(tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("mine")
    for flags in ({}, {"resume": True}):
        with pytest.raises(InputError, match="the file exists; --force"):
            sweep(SMALL, out, **flags)
    assert out.read_text() == "mine"
    sweep(SMALL, out, force=True)
    assert out.read_text() != "mine"
    out.unlink()
    sweep(SMALL, out, parts=True)
    with pytest.raises(InputError, match="--resume goes on with it"):
        sweep(SMALL, out)
    with pytest.raises(InputError, match="another grid"):
        sweep(SMALL._replace(over=("d=8:400:8", "f=1:41", "b=1,2")), out, resume=True)
    (tmp_path / "mine.csv.parts").mkdir()
    (tmp_path / "mine.csv.parts" / "notes").write_text("mine")
    with pytest.raises(InputError, match="that no sweep made"):
        sweep(SMALL, tmp_path / "mine.csv", force=True)
    assert (tmp_path / "mine.csv.parts" / "notes").read_text() == "mine"


def test_a_sweep_killed_between_its_file_and_its_folder_is_whole(tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", lambda self: os.sync())  # killed before the folder is removed
        sweep(SMALL, out)
    before = out.read_bytes()
    assert sweep(SMALL, out, resume=True).computed == 0
    assert out.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@needs_dask
def test_a_cluster_of_two_workers_writes_the_same_rows(tmp_path):
    process = command(*SLOW, "-o", tmp_path / "out.csv", "--dask", "local:2")
    _, err = process.communicate()
    assert process.returncode == 0, err
    sweep(SMALL._replace(block=20), tmp_path / "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words,said", [
    (["llama-3.1-8b", "--over", "q=1"], "no letter of the closed form, which has b, d, f, h, k, l, n, r, s, t, v"),
    (["llama", "--over", "d=64"], "llama needs sizes for f, h, k, l, n, v"),
    (["deepseek-v3", "--over", "l=1,2"], "l_dense, l_moe; name one of them"),
    (["llama-3.1-8b", "--over", "zero=4"], "ZeRO has the stages"),
    (["llama-3.1-8b", "--over", "d=1,2", "--over", "d=3"], "given twice"),
    (["llama-3.1-8b", "--tie", "f=g"], "g: no letter of the closed form"),
    (["llama-3.1-8b", "--tie", "f=d", "--tie", "d=f"], "d is tied only after it"),
    (["llama-3.1-8b", "--where", "kv < 1"], "quantity kv is not asked for"),
    (["llama-3.1-8b", "--where", "params"], "expected one of <= >="),
    (["llama-3.1-8b", "--over", "s=1:1001"], "1001 points, and 1000 are printed at most: name a file with -o"),
    (["llama-3.1-8b", "--quantity", "size"], "'size' is not one of"),
    (["whisper-tiny", "--over", "encoder_seq=20"], "always has 1500 positions"),
    (["gpt2", "--over", "encoder_seq=20"], "gpt2 has no encoder beside its decoder"),
    (["llama-3.1-8b", "--resume"], "--resume: rows are only printed"),
    (["llama-3.1-8b", "-o", "out.txt"], "expected a name that ends in .parquet"),
    (["llama-3.1-8b", "-o", "out.csv", "--dask", "local:x"], "expected local:N"),
    (["nothing-7b"], "no such file, folder, preset or block"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_line(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    found = invoked(*words)
    assert found.exit_code == 2 and found.stdout == "" and found.stderr.count("\n") == 1, found.stderr
    assert said in found.stderr


def test_a_length_past_the_position_table_is_answered_with_a_warning():
    found = invoked("gpt2", "--over", "t=1024:1026:2", "--quantity", "flops", "--csv")
    assert found.exit_code == 0 and found.stdout.count("\n") == 3
    assert found.stderr == "blockcalc: warning: 1026 tokens, but gpt2 has 1024 learned positions\n"


def test_the_summary_and_the_printed_rows_are_json(tmp_path):
    found = invoked("llama-3.1-8b", "--over", "s=10,20", "--over", "tp=3,8", "--quantity", "kv", "--json")
    assert [line["kv"] for line in json.loads(found.stdout)["rows"]] == [None, None, 163840, 327680]  # 32·2·1·128·2 bytes · s
    out = tmp_path / "out.jsonl"
    found = invoked("llama-3.1-8b", "--over", "s=10,20", "--over", "tp=3,8", "--quantity", "kv", "-o", str(out), "--json")
    summary = json.loads(found.stdout)
    assert (summary["points"], summary["rows"], summary["blocks"], summary["output"]) == (4, 4, 1, str(out))
    assert summary["refused"] == [{"reason": "n is not divisible by tp", "points": 2}] and found.stderr == ""


def test_numbers_are_int64_from_numpy_to_the_last():
    found = rows(Grid(SMALL), 0).columns
    assert all(found[name].values.dtype == np.int64 for name in ("point", "d", "f", "t", "params", "flops"))
