"""From a config.json to a Model. The only place that knows Hugging Face's field names.

``config`` holds the rules by which a field is read, ``families`` which field each family reads, and ``decoder``,
``encoder`` and ``encoder_decoder`` build the Model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..model import Model
from .config import Reading, Rule, printable, read_json, shown
from .families import FAMILIES

if TYPE_CHECKING:
    from pathlib import Path

# Fields of architectures that no family here reads: with a value, they change what is counted.
FOREIGN = frozenset((
    "text_config", "vision_config", "audio_config", "encoder", "decoder", "ssm_cfg", "state_size", "layers_block_type",
    "num_kv_shared_layers", "hybrid_override_pattern", "mamba_d_state", "index_topk",
    "cross_attention_layers", "word_embed_proj_dim", "adapter_layers", "lora_rank", "per_layer_config", "altup_num_inputs",
))  # fmt: skip


def find(model: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the config of a preset, a config.json, a folder that holds one, or a mapping of config fields."""
    if isinstance(model, Mapping):
        return "config", dict(model)
    from ..tables import presets

    named = presets()
    if isinstance(model, str) and model in named:
        return model, dict(named[model]["config"])
    from pathlib import Path

    path, where = Path(model), printable(str(model))
    try:
        folder = path.is_dir()
        path = path / "config.json" if folder else path
        exists = path.exists() or (None if folder else False)
    except (OSError, ValueError):
        exists = False
    if exists is None:
        raise InputError(f"{where}: a folder without a config.json")
    if not exists:
        raise InputError(f"{where}: no such file, folder, preset or block{_near(where, named)}")
    return where, read_json(path)


def _near(name: str, names: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), names, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"{hint} 'blockcalc models' lists the presets"


def load(model: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Model:
    """The Model of a preset's name, a path to a config.json or its folder, or a mapping of config fields.

    *changes* override fields by their config names. Raises InputError, in one line that names the file and the field,
    for whatever cannot be counted exactly.

    >>> load("gpt2").stack.layers[0].l
    12
    """
    where, config = find(model)
    from ..tables import presets

    known = isinstance(model, str) and model in presets() and not changes
    _refuse_mistyped(config, changes or {}, where)
    return read({**config, **(changes or {})}, where, known=known)


def _refuse_mistyped(config: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Refuse to set a field that neither the config nor its family has: what is set by hand is meant to count."""
    kind = changes.get("model_type", config.get("model_type"))
    if not changes or not isinstance(kind, str) or kind not in FAMILIES:
        return
    fields = known_fields(config, kind)
    for field in changes:
        if field not in fields:
            from difflib import get_close_matches

            near = get_close_matches(field, fields, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InputError(f"{where}: {printable(field)}: a {kind} config has no such field{hint}")


def known_fields(config: Mapping[str, Any], kind: str | None = None) -> frozenset[str]:
    """The fields that may be set: those that the config has, and those that its family (or another, *kind*) reads."""
    knobs = FAMILIES[kind or config["model_type"]].knobs
    fields = {"model_type", "architectures", "num_labels", "id2label", *knobs["also"], *config}
    return frozenset(fields.union(*(rule.fields for rule in knobs.values() if isinstance(rule, Rule))))


def read(config: Mapping[str, Any], where: str, *, known: bool = False) -> Model:
    """The Model of a config's fields. *where* names their source in errors; *known* ones, the presets', have no field that
    its family does not read."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        found = "nothing" if kind is None else shown(kind)
        part = config.get("text_config")
        inner = part.get("model_type") if isinstance(part, dict) else None
        if isinstance(inner, str) and inner in FAMILIES:
            raise InputError(
                f"{where}: model_type: found {found}, a model of several parts; its text_config, a {inner}, can be read as a"
                " config of its own"
            )
        raise InputError(f"{where}: model_type: found {found}, expected one of {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    reading = Reading(family.knobs, config, where)
    try:
        if not known:
            refuse_unread(reading)
        return family.build(reading)
    except InputError as error:
        text = str(error) if str(error).isprintable() else printable(str(error))
        raise InputError(text if text.startswith(f"{where}: ") else f"{where}: {text}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be a config") from None


def refuse_unread(reading: Reading) -> None:
    """Refuse a field that changes some family's count, has a value, and is not read by this one; read those that have one."""
    read: set[str] = {"model_type", *reading.knobs["also"]}
    for knob, rule in reading.knobs.items():
        if isinstance(rule, Rule):
            read.update(rule.fields)
            if rule.always or any(reading.config.get(field) is not None for field in rule.fields):
                getattr(reading, knob)
    for field, value in reading.config.items():
        if field not in read and value not in (None, False, 0, [], {}) and field in _structural():
            raise InputError(
                f"{reading.where}: {field}: a {reading.config['model_type']} config has no such field, and it would change"
                " the count; remove it, or set it to null"
            )


_STRUCTURAL: set[str] = set()


def _structural() -> set[str]:
    if not _STRUCTURAL:
        _STRUCTURAL.update(FOREIGN)
        for family in FAMILIES.values():
            for rule in family.knobs.values():
                if isinstance(rule, Rule):
                    _STRUCTURAL.update(rule.fields)
    return _STRUCTURAL
