"""Every family by its ``model_type``; the file that a family stands in is imported when the family is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from .family import Family

FILES = {
    "articles": ("karpathy_nanochat", "mlp_mixer", "transformer"),
    "bidirectional": ("albert", "bert", "roberta", "vit"),
    "gpt": ("bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "phi"),
    "llama": (
        "cohere", "gemma", "gemma2", "gemma3_text", "granite", "llama", "mistral", "nanochat", "olmo", "olmo2", "phi3", "qwen2",
        "qwen3", "stablelm", "starcoder2",
    ),
    "mixtures": ("deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
    "seq2seq": ("bart", "t5", "whisper"),
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
