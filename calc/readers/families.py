"""Every family by its ``model_type``; the file that a family stands in is imported when the family is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from .family import Family

FILES = {
    "articles": ("karpathy_nanochat", "mlp_mixer", "transformer"),
    "bidirectional": (
        "albert", "bert", "camembert", "dinov2", "distilbert", "electra", "modernbert", "mpnet", "nomic_bert",
        "roberta", "vit", "xlm-roberta", "xlm-roberta-xl",
    ),
    "contrastive": ("clip", "clip_text_model", "clip_vision_model"),
    "convolutions": ("lfm2", "lfm2_moe"),
    "dense": (
        "arcee", "cohere2", "cwm", "exaone", "exaone4", "glm", "glm4", "helium", "hunyuan_v1_dense", "internlm3", "ministral",
        "ministral3", "nemotron", "olmo3", "persimmon", "seed_oss", "smollm3", "vaultgemma",
    ),
    "experts": ("dbrx", "ernie4_5", "ernie4_5_moe", "exaone_moe", "hunyuan_v1_moe", "llama4_text"),
    "gemma": ("gemma3n_text", "gemma4_text"),
    "gpt": (
        "biogpt", "bloom", "codegen", "ctrl", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt",
        "phi", "xglm",
    ),
    "hybrids": ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    "llama": (
        "cohere", "gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "nanochat", "olmo", "olmo2", "phi3", "qwen2",
        "qwen3", "stablelm", "starcoder2",
    ),
    "mixtures": (
        "deepseek_v2", "deepseek_v3", "dots1", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "gpt_oss",
        "granitemoe", "granitemoeshared", "hy_v3", "minimax_m2", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe",
        "qwen3_vl_moe_text",
    ),
    "state_space": (
        "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "mamba", "mamba2", "nemotron_h",
    ),
    "seq2seq": (
        "bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5", "whisper",
    ),
}  # fmt: skip
"""The families of each file."""


class Families(Mapping[str, Family]):
    """The families by ``model_type``, in alphabetical order."""

    def __init__(self) -> None:
        self._home = dict(sorted((kind, file) for file, kinds in FILES.items() for kind in kinds))

    def __getitem__(self, kind: str) -> Family:
        family: Family = import_module(f".{self._home[kind]}", __package__).FAMILIES[kind]
        return family

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, kind: object) -> bool:
        return kind in self._home


FAMILIES = Families()
