"""Bytes of formats against the files that their own libraries write, and against published sizes."""

import warnings
from dataclasses import replace
from fractions import Fraction
from math import prod

import gguf
import numpy
import pytest
import sympy
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file, save_file

from blockcalc import InputError, Step, load, trace
from blockcalc.blocks.mlp import GatedMLP
from blockcalc.dims import ceiling, symbol
from blockcalc.storage import gguf as types
from blockcalc.storage.formats import BF16, FP8, FP8_BLOCK, FP32, INT8, MXFP4, MXFP6, MXFP8, NF4, NF4_DOUBLE, NVFP4, awq, gptq
from blockcalc.storage.precision import FORMATS, Precision, named, weight_bytes
from blockcalc.storage.weights import Weight, weights
from blockcalc.tensor import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import bitsandbytes


def matrix(inputs, outputs):
    return Tensor(("d", "f"), (inputs, outputs), "matrix")


GGUF = {format.name: format for format in types.TYPES}


def test_every_type_of_gguf_that_holds_weights_is_here():
    named_there = {kind.name.lower() for kind in Type if not kind.name.startswith("I") or kind.name.startswith("IQ")}
    assert set(GGUF) == named_there - {"f64"}


@pytest.mark.parametrize("format", types.TYPES, ids=lambda format: format.name)
def test_a_block_of_gguf_has_the_elements_and_bytes_of_ggml(format):
    elements, size = gguf.GGML_QUANT_SIZES[Type[format.name.upper()]]
    assert format.block == (elements, 8 * size)
    assert format.nbytes(matrix(3 * elements, 5)) == 15 * size


