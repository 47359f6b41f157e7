"""Machines: every figure sourced and recomputed where its parts are published; a user's own file; the command."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from blockcalc.cli import main
from blockcalc.errors import InputError, UndefinedError
from blockcalc.tables import machines
from blockcalc.timing.efficiency import PUBLISHED, Efficiency
from blockcalc.timing.machine import EXAMPLE, Machine, Peaks, machine

KNOWN = machines()["machines"]
SOURCES = machines()["sources"]


def entries(name):
    return KNOWN[name]["figures"].items()


@pytest.mark.parametrize("name", KNOWN)
def test_every_machine_loads_and_every_figure_has_a_source(name):
    found = machine(name)
    assert found.name == name and KNOWN[name]["title"] and KNOWN[name]["traps"]
    for figure, entry in entries(name):
        assert type(entry["value"]) is int and entry["source"] in SOURCES, figure
        for other in entry.get("others", ()):
            assert other["source"] in SOURCES and other["value"] != entry["value"], figure
    assert found.memory_bytes == KNOWN[name]["figures"]["memory"]["value"]


def test_every_source_is_used():
    used = {each["source"] for name in KNOWN for _, entry in entries(name) for each in (entry, *entry.get("others", ()))}
    assert used == set(SOURCES)


CLOCKED = [(name, figure) for name in KNOWN for figure, entry in entries(name) if "clock" in entry]


@pytest.mark.parametrize("name,figure", CLOCKED)
def test_a_peak_is_its_clock_times_its_units(name, figure):
    """megahertz × multiply-adds a clock and unit × 2 × units; the makers print it to three or four digits."""
    entry = KNOWN[name]["figures"][figure]
    clock = entry["clock"]
    computed = clock["megahertz"] * 10**6 * clock["multiply_adds"] * 2 * clock["units"]
    assert abs(computed - entry["value"]) <= entry["value"] // 2000


def test_peaks_with_published_clocks():
    # 1830 MHz · 512 · 2 · 528 = 989.43 T; at the boost clock of 1980 MHz it would be 1070.5
    assert {name for name, _ in CLOCKED} >= {"h100-sxm", "a100-sxm-80", "mi300x", "mi355x", "mi250x", "gaudi3"}


@pytest.mark.parametrize("name,ridge", [
    ("a100-sxm-80", 153), ("h100-sxm", 295), ("h200-sxm", 206), ("b200-sxm", 292), ("l40s", 419), ("mi300x", 247),
    ("tpu-v5e", 241), ("tpu-v6e", 560),
])  # fmt: skip
def test_ridge_points(name, ridge):
    """bf16 FLOPs a byte where compute and memory take equally long."""
    assert round(machine(name).peak("bf16") / machine(name).bandwidth) == ridge


def test_rates_are_dense():
    """fp8 is twice bf16, as hardware without sparsity has it; a sparse rate would be four times."""
    for name in ("h100-sxm", "h100-pcie", "h200-sxm", "b200-sxm", "gb200", "mi300x", "l4", "rtxpro6000-server"):
        assert machine(name).peak("fp8") / machine(name).peak("bf16") == pytest.approx(2, rel=1e-3)
    # lightning-fabric's table has the sparse rates of the H200
    others = KNOWN["h200-sxm"]["figures"]["bf16"]["others"]
    assert {other["value"] for other in others} == {2 * 10**15}


def test_memory_is_what_the_driver_shows():
    # nvidia-smi: 143771 MiB, neither 141·10⁹ nor 141·2³⁰
    assert machine("h200-sxm").memory_bytes == 143771 * 2**20 == 150_754_820_096
    assert machine("b300-sxm").memory_bytes == 275040 * 2**20
    assert machine("tpu-v5p").memory_bytes == 95 * 2**30


def test_domains_and_nodes():
    gb200 = machine("gb200")
    assert (gb200.domain, gb200.node, gb200.nodes(72)) == (72, 4, 18)
    assert machine("h100-sxm").nodes(9) == 2


def test_a_type_without_a_rate_is_refused():
    with pytest.raises(UndefinedError, match=r"a100-sxm-80 has no rate in fp8: it has fp32, tf32, fp16, bf16, int8"):
        machine("a100-sxm-80").peak("fp8")
    with pytest.raises(InputError, match="fp7"):
        machine("a100-sxm-80").peak("fp7")


def test_efficiency_is_that_of_the_best_product_measured():
    # 794.5 of 989.4 TFLOP/s on an H100, 271.2 of 312 on an A100; 0.80 where nothing is published
    assert round(Efficiency.of(machine("h100-sxm"), PUBLISHED).compute, 3) == 0.803
    assert round(Efficiency.of(machine("a100-sxm-80"), PUBLISHED).compute, 3) == 0.869
    assert Efficiency.of(machine("l4"), PUBLISHED).compute == 0.80
    for name in KNOWN:
        assert 0.5 <= Efficiency.of(machine(name), PUBLISHED).compute <= 0.9
    assert "compute 0.80, memory 0.83, link 0.84; 3e-06 s a kernel, 0 s a hop" in Efficiency().notes()[0]


@pytest.mark.parametrize("field,value", [("compute", 0), ("compute", 1.01), ("memory", "0.8"), ("link", True), ("latency", -1)])
def test_impossible_efficiencies_are_refused(field, value):
    with pytest.raises(InputError, match=f"Efficiency: {field}"):
        Efficiency(**{field: value})


# -- a user's own ------------------------------------------------------------------------------------------------------


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_documented_file_loads(tmp_path):
    found = machine(written(tmp_path, EXAMPLE))
    assert (found.name, found.memory_bytes, found.bandwidth, found.watts) == ("our-h100", 85520809984, 24 * 10**11, 500)
    assert (found.peak("bf16"), found.peak("fp8"), found.matmul) == (9894 * 10**11, 19789 * 10**11, 7 * 10**14)
    assert found.peaks.tf32 == machine("h100-sxm").peaks.tf32  # like


def test_the_file_in_the_help_is_the_documented_one(tmp_path):
    text = CliRunner().invoke(main, ["machines", "--help"]).output
    lines = [line.strip() for line in text.splitlines()]
    start = next(index for index, line in enumerate(lines) if line.startswith('name = "our-h100"'))
    end = next(index for index, line in enumerate(lines) if line.startswith("flops = "))
    assert machine(written(tmp_path, "\n".join(lines[start : end + 1]))) == machine(written(tmp_path, EXAMPLE))


def test_a_file_may_give_everything(tmp_path):
    text = 'memory_bytes = 1000\nbandwidth = 7\nflops.fp32 = 11\n'
    assert machine(written(tmp_path, text)) == Machine(
        name="mine", peaks=Peaks(fp32=11), memory_bytes=1000, bandwidth=7
    )


@pytest.mark.parametrize("text,message", [
    ("a = [", "no TOML"),
    ("bandwidht = 3", "bandwidht: unknown field; a machine has name, like,"),
    ("name = 1", "name: found 1, expected a name"),
    ('like = "zz"', 'like: "zz" is not one of'),
    ("like = []", "like: a list is not one of"),
    ("memory_bytes = 1", 'bandwidth: missing; give it, or a machine to start from: like = "h100-sxm"'),
    ("memory_bytes = 1\nbandwidth = 3.35e12", 'bandwidth: found 3350000000000.0, expected a whole number above 0 or a'),
    ('memory_bytes = "80G"\nbandwidth = 1', 'memory_bytes: found "80G", expected a whole number above 0'),
    ("memory_bytes = true\nbandwidth = 1", "memory_bytes: found true"),
    ("memory_bytes = 5\nbandwidth = 0", "bandwidth: found 0"),
    ("memory_bytes = 5\nbandwidth = 4", "flops: found none, expected one of fp32"),
    ('like = "h100-sxm"\nflops = 3', "flops: found 3, expected a table"),
    ('like = "h100-sxm"\nflops.fp7 = 3', "flops.fp7: unknown type"),
    ('like = "h100-sxm"\nflops.bf16 = "989Q"', "flops.bf16 989Q: expected a rate such as 989T"),
    ('like = "apple-m1max"\ndomain = 4', "domain = 4 devices, but no link joins them"),
    ('like = "h100-sxm"\ndomain = -4', "domain: found -4"),
])  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text, message):
    path = written(tmp_path, text)
    found = CliRunner().invoke(main, ["machines", str(path)])
    assert found.exit_code == 2 and found.stdout == ""
    line = found.stderr.strip()
    assert "\n" not in line and line.startswith(f"blockcalc: {path}: ") and message in line, line


def test_what_is_neither_a_name_nor_a_file():
    with pytest.raises(InputError, match=r"did you mean h100-sxm, h100-nvl, h100-pcie\?"):
        machine("h100")
    with pytest.raises(InputError, match=r"missing.toml: cannot be read: No such file"):
        machine("missing.toml")


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        machine(path)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_list_has_every_machine_on_one_line_of_80():
    found = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["machines"])
    lines = [line for line in found.stdout.splitlines() if line.startswith("│")]
    assert [line.split()[1] for line in lines] == list(KNOWN)


def test_json_is_whole():
    data = json.loads(CliRunner().invoke(main, ["machines", "--json"]).stdout)["machines"]
    assert [each["name"] for each in data] == list(KNOWN)
    assert data[list(KNOWN).index("gb200")]["peaks"]["fp4"] == 10**16
    one = json.loads(CliRunner().invoke(main, ["machines", "b300-sxm", "--json"]).stdout)["machine"]
    assert one["figures"] == KNOWN["b300-sxm"]["figures"] and one["traps"] == KNOWN["b300-sxm"]["traps"]
    assert set(one["sources"]) <= set(SOURCES)


def test_csv_and_one_machine_agree():
    row = CliRunner().invoke(main, ["machines", "--csv"]).stdout.splitlines()[1 + list(KNOWN).index("a100-sxm-80")]
    assert row == "a100-sxm-80,312000000000000,312000000000000,,85899345920,2039000000000,300000000000,8,25000000000,400"
    shown = CliRunner().invoke(main, ["machines", "a100-sxm-80"]).stdout
    assert "2,039,000,000,000" in shown and "torch sees 79.15" in shown


def test_a_cold_json_answer_loads_nothing_heavy():
    code = "from blockcalc.cli import main\ntry:\n    main(['machines', '--json'])\nexcept SystemExit: pass\n"
    code += "import sys\nprint('\\n' + ' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert not {"sympy", "numpy", "torch", "rich"} & set(loaded.split())
