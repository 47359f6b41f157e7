"""Checkpoints that their own libraries write, read by header and held against models."""

import json
import struct
import warnings

import gguf
import numpy
import pytest
import torch
from click.testing import CliRunner
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig, MixtralConfig, Phi3Config

from blockcalc import InputError, Step, load
from blockcalc.cli import main
from blockcalc.storage.checkpoints import read
from blockcalc.storage.comparison import compare, compare_counts
from blockcalc.storage.packed import parameters

SIZES = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 58, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip
LLAMA = {"model_type": "llama", "tie_word_embeddings": False, **SIZES}


def saved(folder, config, **options):
    """A model of random weights as transformers saves it; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config)
        model.save_pretrained(folder, **options)
    return model


def llama(folder, **options):
    return saved(folder, LlamaConfig(**{name: value for name, value in LLAMA.items() if name != "model_type"}), **options)


def total_of(path):
    return parameters(read(path)).total


# -- safetensors -------------------------------------------------------------------------------------------------------


def test_a_file_has_the_tensors_and_bytes_that_are_in_it(tmp_path):
    model = llama(tmp_path)
    found = read(tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    assert {entry.name: (entry.shape, entry.nbytes) for entry in found.entries} == {
        name: (tuple(tensor.shape), tensor.nbytes) for name, tensor in tensors.items()
    }
    assert found.all().bytes == sum(p.nbytes for p in model.parameters()) == _data_bytes(tmp_path / "model.safetensors")
    assert total_of(tmp_path) == sum(p.numel() for p in model.parameters())


def _data_bytes(path):
    """The file less its header, whose length is its first eight bytes."""
    return path.stat().st_size - 8 - struct.unpack("<Q", path.read_bytes()[:8])[0]


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.complex64,
    torch.float8_e8m0fnu,
], ids=str)  # fmt: skip
def test_every_stored_type_has_its_bytes(dtype, tmp_path):
    save_file({"x": torch.zeros(3, 5, dtype=dtype)}, tmp_path / "x.safetensors")
    (stock,) = read(tmp_path / "x.safetensors").types()
    assert (stock.items, stock.bytes) == (15, _data_bytes(tmp_path / "x.safetensors"))


def test_shards_with_their_index_are_one_checkpoint(tmp_path):
    model = llama(tmp_path, max_shard_size="60KB")
    index = tmp_path / "model.safetensors.index.json"
    assert len(read(tmp_path).files) > 2
    assert total_of(tmp_path) == total_of(index) == sum(p.numel() for p in model.parameters())
    assert compare(parameters(read(tmp_path)), load(LLAMA)).equal
    told = json.loads(index.read_text())
    assert read(tmp_path).all().bytes == told["metadata"]["total_size"]
    name, shard = next(iter(told["weight_map"].items()))
    for change, text in (
        ({name: "absent.safetensors"}, "absent.safetensors: no such file"),
        ({name: "../x.safetensors"}, r"\.\./x\.safetensors: no such file"),
        ({"model.more": shard}, "model.more is in only one of the index and the shard"),
        ({name: 3}, "weight_map: found an object"),
    ):
        index.write_text(json.dumps({"weight_map": {**told["weight_map"], **change}}))
        with pytest.raises(InputError, match=text):
            read(tmp_path)


CONFIGS = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "fused queries, keys and values; gate and up": Phi3Config(**SIZES, pad_token_id=0, eos_token_id=1),
    "banks of experts": MixtralConfig(**SIZES, num_local_experts=5, num_experts_per_tok=2),
    "banks with biases, gate and up in turn": GptOssConfig(**SIZES, num_local_experts=5, num_experts_per_tok=2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_transformers_saves_is_the_models(name, tmp_path):
    model = saved(tmp_path, CONFIGS[name])
    found = compare(parameters(read(tmp_path)), load(tmp_path))
    assert found.equal and found.checkpoint == sum(p.numel() for p in model.parameters())


def changed(folder, change):
    """The differences of a Llama whose tensors were changed."""
    llama(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    return compare(parameters(read(file)), load(LLAMA))


def test_a_missing_tensor_is_named(tmp_path):
    found = changed(tmp_path, lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.weight"))
    (difference,) = found.differences
    assert (difference.kind, difference.model, difference.tensors) == ("missing", (16, 48), 1)
    assert found.difference == difference.params == -16 * 48 and not found.equal
    assert difference.names == ("model.layers.1.self_attn.k_proj.weight",)
    assert difference.paths == ("decoder.layer.attention.k", "decoder.layer.attention.v")


def test_an_extra_tensor_is_named(tmp_path):
    found = changed(tmp_path, lambda tensors: tensors.update({"model.layers.2.more.weight": torch.zeros(3, 7)}))
    (difference,) = found.differences
    assert (difference.kind, difference.checkpoint, difference.params) == ("extra", (3, 7), 21)
    assert difference.names == ("model.layers.*.more.weight",)


def test_a_tensor_of_another_size_is_shown_beside_the_right_one(tmp_path):
    found = changed(tmp_path, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(128, 48)}))
    assert [(d.kind, d.model, d.checkpoint, d.params) for d in found.differences] == [
        ("other size", (48, 97), (48, 128), 31 * 48)
    ]


def test_a_model_of_other_sizes_differs(tmp_path):
    llama(tmp_path)
    for change in ({"num_hidden_layers": 2}, {"head_dim": 10}, {"attention_bias": True}, {"tie_word_embeddings": True}):
        found = compare(parameters(read(tmp_path)), load(LLAMA, change))
        assert not found.equal and sum(d.params for d in found.differences) == found.difference


def test_buffers_are_no_parameters(tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
        tensors["model.embeddings.position_ids"] = torch.zeros(1, 9, dtype=torch.int64)
        tensors["h.0.attn.bias"] = torch.zeros(1, 1, 5, 5)

    assert changed(tmp_path, add).equal


# -- GGUF --------------------------------------------------------------------------------------------------------------


def write_gguf(path, tensors, tokens=300):
    """Tensors as (name, rows, columns, type), with a vocabulary in the header; returns the bytes of each."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token {i}" for i in range(tokens)])
    writer.add_array("x.scores", [0.5] * tokens)
    sizes = []
    for name, shape, kind in tensors:
        data = numpy.zeros(shape, dtype=numpy.float32)
        if kind not in (Type.F32, Type.F16):
            data = gguf.quants.quantize(data, kind)
        elif kind == Type.F16:
            data = data.astype(numpy.float16)
        sizes.append(data.nbytes)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sizes


