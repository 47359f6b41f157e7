"""Figures that other tools got wrong, and how each is asked of the command line: the public report stands above each."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from blockcalc import Step, trace
from blockcalc.blocks.mla import MLA
from blockcalc.blocks.mlp import MLP
from blockcalc.blocks.moe import MoE
from blockcalc.cli import main

GIB = 2**30


def model(kind: str, v: int, d: int, f: int, l: int, n: int, k: int, **more: Any) -> dict[str, Any]:
    """A config by its letters, as most families name them."""
    return {
        "model_type": kind, "vocab_size": v, "hidden_size": d, "intermediate_size": f, "num_hidden_layers": l,
        "num_attention_heads": n, "num_key_value_heads": k, "tie_word_embeddings": False, **more,
    }  # fmt: skip


LLAMA_7B = model("llama", 32000, 4096, 11008, 32, 32, 32)
LLAMA_3_8B = model("llama", 128256, 4096, 14336, 32, 32, 8)
LLAMA_3_70B = model("llama", 128256, 8192, 28672, 80, 64, 8)
LLAMA_2_70B = model("llama", 32000, 8192, 28672, 80, 64, 8)
LLAMA_405B = model("llama", 128256, 16384, 53248, 126, 128, 8)
MIXTRAL = model("mixtral", 32000, 4096, 14336, 32, 32, 8, num_local_experts=8, num_experts_per_tok=2)
MIXTRAL_22B = model("mixtral", 32000, 6144, 16384, 56, 48, 8, num_local_experts=8, num_experts_per_tok=2)
QWEN3_32B = model("qwen3", 151936, 5120, 25600, 64, 64, 8, head_dim=128)
GEMMA = model("gemma", 256000, 3072, 24576, 28, 16, 16, head_dim=256, tie_word_embeddings=True)
GEMMA_2 = model("gemma2", 256000, 3584, 14336, 42, 16, 8, head_dim=256, sliding_window=4096, tie_word_embeddings=True)
GEMMA_3_1B = model("gemma3_text", 262144, 1152, 6912, 26, 4, 1, head_dim=256, sliding_window=512, tie_word_embeddings=True)
GEMMA_3_27B = model("gemma3_text", 262208, 5376, 21504, 62, 32, 16, head_dim=128, sliding_window=1024, tie_word_embeddings=True)
GEMMA_3N = {
    "model_type": "gemma3n_text", "num_hidden_layers": 35, "num_kv_shared_layers": 15, "num_key_value_heads": 2,
    "head_dim": 256, "sliding_window": 512,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
V2_LITE = model(
    "deepseek_v2", 102400, 2048, 10944, 27, 16, 16, moe_intermediate_size=1408, n_shared_experts=2, n_routed_experts=64,
    num_experts_per_tok=6, first_k_dense_replace=1, q_lora_rank=None, n_group=1, topk_group=1, topk_method="greedy", **LATENT,
)  # fmt: skip
V3 = model(
    "deepseek_v3", 129280, 7168, 18432, 61, 128, 128, moe_intermediate_size=2048, n_shared_experts=1, n_routed_experts=256,
    num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536, n_group=8, topk_group=4, **LATENT,
)  # fmt: skip
OSS_20B = model(
    "gpt_oss", 201088, 2880, 2880, 24, 64, 8, head_dim=64, num_local_experts=32, num_experts_per_tok=4, sliding_window=128
)
OSS_120B = OSS_20B | {"num_hidden_layers": 36, "num_local_experts": 128}
LFM2 = {
    "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 12288, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
GPT2_XL = GPT2 | {"n_embd": 1600, "n_layer": 48, "n_head": 25}
MEGATRON = {"model_type": "gpt2", "vocab_size": 51200, "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_positions": 2048}
VIT = {
    "model_type": "vit", "image_size": 224, "patch_size": 16, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "num_labels": 1000,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "vocab_size": 51866, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
    "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
    "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448,
}  # fmt: skip


class Case(NamedTuple):
    """A question: commands (CONFIG is the path of the config), and how a user reads the number off their JSON."""

    sentence: str
    commands: tuple[str, ...]
    config: dict[str, Any] | None
    pick: Callable[..., Any]
    right: Any


def flops(found: Any) -> Any:
    return found["flops"]["total"]


def macs(found: Any) -> Any:
    return found["macs"]


def kv(found: Any) -> Any:
    return found["kv_cache"]["bytes"]


def kv_per_token(found: Any) -> Any:
    return found["kv_cache"]["bytes_per_token"]


def count(name: str) -> Callable[[Any], Any]:
    return lambda found: found["params"][name]


def matrices(found: Any, part: str) -> int:
    """The parameters under a part of the model that are multiplied: without norms and biases of their own path."""
    return sum(c["params"] for c in found["components"] if part in c["path"] and "norm" not in c["path"])


CASES = (
    # https://github.com/cli99/llm-analysis/issues/18
    Case(
        # 2·512·2·1024 of the input, 2·512·2 each of the mean and of 1/std
        "a LayerNorm keeps its input and two statistics a row, 2 bytes an element in bf16",
        ("activations layernorm --set d=1024 --batch 2 --seq 512 --dtype bf16",), None,
        lambda found: found["activations"]["bytes"], 2_101_248,
    ),
    # https://github.com/pytorch/torchtitan/issues/452 pull/280 pull/274
    Case(
        "the input table of Llama-3-8B is no work: 6(N − table) + 12·l·n·h·s a token",
        ("flops CONFIG --mode train --seq 8192 --convention torchtitan",), LLAMA_3_8B,
        lambda found: flops(found) / 8192, 57_914_449_920,
    ),
    # https://github.com/ROCm/aiter/pull/5665
    Case(
        # a block of width 1: 2·4·t of its projections, 4 a pair
        "32,768 tokens in a window of 1,024 make W(W+1)/2 + (S−W)W pairs a head, not half a square",
        ("flops window --set d=1 --set n=1 --set k=1 --set h=1 --set w=1024 --seq 32768 --convention exact",), None,
        lambda found: (flops(found) - 8 * 32768) / 4, 33_030_656,
    ),
    # https://github.com/alibaba/Pai-Megatron-Patch/issues/485, https://github.com/deepspeedai/Megatron-DeepSpeed/issues/398,
    # https://github.com/AI-Hypercomputer/maxtext/pull/4017
    Case(
        "DeepSeek-V2-Lite's experts are 1,408 wide: 6·2·d·1408·(6 + 2) a token, routed and shared",
        ("explain CONFIG decoder.moe.mlp --set num_hidden_layers=2 --seq 128",), V2_LITE,
        lambda found: sum(one["flops_value"] for one in found["explained"] if "router" not in one["path"]), 17_716_740_096,
    ),
    # https://github.com/AI-Hypercomputer/maxtext/pull/678, https://github.com/snowflakedb/ArcticTraining/pull/289
    Case(
        "a training step of Mixtral costs its 2 active experts, not all 8",
        ("flops CONFIG --mode train --seq 1024 --convention torchtitan",), MIXTRAL, flops, 79_978_221_797_376,
    ),
    # https://github.com/NVIDIA/Megatron-LM/issues/1475
    Case(
        "DeepSeek-V3's latent projections cost 374 MFLOP a token and layer, multi-head ones would 940",
        ("params CONFIG --set num_hidden_layers=1",), V3, lambda found: 2 * matrices(found, ".attention."), 374_210_560,
    ),
    # https://github.com/sovrasov/flops-counter.pytorch/issues/65, https://github.com/lartpang/MethodsCmp/issues/1
    Case(
        "nn.MultiheadAttention does 4·s·d² + 2·s²·d multiply-adds, not 0",
        ("flops mha-biased --set d=512 --set n=4 --seq 580",), None, macs, 952_647_680,
    ),
    # https://github.com/MrYxJ/calculate-flops.pytorch/issues/56, https://github.com/TylerYep/torchinfo/issues/226,
    # https://github.com/NVIDIA/Model-Optimizer/issues/387
    Case("ViT-B/16 does 17.56 G multiply-adds an image, twice as many FLOPs", ("flops CONFIG",), VIT, macs, 17_563_828_224),
    # https://github.com/MrYxJ/calculate-flops.pytorch/issues/28
    Case("Gemma-7B at 128 tokens: 2.19 TFLOP forward", ("flops CONFIG --seq 128",), GEMMA, flops, 2_193_117_675_520),
    Case("and 8.54 G parameters, its tied head once", ("params CONFIG",), GEMMA, count("total"), 8_537_680_896),
    # https://github.com/MrYxJ/calculate-flops.pytorch/issues/30, https://github.com/Lightning-AI/litgpt/pull/420,
    # https://github.com/NVIDIA-NeMo/Automodel/pull/786, https://github.com/Lyken17/pytorch-OpCounter/issues/194
    Case(
        "with LoRA on q and v a step costs 1.99 × forward: frozen weights have no gradient, nor has the first layer's input",
        ("flops CONFIG --mode train --seq 512 --lora 16:q_proj,v_proj",), LLAMA_7B | {"num_hidden_layers": 8},
        flops, 3_639_850_565_632,
    ),
    # https://github.com/deepspeedai/Megatron-DeepSpeed/issues/98, https://github.com/deepspeedai/DeepSpeed/issues/2565
    Case(
        "an 18.4B GPT at 50.51 samples a second on 128 GPUs: 94.27 TFLOP/s of model, 125.18 with recomputation",
        tuple(f"flops CONFIG --mode train --convention megatron-{year}" for year in (2022, 2021)), MEGATRON,
        lambda *found: tuple(round(flops(one) * 50.51 / 128 / 1e12, 2) for one in found), (94.27, 125.18),
    ),
    # https://github.com/EleutherAI/cookbook/pull/31, issues/17, issues/2
    Case(
        # 3·10¹¹ tokens are 146,484,375 sequences of 2,048
        "a 20B GPT trained on 300 G tokens costs 3.84e22 FLOPs: three passes, not four",
        ("flops CONFIG --set n_layer=44 --mode train --convention megatron-2022",), MEGATRON,
        lambda found: flops(found) * 146_484_375, 38_435_762_995_200_000_000_000,
    ),
    # https://github.com/vllm-project/vllm/pull/19290
    Case(
        "Gemma-2-9B's projections: 2·(3584·256·(16 + 2·8) + 16·256·3584) a token and layer, its heads are wider than d/n",
        ("params CONFIG --set num_hidden_layers=1",), GEMMA_2, lambda found: 2 * matrices(found, ".attention."), 88_080_384,
    ),
    # https://github.com/SemiAnalysisAI/InferenceX-app/pull/849
    Case(
        "each further visible token costs a decode step 4·n·h a layer, however few the key-value heads",
        tuple(f"flops CONFIG --set num_hidden_layers=1 --mode decode --context {s}" for s in (1000, 1001)), LLAMA_3_70B,
        lambda before, after: flops(after) - flops(before), 32_768,
    ),
    # https://github.com/alvarobartt/hf-mem/issues/60
    Case(
        "below the window all 36 layers of gpt-oss-120b grow, not only the full ones",
        ("kv CONFIG --context 64",), OSS_120B, kv_per_token, 73_728,
    ),
    # https://github.com/alvarobartt/hf-mem/pull/70, https://github.com/vllm-project/vllm/issues/16118
    Case(
        "gpt-oss-20b, 32 sequences of 8,192: 6.09 GiB where window layers hold 128, 12 GiB where pages are unified",
        ("kv CONFIG --batch 32 --context 8192", "kv CONFIG --batch 32 --context 8192 --policy unified"), OSS_20B,
        lambda *found: tuple(map(kv, found)), (6_543_114_240, 12 * GIB),
    ),
    # https://github.com/gpustack/gguf-parser-go/issues/32
    Case("gpt-oss-20b at 131,072: 3.00 GiB, not 6", ("kv CONFIG --context 131072 --dtype fp16",), OSS_20B, kv, 3_224_371_200),
    # https://github.com/gpustack/gguf-parser-go/issues/8, https://github.com/vllm-project/vllm/issues/44376,
    # https://github.com/ggml-org/llama.cpp/pull/19067
    Case("DeepSeek-V3 at 65,536: 4.29 GiB of latents", ("kv CONFIG --context 65536",), V3, kv, 4_605_345_792),
    # https://github.com/LMCache/LMCache/pull/694
    Case("the latent of DeepSeek-V3 is cached once, not as keys and as values", ("kv CONFIG",), V3, kv_per_token, 70_272),
    # https://github.com/QingyaFan/blog/issues/190
    Case("Qwen3-32B's heads are 128 wide, not 5120/64", ("kv CONFIG",), QWEN3_32B, kv_per_token, 262_144),
    # https://github.com/rohitg00/ai-engineering-from-scratch/pull/57
    Case("LLaMA-7B at 32,768: 16 GiB", ("kv CONFIG --context 32768 --dtype fp16",), LLAMA_7B, kv, 16 * GIB),
    # https://github.com/hahnyuan/LLM-Viewer/issues/12
    Case(
        "a decode step of Llama-2-70B reads the cache of 8 heads, not of 64",
        ("kv CONFIG --context 2048 --dtype fp16",), LLAMA_2_70B, kv, 671_088_640,
    ),
    # https://github.com/lablup/mlxcel/pull/172
    Case("Gemma-3-1B at 32,768: 139 MiB, not 832", ("kv CONFIG --context 32768",), GEMMA_3_1B, kv, 145_752_064),
    # https://github.com/vllm-project/vllm-metal/pull/269, https://github.com/google/gemma.cpp/pull/1012,
    # https://github.com/gpustack/gguf-parser-go/issues/32
    Case(
        # 4·2048·32768 + 16·2048·512
        "Gemma 3n at 32,768: 272 MiB, for 20 of its 35 layers own a cache and 16 of these a window",
        ("kv CONFIG --context 32768",), GEMMA_3N, kv, 285_212_672,
    ),
    # https://github.com/NVIDIA/TensorRT-LLM/issues/19514, pull/19516, https://github.com/vllm-project/vllm/pull/23664
    Case(
        "Whisper's decoder attends to 1,500 encoder positions: 234 MiB, besides 70 MiB for its own 448 tokens",
        ("kv CONFIG --context 448 --dtype fp16",), WHISPER,
        lambda found: (found["kv_cache"]["by_kind"]["cross"], found["kv_cache"]["by_kind"]["full"]), (245_760_000, 73_400_320),
    ),
    # https://github.com/vllm-project/vllm/issues/16118, pull/16168, https://github.com/ai-dynamo/aiconfigurator/pull/1201,
    # https://github.com/vllm-project/vllm/issues/51041
    Case(
        "9.97 GiB hold 125,353 tokens of Gemma-3-27B and not one more",
        ("kv CONFIG --context 125353", "kv CONFIG --context 125354"), GEMMA_3_27B,
        lambda *found: tuple(kv(one) <= 9.97 * GIB for one in found), (True, False),
    ),
    # https://github.com/gpustack/gguf-parser-go/issues/31
    Case(
        "six of the sixteen layers of LFM2-1.2B have keys and values: 384 MiB, besides what the convolutions hold",
        ("kv CONFIG --context 32768 --dtype fp16",), LFM2, lambda found: found["kv_cache"]["by_kind"]["full"], 402_653_184,
    ),
    # https://github.com/huggingface/blog/issues/2345
    Case("Llama-3.1-405B has 8 key-value heads, not 16", ("kv CONFIG --dtype fp16",), LLAMA_405B, kv_per_token, 516_096),
    # https://github.com/EleutherAI/cookbook/pull/37
    Case(
        "both keys and values of 80 layers are kept for 1,025 tokens",
        ("kv CONFIG --context 1025",), model("qwen2", 152064, 8192, 24576, 80, 64, 64), kv, 2_686_976_000,
    ),
    # https://github.com/alvarobartt/hf-mem/issues/33, https://github.com/pytorch/torchtitan/issues/94,
    # https://github.com/rasbt/LLMs-from-scratch/pull/875
    Case(
        "Llama-3-8B in bf16 is 16.06 GB, which is 14.96 GiB",
        ("params CONFIG",), LLAMA_3_8B, lambda found: 2 * found["params"]["total"], 16_060_522_496,
    ),
    # https://github.com/mistralai/platform-docs-public/pull/44
    Case(
        "Mixtral-8x22B is 140.6 G parameters, 39.2 G of them active, not 8 × 22",
        ("params CONFIG",), MIXTRAL_22B, lambda found: (found["params"]["total"], found["params"]["active"]),
        (140_620_634_112, 39_152_031_744),
    ),
    # https://github.com/inference-sim/inference-sim/issues/559
    Case("a token uses 12.9 G of Mixtral's 46.7 G", ("params CONFIG",), MIXTRAL, count("active"), 12_879_925_248),
    # https://github.com/deepseek-ai/DeepSeek-V3/issues/231
    Case(
        "a token uses 37.55 G of DeepSeek-V3, 36.63 G without the input table",
        ("params CONFIG",), V3, lambda found: (found["params"]["active"], found["params"]["active_without_input"]),
        (37_552_282_624, 36_625_603_584),
    ),
    # https://github.com/pytorch/torchtitan/pull/4300
    Case(
        "a token uses 3.61 G of gpt-oss-20b, biases of the experts in, input table out",
        ("params CONFIG",), OSS_20B, count("active_without_input"), 3_608_307_264,
    ),
    # https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/99
    Case("the tied table of GPT-2 XL counts once", ("params CONFIG",), GPT2_XL, count("total"), 1_557_611_200),
    # https://github.com/NVIDIA/Megatron-LM/pull/1345, https://github.com/cli99/llm-analysis/issues/19
    Case(
        "65 RMSNorms have 266,240 gains, half of what LayerNorms have",
        ("params CONFIG",), LLAMA_7B,
        lambda found: sum(c["params"] for c in found["components"] if c["path"].endswith("norm")), 266_240,
    ),
    # https://github.com/tenstorrent/vllm/pull/50, https://github.com/huggingface/transformers/pull/47811
    Case(
        "32 tensor ranks over 8 key-value heads hold one head each, 40,960 bytes a token",
        ("memory CONFIG --serve --tp 32 --context 64",), LLAMA_3_70B, lambda x: x["memory"]["ranks"][0]["kv_per_token"], 40_960,
    ),
    # https://github.com/huggingface/transformers/pull/48566, https://github.com/tenstorrent/tt-xla/issues/5728
    Case(
        "four tensor ranks hold a quarter of Qwen3-32B's cache, 65,536 bytes a token",
        ("memory CONFIG --serve --tp 4 --context 64",), QWEN3_32B, lambda x: x["memory"]["ranks"][0]["kv_per_token"], 65_536,
    ),
    # https://github.com/ModelEngine-Group/unified-cache-management/issues/1217
    Case(
        "data parallelism does not shrink the cache of one request: 262,144 · 8192 / 4 bytes",
        ("memory CONFIG --serve --tp 4 --dp 2 --context 8192",), QWEN3_32B,
        lambda x: x["memory"]["parts"]["kv_cache"], 536_870_912,
    ),
    # https://github.com/deepspeedai/DeepSpeed/issues/3619
    Case(
        "one of eight expert ranks holds an eighth of Mixtral's experts and all of the rest",
        ("memory CONFIG --train --dp 8 --ep 8",), MIXTRAL, lambda x: x["memory"]["ranks"][0]["parameters"], 7_242_780_672,
    ),
    # https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5077
    Case(
        "the heaviest of uneven stages is the last: 9 layers, the norm and the head",
        ("memory CONFIG --train --pp 4 --stages 7,8,8,9",), LLAMA_3_8B,
        lambda x: max(rank["parameters"] for rank in x["memory"]["ranks"]), 2_488_348_672,
    ),
    # https://github.com/karpathy/llm.c/pull/755
    Case(
        "a gate of 768 × 3,072 in each of 12 layers makes GPT-2 152.8 M parameters",
        ("params CONFIG", "params gated-mlp --set d=768 --set f=3072", "params mlp --set d=768 --set f=3072"), GPT2,
        lambda gpt, gated, plain: (
            gpt["params"]["total"] + 12 * (gated["params"]["total"] - plain["params"]["total"])
        ), 152_751_360,
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.sentence for case in CASES])
def test_the_command_line_gives_the_right_value_where_another_tool_did_not(case, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(case.config), encoding="utf-8")
    answers = []
    for command in case.commands:
        words = [str(path) if word == "CONFIG" else word for word in command.split()]
        result = CliRunner().invoke(main, [*words, "--json"])
        assert result.exit_code == 0, result.output
        answers.append(json.loads(result.stdout))
    assert case.pick(*answers) == case.right


def test_four_queries_at_the_end_of_ten_keys_see_34_pairs():
    # https://github.com/facebookresearch/xformers/pull/1402, issues/1033: 2·(7 + 8 + 9 + 10)·(8 + 16), not 2·40·(8 + 16)
    budget = trace(MLA(n=1, c=1, q=None, p=4, r=4, u=16), Step.prefill(1, 4, 10), d=1)
    lines = [line for line in budget.lines if line.kind == "attention"]
    assert sum(2 * line.visible * line.forward for line in lines) == 1632
    assert sum(2 * line.pairs * line.forward for line in lines) == 1920


def test_two_of_eight_plain_experts_cost_twice_one_and_the_router_is_counted_in_each_layer():
    # https://github.com/EleutherAI/cookbook/blob/main/calc/calc_transformer_flops.py: 2·16·l·d², and 2·e·d·l of the router
    layers, d = 32, 4096
    budget = trace(MoE(e=8, a=2, expert=MLP(f=4 * d)), Step.forward(1, 1), d)
    router = sum(2 * line.copies * line.forward for line in budget.lines if line.kind == "router")
    assert layers * (2 * budget.work().forward - router) == 17_179_869_184
    assert layers * router == 2_097_152