def written(path, tensors):
    """The bytes behind the header of a GGUF file with these tensors, and those of the tensors without padding."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = gguf.GGUFReader(path)
    return path.stat().st_size - reader.data_offset


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "tq1_0", "tq2_0", "bf16"])
def test_a_gguf_file_has_as_many_bytes_as_we_say(name, tmp_path):
    """Rows of 768, 7 of them, quantised by the gguf package; a file pads each tensor to 32 bytes."""
    kind = Type[name.upper()]
    data = gguf.quants.quantize(numpy.random.default_rng(1).normal(size=(7, 768)).astype(numpy.float32), kind)
    ours = GGUF[name].nbytes(matrix(768, 7))
    assert ours == data.nbytes
    assert -(-ours // 32) * 32 == written(tmp_path / "x.gguf", [("x", data, kind)])


@pytest.mark.parametrize("name", [name for name, format in GGUF.items() if format.block[0] > 1])
def test_a_row_that_is_no_whole_blocks_is_refused_as_gguf_refuses_it(name):
    elements = GGUF[name].block[0]
    with pytest.raises(InputError, match=f"{elements + 1} inputs are not a multiple of {elements}"):
        GGUF[name].nbytes(matrix(elements + 1, 4))
    with pytest.raises(ValueError, match="not a multiple"):
        gguf.quant_shape_to_byte_shape((4, elements + 1), Type[name.upper()])


# -- bits per weight ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format,bits", [
    (FP32, 32), (BF16, 16), (named("fp16"), 16), (FP8, 8), (FP8_BLOCK, 8 + Fraction(32, 128 * 128)), (INT8, 8),
    (NF4, 4 + Fraction(32, 64)),  # QLoRA, section 3: 0.5 bits of constants, 0.127 when they are quantised
    (NF4_DOUBLE, 4 + Fraction(8, 64) + Fraction(32, 64 * 256)),
    (MXFP4, Fraction("4.25")), (MXFP6, Fraction("6.25")), (MXFP8, Fraction("8.25")), (NVFP4, Fraction("4.5")),
    (gptq(4, 128), Fraction("4.15625")), (gptq(4, 64), Fraction("4.3125")), (gptq(4, 32), Fraction("4.625")),
    (gptq(3, 128), 3 + Fraction(19, 128)), (gptq(8, 32), Fraction("8.75")), (gptq(2, 64), 2 + Fraction(18, 64)),
    (awq(), Fraction("4.15625")),
], ids=lambda value: getattr(value, "name", None))  # fmt: skip
def test_bits_per_weight(format, bits):
    assert format.bits_per_weight == bits
    large = matrix(2**20, 2**20)
    assert 0 <= Fraction(8 * format.nbytes(large), large.numel) - bits < Fraction(1, 10**4)


@pytest.mark.parametrize("names,bits", [
    ("q4_0 q4_1 q5_0 q5_1 q8_0", "4.5 5 5.5 6 8.5"), ("q2_k q3_k q4_k q5_k q6_k", "2.625 3.4375 4.5 5.5 6.5625"),
    ("iq1_s iq1_m iq2_xxs iq2_xs iq2_s", "1.5625 1.75 2.0625 2.3125 2.5625"),
    ("iq3_xxs iq3_s iq4_xs iq4_nl", "3.0625 3.4375 4.25 4.5"), ("tq1_0 tq2_0", "1.6875 2.0625"),
    ("mxfp4 nvfp4 q1_0", "4.25 4.5 1.125"),
])  # fmt: skip
def test_bits_per_weight_of_gguf(names, bits):
    """ggml-org/llama.cpp, tools/quantize/README.md and the comments of ggml/src/ggml-common.h."""
    assert [GGUF[name].bits_per_weight for name in names.split()] == [Fraction(one) for one in bits.split()]


# -- files of safetensors: the tensors that each library keeps, of the shapes that it gives them -----------------------------

SHAPES = [(256, 96), (384, 64), (640, 160)]


def stored(path, tensors):
    """Bytes of the tensors in a file, read back."""
    save_file(tensors, path)
    return sum(tensor.nbytes for tensor in load_file(path).values())


@pytest.mark.parametrize("inputs,outputs", [*SHAPES, (416, 32)])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group", [32, 128, None])
def test_gptq_as_autogptq_packs_it(bits, group, inputs, outputs, tmp_path):
    """QuantLinear's buffers: qweight (in/32·bits, out), qzeros (⌈in/g⌉, out/32·bits), scales (⌈in/g⌉, out), g_idx (in)."""
    groups = -(-inputs // (group or inputs))
    tensors = {
        "qweight": torch.zeros(inputs // 32 * bits, outputs, dtype=torch.int32),
        "qzeros": torch.zeros(groups, outputs // 32 * bits, dtype=torch.int32),
        "scales": torch.zeros(groups, outputs, dtype=torch.float16),
        "g_idx": torch.zeros(inputs, dtype=torch.int32),
    }
    size = stored(tmp_path / "x.safetensors", tensors)
    assert gptq(bits, group).nbytes(matrix(inputs, outputs)) == size
    assert gptq(bits, group, g_idx=False).nbytes(matrix(inputs, outputs)) == size - 4 * inputs


@pytest.mark.parametrize("inputs,outputs", SHAPES)
@pytest.mark.parametrize("group", [32, 128, None])
def test_awq_as_autoawq_packs_it(group, inputs, outputs, tmp_path):
    """WQLinear_GEMM's buffers: qweight (in, out/8), qzeros (in/g, out/8), scales (in/g, out)."""
    groups = inputs // (group or inputs)
    tensors = {
        "qweight": torch.zeros(inputs, outputs // 8, dtype=torch.int32),
        "qzeros": torch.zeros(groups, outputs // 8, dtype=torch.int32),
        "scales": torch.zeros(groups, outputs, dtype=torch.float16),
    }
    assert awq(4, group).nbytes(matrix(inputs, outputs)) == stored(tmp_path / "x.safetensors", tensors)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("inputs,outputs", [(128, 96), (129, 1000), (13, 7), (64, 1), (1, 1)])
def test_nf4_as_bitsandbytes_stores_and_holds_it(inputs, outputs, double, tmp_path):
    """A flattened matrix: its last byte, block of 64 and block of 256 blocks may be filled up."""
    packed, state = bitsandbytes.functional.quantize_4bit(
        torch.randn(outputs, inputs), quant_type="nf4", blocksize=64, compress_statistics=double
    )
    parts = {name: part.contiguous() for name, part in state.as_dict(packed=True).items() if "quant_state" not in name}
    format = NF4_DOUBLE if double else NF4
    assert format.nbytes(matrix(inputs, outputs), "file") == stored(tmp_path / "x.safetensors", {"weight": packed, **parts})
    held = [packed, state.absmax, state.code]
    held += [state.offset, state.state2.absmax, state.state2.code] if double else []
    assert format.nbytes(matrix(inputs, outputs)) == sum(tensor.nbytes for tensor in held)


def test_int8_as_bitsandbytes_stores_it(tmp_path):
    linear = bitsandbytes.nn.Linear8bitLt(37, 11, bias=False, has_fp16_weights=False)
    linear.weight = bitsandbytes.nn.Int8Params(torch.randn(11, 37), has_fp16_weights=False, requires_grad=False).to("cpu")
    tensors = {name: tensor for name, tensor in linear.state_dict().items() if isinstance(tensor, torch.Tensor)}
    assert set(tensors) == {"weight", "SCB", "weight_format"}
    assert INT8.nbytes(matrix(37, 11), "file") == stored(tmp_path / "x.safetensors", tensors)
    assert INT8.nbytes(matrix(37, 11)) == 37 * 11 + 4 * 11


@pytest.mark.parametrize("format,tensors", [
    (FP8, {"weight": ((130, 300), torch.float8_e4m3fn), "weight_scale": ((), torch.float32)}),
    (FP8_BLOCK, {"weight": ((130, 300), torch.float8_e4m3fn), "weight_scale_inv": ((2, 3), torch.float32)}),
])  # fmt: skip
def test_fp8(format, tensors, tmp_path):
    """130 outputs and 300 inputs are 2 · 3 tiles of 128 by 128."""
    made = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in tensors.items()}
    assert format.nbytes(matrix(300, 130)) == stored(tmp_path / "x.safetensors", made)


def test_blocks_and_scales_of_microscaling_formats(tmp_path):
    """MXFP4 as gpt-oss stores it: blocks (out, in/32, 16), scales (out, in/32); NVFP4 as ModelOpt does."""
    made = {"blocks": torch.zeros(7, 90, 16, dtype=torch.uint8), "scales": torch.zeros(7, 90, dtype=torch.uint8)}
    assert MXFP4.nbytes(matrix(2880, 7)) == stored(tmp_path / "x.safetensors", made)
    made = {
        "weight": torch.zeros(7, 1440, dtype=torch.uint8), "weight_scale": torch.zeros(7, 180, dtype=torch.float8_e4m3fn),
        "weight_scale_2": torch.zeros(()),
    }  # fmt: skip
    assert NVFP4.nbytes(matrix(2880, 7)) == stored(tmp_path / "x.safetensors", made)
    assert MXFP6.nbytes(matrix(64, 7)) == 7 * 2 * 25 and MXFP8.nbytes(matrix(64, 7)) == 7 * 2 * 33


@pytest.mark.parametrize("format,inputs,outputs,text", [
    (gptq(), 48, 64, "48 inputs are not a multiple of 32, as gptq-4-128 needs them"),
    (gptq(), 64, 48, "48 outputs are not a multiple of 32"),
    (awq(), 64, 64, "64 inputs are not a multiple of 128, as awq-4-128 needs them"),
    (awq(4, 32), 64, 12, "12 outputs are not a multiple of 8"),
    (MXFP4, 33, 1, "33 inputs are not a multiple of 32"), (NVFP4, 24, 1, "24 inputs are not a multiple of 16"),
])  # fmt: skip
def test_what_a_library_refuses_is_refused(format, inputs, outputs, text):
    with pytest.raises(InputError, match=text):
        format.nbytes(matrix(inputs, outputs))


# -- by weight of a model ----------------------------------------------------------------------------------------------


def test_the_weights_of_a_budget_are_matrices_of_outputs_by_inputs():
    found = {weight.path: weight for weight in weights(load("mixtral-8x7b").budget(Step.forward(1, 2)))}
    shapes = {path.removeprefix("decoder.layer."): (w.kind, w.rows, w.columns) for path, w in found.items()}
    assert shapes["attention.q"] == ("linear", 4096, 4096) and shapes["attention.k"] == ("linear", 1024, 4096)
    assert shapes["mlp.experts.down"] == ("expert", 4096, 14336) and shapes["mlp.router"] == ("router", 8, 4096)
    assert shapes["embedding.token"] == ("table", 32000, 4096) and shapes["head.output"] == ("head", 32000, 4096)
    assert shapes["attention_norm"] == ("vector", 1, 4096)
    assert all(prod((w.matrices, w.rows, w.columns)) == w.tensor.numel for w in found.values())


def test_a_tied_table_is_no_head_and_stands_once():
    found = [(weight.kind, weight.path) for weight in weights(load("gpt2").budget(Step.forward(1, 2)))]
    tables = [one for one in found if one[0] not in ("linear", "vector")]
    assert tables == [("table", "embedding.token"), ("position", "embedding.position")]


def test_a_tensor_with_more_than_two_axes_needs_its_inputs_named():
    tensor = Tensor(("d", "n", "h"), (256, 3, 64), "matrix")
    with pytest.raises(InputError, match="say which axes are summed over"):
        MXFP4.nbytes(tensor)
    assert MXFP4.nbytes(Weight(tensor, "linear", ("d",))) == 192 * 8 * 17
    assert gptq(4, 64).nbytes(Weight(tensor, "linear", ("n", "h"))) != gptq(4, 64).nbytes(Weight(tensor, "linear", ("d",)))


@pytest.mark.parametrize("name,bits,gib", [("f16", "16.0005", "14.96"), ("q8_0", "8.5008", "7.95"), ("q6_k", "6.5633", "6.14")])
def test_llama_3_1_8b_as_llama_cpp_prints_it(name, bits, gib):
    """ggml-org/llama.cpp, tools/quantize/README.md: bits a weight and GiB; vectors are fp32, all matrices of one type."""
    budget = load("llama-3.1-8b").budget(Step.forward(1, 2))
    size = sum(weight_bytes(budget, Precision.of(GGUF[name])).values())
    assert f"{8 * size / budget.parameters().total:.4f}" == bits
    assert f"{size / 2**30:.2f}" == gib


@pytest.mark.parametrize("base,others,bits,gib", [
    ("q3_k", {}, "3.6429", "3.41"),  # Q3_K_S
    ("q4_k", {".v": ("q5_k", 4), ".down": ("q5_k", 32 // 8)}, "4.6672", "4.36"),  # Q4_K_S
    ("q4_k", {".v": ("q6_k", 16), ".down": ("q6_k", 16)}, "4.8944", "4.58"),  # Q4_K_M: 4 first, 4 last, every third of 24
    ("q5_k", {}, "5.5704", "5.21"),  # Q5_K_S
    ("q5_k", {".v": ("q6_k", 16), ".down": ("q6_k", 16)}, "5.7036", "5.33"),  # Q5_K_M
    ("q2_k", {".v": ("q4_k", 32), ".down": ("q3_k", 32), ".o": ("q3_k", 32)}, "3.1593", "2.95"),  # Q2_K
])  # fmt: skip
def test_llama_3_1_8b_in_mixtures_of_types(base, others, bits, gib):
    """llama.cpp, src/llama-quant.cpp: the head in Q6_K, and values, down projections, outputs of some layers in another."""
    budget = load("llama-3.1-8b").budget(Step.forward(1, 2))
    size = sum(weight_bytes(budget, replace(Precision.of(GGUF[base]), head=GGUF["q6_k"])).values())
    for weight in weights(budget):
        other, layers = others.get("." + weight.path.rpartition(".")[2], (base, 0))
        size += layers * (GGUF[other].nbytes(weight) - GGUF[base].nbytes(weight))
    assert (f"{8 * size / budget.parameters().total:.4f}", f"{size / 2**30:.2f}") == (bits, gib)


@pytest.mark.parametrize("model,gib", [("gpt-oss-120b", "60.8"), ("gpt-oss-20b", "12.8")])
def test_gpt_oss_as_its_model_card_prints_it(model, gib):
    """arXiv:2508.10925, table 1, checkpoint size: experts in MXFP4, the rest in bf16."""
    precision = replace(Precision.of(MXFP4), linear=BF16)
    size = sum(weight_bytes(load(model).budget(Step.forward(1, 2)), precision, where="file").values())
    assert f"{size / 2**30:.1f}" == gib


def test_what_a_format_leaves_alone():
    budget = load("mixtral-8x7b").budget(Step.forward(1, 2))
    plain, packed, ggml = (weight_bytes(budget, Precision.of(format), by="kind") for format in (BF16, gptq(), GGUF["q8_0"]))
    assert {kind for kind in plain if packed[kind] == plain[kind]} == {"table", "head", "router", "vector"}
    assert {kind for kind in plain if ggml[kind] == 2 * plain[kind]} == {"router", "vector"}
    assert sum(plain.values()) == 2 * budget.parameters().total
    assert sum(weight_bytes(budget, Precision.of(FP32)).values()) == 4 * budget.parameters().total


def test_sizes_may_be_symbols():
    d, f = symbol("D"), symbol("F")
    budget = trace(GatedMLP(f=f), Step.forward(1, 2), d)
    total = {name: sum(weight_bytes(budget, Precision.of(named(name))).values()) for name in ("bf16", "mxfp4", "gguf-q4_k")}
    assert total["bf16"] == 6 * d * f and total["mxfp4"] == 3 * d * f * sympy.Rational(17, 32)
    assert total["gguf-q4_k"] == 3 * d * f * sympy.Rational(9, 16)
    numbers = trace(GatedMLP(f=96), Step.forward(1, 2), 33)
    for name in ("nf4", "nf4-double", "fp8-block", "int8"):
        formula = sum(weight_bytes(budget, Precision.of(named(name))).values())
        assert formula.subs({d: 33, f: 96}) == sum(weight_bytes(numbers, Precision.of(named(name))).values())


def test_rounding_up():
    assert [ceiling(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    n = symbol("N")
    assert ceiling(n, 4).subs(n, 5) == 2


def test_formats_have_names_and_sources():
    assert all(format.name == name.removeprefix("gguf-") and format.source for name, format in FORMATS.items())
    assert named("gptq-3-64") == gptq(3, 64) and named("awq-4-32") == awq(4, 32)
    for name in ("q4", "gptq", "gptq-4", "gptq-4-x", "awq-3-128", "gptq-5-128", "gptq-4-0"):
        with pytest.raises(InputError):
            named(name)


def test_widths_of_what_is_no_weight():
    widths = Precision.of(NF4).widths()
    assert (widths["activation"], widths["key_value"], widths["statistic"]) == (2, 2, 4)
    assert replace(Precision.of(BF16), key_value=FP8).widths()["key_value"] == 1
    with pytest.raises(InputError, match="nf4 has no whole bytes an element"):
        replace(Precision.of(BF16), key_value=NF4).widths()