TENSORS = [("token_embd.weight", (97, 256), Type.Q8_0), ("blk.0.attn_q.weight", (64, 256), Type.TQ2_0),
           ("blk.0.ffn_up.weight", (33, 64), Type.Q4_0), ("output_norm.weight", (256,), Type.F32),
           ("blk.0.x.weight", (7, 5), Type.F16), ("rope_freqs.weight", (32,), Type.F32)]  # fmt: skip


def test_a_gguf_has_the_bytes_and_elements_that_were_written(tmp_path):
    sizes = write_gguf(tmp_path / "x.gguf", TENSORS)
    found = read(tmp_path / "x.gguf")
    assert [entry.nbytes for entry in found.entries] == sizes
    assert [entry.shape for entry in found.entries] == [shape for _, shape, _ in TENSORS]
    padded = sum(-(-size // 32) * 32 for size in sizes)
    assert padded == (tmp_path / "x.gguf").stat().st_size - gguf.GGUFReader(tmp_path / "x.gguf").data_offset
    assert parameters(found).total == 97 * 256 + 64 * 256 + 33 * 64 + 256 + 35  # the rotary table is no parameter


def test_a_split_gguf_is_one_checkpoint(tmp_path):
    for part in (1, 2):
        write_gguf(tmp_path / f"m-0000{part}-of-00002.gguf", TENSORS[2 * part - 2 : 2 * part])
    assert len(read(tmp_path).entries) == len(read(tmp_path / "m-00002-of-00002.gguf").entries) == 4
    write_gguf(tmp_path / "m-00002-of-00002.gguf", TENSORS[:1])
    with pytest.raises(InputError, match=r"token_embd\.weight: the tensor is in two parts"):
        read(tmp_path)
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    with pytest.raises(InputError, match=r"m-00001-of-00002\.gguf: no such file, but it is a part of"):
        read(tmp_path)


def test_a_gguf_is_held_against_the_total_alone(tmp_path):
    total = load(LLAMA).budget(Step.forward(1, 1)).parameters().total
    write_gguf(tmp_path / "x.gguf", [("one", (total // 64, 64), Type.Q4_0), ("rest", (total % 64,), Type.F32)])
    assert compare_counts(parameters(read(tmp_path)), load(LLAMA)).equal
    assert not compare_counts(parameters(read(tmp_path)), load(LLAMA, {"num_hidden_layers": 2})).equal


# -- what is no checkpoint ---------------------------------------------------------------------------------------------


def raw(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def head(tensors=1, fields=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields)


def named(name):
    return struct.pack("<Q", len(name)) + name


BROKEN = {
    "empty.safetensors": b"", "short.safetensors": b"abc", "huge.safetensors": struct.pack("<Q", 2**60) + b"{}",
    "cut.safetensors": struct.pack("<Q", 99) + b'{"a":', "text.safetensors": b"this is a text of some length",
    "less.safetensors": raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 9),
    "more.safetensors": raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 19),
    "large.safetensors": raw({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"\0" * 4),
    "odd.safetensors": raw({"a": {"dtype": "X9", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 16),
    "list.safetensors": raw([1, 2]),
    "empty.gguf": b"", "short.gguf": b"GG", "text.gguf": b"this is a text of some length", "old.gguf": head(version=99),
    "tensors.gguf": head(2**62), "fields.gguf": head(0, 2**62),
    "name.gguf": head(0, 1) + struct.pack("<Q", 2**62) + b"abc",
    "array.gguf": head(0, 1) + named(b"x") + struct.pack("<IIQ", 9, 0, 2**62),
    "strings.gguf": head(0, 1) + named(b"x") + struct.pack("<IIQ", 9, 8, 2**62),
    "arrays.gguf": head(0, 1) + named(b"x") + struct.pack("<IIQ", 9, 9, 2**62) * 2000,
    "kind.gguf": head(0, 1) + named(b"x") + struct.pack("<IIQ", 77, 9, 1),
    "type.gguf": head() + named(b"x") + struct.pack("<IQIQ", 1, 4, 999, 0) + b"\0" * 64,
    "beyond.gguf": head() + named(b"x") + struct.pack("<IQIQ", 1, 4, 0, 2**40) + b"\0" * 64,
    "wraps.gguf": head() + named(b"x") + struct.pack("<IQQIQ", 2, 2**32, 2**32, 0, 0) + b"\0" * 64,
    "utf8.gguf": head() + named(b"\xff\xfe") + struct.pack("<IQIQ", 1, 4, 0, 0) + b"\0" * 64,
    "x.bin": b"abc", "model.safetensors.index.json": b"[]",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_checkpoint_is_refused_in_one_line_that_names_it(name, tmp_path):
    (tmp_path / name).write_bytes(BROKEN[name])
    found = CliRunner().invoke(main, ["checkpoint", str(tmp_path / name)])
    assert found.exit_code == 2 and found.stdout == ""
    assert found.stderr.count("\n") == 1 and name in found.stderr and "Traceback" not in found.stderr


@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_a_file_cut_anywhere_is_refused(form, tmp_path):
    path = tmp_path / f"x.{form}"
    if form == "gguf":
        write_gguf(path, TENSORS, tokens=3)
    else:
        save_file({"a": torch.zeros(5, 3), "b": torch.zeros(2, dtype=torch.bfloat16)}, path)
    whole = path.read_bytes()
    last = len(whole) if form == "safetensors" else len(whole) - 31  # a GGUF's last tensor is filled up to 32 bytes
    for length in {*range(0, min(last, 400)), *range(0, last, 997), last - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=f"x.{form}"):
            read(path)


def test_paths_that_hold_no_checkpoint(tmp_path):
    for path, text in ((tmp_path / "absent", "no such file"), (tmp_path, "a folder without"), ("a\0b", r"a\\x00b")):
        with pytest.raises(InputError, match=text):
            read(path)
    for name in ("a.safetensors", "b.safetensors"):
        save_file({"x": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(InputError, match=r"2 files \*\.safetensors; name the one that is meant"):
        read(tmp_path)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_whether_a_checkpoint_is_the_models(tmp_path):
    model = llama(tmp_path)
    total = sum(p.numel() for p in model.parameters())
    config = str(tmp_path / "config.json")
    found = CliRunner().invoke(main, ["checkpoint", str(tmp_path), config, "--json"])
    data = json.loads(found.stdout)
    assert found.exit_code == 0 and data["parameters"] == data["comparison"]["model"] == total
    assert data["types"] == [{"dtype": "F32", "tensors": len(list(model.parameters())), "items": total, "bytes": 4 * total}]
    assert data["comparison"]["equal"] is True and data["comparison"]["differences"] == []
    found = CliRunner().invoke(main, ["checkpoint", str(tmp_path), config, "--set", "num_hidden_layers=2"])
    assert found.exit_code == 1 and "They differ" in found.stdout and "extra" in found.stdout
    for form in ("--csv", "--markdown"):
        assert f"{total:,}".replace(",", "" if form == "--csv" else ",") in CliRunner().invoke(
            main, ["checkpoint", str(tmp_path), config, form]
        ).stdout


def test_without_a_model_nothing_is_compared(tmp_path):
    llama(tmp_path)
    found = CliRunner().invoke(main, ["checkpoint", str(tmp_path), "--json"])
    assert found.exit_code == 0 and "comparison" not in json.loads(found.stdout)
