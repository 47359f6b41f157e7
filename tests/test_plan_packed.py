"""Packed matrices in a checkpoint: the parameters of what they were packed from, and the bytes that their format says."""

import warnings

import pytest
import torch
from safetensors.torch import save_file

from blockcalc import InputError, load
from blockcalc.storage.checkpoints import read
from blockcalc.storage.comparison import compare
from blockcalc.storage.formats import MXFP4, NF4, NF4_DOUBLE, awq, gptq
from blockcalc.storage.packed import parameters
from blockcalc.tensor import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import bitsandbytes


def packed_gptq(inputs, outputs, bits, group, order=True):
    groups = -(-inputs // group)
    found = {
        "qweight": torch.zeros(inputs // 32 * bits, outputs, dtype=torch.int32),
        "qzeros": torch.zeros(groups, outputs // 32 * bits, dtype=torch.int32),
        "scales": torch.zeros(groups, outputs, dtype=torch.float16),
    }
    return found | ({"g_idx": torch.zeros(inputs, dtype=torch.int32)} if order else {})


def packed_awq(inputs, outputs, bits, group):
    return {
        "qweight": torch.zeros(inputs, outputs // 8, dtype=torch.int32),
        "qzeros": torch.zeros(inputs // group, outputs // 8, dtype=torch.int32),
        "scales": torch.zeros(inputs // group, outputs, dtype=torch.float16),
    }


def packed_nf4(inputs, outputs, double):
    packed, state = bitsandbytes.functional.quantize_4bit(
        torch.randn(outputs, inputs), quant_type="nf4", blocksize=64, compress_statistics=double
    )
    return {"weight": packed, **{f"weight.{name}": part.contiguous() for name, part in state.as_dict(packed=True).items()}}


def packed_nvfp4(inputs, outputs):
    return {
        "weight": torch.zeros(outputs, inputs // 2, dtype=torch.uint8), "input_scale": torch.zeros(()),
        "weight_scale": torch.zeros(outputs, inputs // 16, dtype=torch.float8_e4m3fn), "weight_scale_2": torch.zeros(()),
    }  # fmt: skip


def packed_int8(inputs, outputs):
    return {
        "weight": torch.zeros(outputs, inputs, dtype=torch.int8), "SCB": torch.zeros(outputs),
        "weight_format": torch.zeros((), dtype=torch.uint8),
    }  # fmt: skip


def packed_fp8(inputs, outputs):
    return {
        "weight": torch.zeros(outputs, inputs, dtype=torch.float8_e4m3fn),
        "weight_scale_inv": torch.zeros(-(-outputs // 128), -(-inputs // 128)),
    }


def packed_int32(inputs, outputs):
    """compressed-tensors' pack-quantized."""
    return {
        "weight_packed": torch.zeros(outputs, inputs // 8, dtype=torch.int32),
        "weight_scale": torch.zeros(outputs, inputs // 32, dtype=torch.bfloat16),
        "weight_shape": torch.tensor([outputs, inputs]),
    }


PACKED = {
    **{f"gptq {bits} of {group}{' ordered' * order}": (packed_gptq, bits, group, order)
       for bits in (2, 3, 4, 8) for group in (32, 64) for order in (True, False)},
    "awq": (packed_awq, 4, 32), "nf4": (packed_nf4, False), "nf4 double": (packed_nf4, True), "nvfp4": (packed_nvfp4,),
    "int8": (packed_int8,), "fp8 in tiles": (packed_fp8,), "compressed-tensors": (packed_int32,),
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "tie_word_embeddings": False, "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 32,
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_model_has_the_parameters_of_the_model_it_was_packed_from(name, tmp_path):
    """All matrices of a Llama's layers packed, the rest in bf16: 5 heads of 32 on 64 channels."""
    make, *how = PACKED[name]
    d, f, q, k = 64, 96, 160, 32
    tensors = {"model.embed_tokens.weight": (97, d), "model.norm.weight": (d,), "lm_head.weight": (97, d)}
    tensors = {key: torch.zeros(shape, dtype=torch.bfloat16) for key, shape in tensors.items()}
    matrices = {
        "self_attn.q_proj": (d, q), "self_attn.k_proj": (d, k), "self_attn.v_proj": (d, k), "self_attn.o_proj": (q, d),
        "mlp.gate_proj": (d, f), "mlp.up_proj": (d, f), "mlp.down_proj": (f, d),
    }  # fmt: skip
    for layer in range(3):
        prefix = f"model.layers.{layer}"
        tensors |= {f"{prefix}.{norm}.weight": torch.zeros(d) for norm in ("input_layernorm", "post_attention_layernorm")}
        for matrix, sizes in matrices.items():
            tensors |= {f"{prefix}.{matrix}.{part}": data for part, data in make(*sizes, *how).items()}
    save_file(tensors, tmp_path / "x.safetensors")
    found = compare(parameters(read(tmp_path / "x.safetensors")), load(LLAMA))
    assert found.equal, found
    assert read(tmp_path).all().bytes == sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize("format,make", [
    (gptq(4, 64), lambda i, o: packed_gptq(i, o, 4, 64)), (awq(4, 32), lambda i, o: packed_awq(i, o, 4, 32)),
    (NF4, lambda i, o: packed_nf4(i, o, False)), (NF4_DOUBLE, lambda i, o: packed_nf4(i, o, True)),
    (MXFP4, lambda i, o: {"up_blocks": torch.zeros(o, i // 32, 16, dtype=torch.uint8),
                          "up_scales": torch.zeros(o, i // 32, dtype=torch.uint8)}),
], ids=lambda value: getattr(value, "name", None))  # fmt: skip
def test_bytes_and_parameters_of_one_packed_matrix(format, make, tmp_path):
    """As the format says; bitsandbytes' JSON of types and shape is beside it."""
    tensors = make(320, 96)
    save_file({f"m.{name}": data for name, data in tensors.items()}, tmp_path / "x.safetensors")
    found = read(tmp_path / "x.safetensors")
    json_bytes = sum(entry.nbytes for entry in found.entries if "quant_state" in entry.name)
    assert found.all().bytes - json_bytes == format.nbytes(Tensor(("d", "f"), (320, 96), "matrix"), "file")
    assert [sorted(one.shape) for one in parameters(found).each] == [[96, 320]]


@pytest.mark.parametrize("tensors", [
    {"m.weight": torch.zeros(4, 4, dtype=torch.uint8)},
    {"m.qweight": torch.zeros(4, 4, dtype=torch.int32)},
    {"m.qweight": torch.zeros(4, 5, dtype=torch.int32), "m.scales": torch.zeros(2, 7)},
    {"m.weight_packed": torch.zeros(4, 4, dtype=torch.int32)},
    {"m.weight": torch.zeros(4, 1, dtype=torch.uint8),
     "m.weight.quant_state.bitsandbytes__nf4": torch.zeros(3, dtype=torch.uint8)},
    {"m.weight": torch.zeros(4, 1, dtype=torch.uint8),
     "m.weight.quant_state.bitsandbytes__nf4": torch.tensor(list(b'{"shape": [3, 5]}'), dtype=torch.uint8)},
], ids=str)  # fmt: skip
def test_integers_packed_in_an_unknown_way_are_refused(tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match=r"x\.safetensors: m\..*weight"):
        parameters(read(tmp_path))
