"""A trained model's folder as other versions and programs read it.

transformers 5 writes tokenizers under a class that transformers 4 does not know, and configurations in new keys, of
which older readers silently take defaults. VeRL names bfloat16 whatever the weights are. So the input model's own files
replace those written anew, and the configuration has both notations and the dtype of its weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aworld_train.atomic import write_bytes, write_text
from aworld_train.model.weights import dtype_of

CONFIG = "config.json"
_INPUT_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
    *("*.model", "*.tiktoken", "tekken.json", "generation_config.json"),
    *("*.jinja", "additional_chat_templates/*.jinja", "chat_template.json"),
    *("processor_config.json", "*preprocessor_config.json"),
)
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json")
_ROPE = ("rope_", "rotary_", "partial_rotary_factor")


def make_portable(folder: Path, source: Path | None) -> None:
    """Make a trained model's folder load wherever its input model does; without ``source`` its tokenizer stays as it
    is."""
    config_file = folder / CONFIG
    mode = config_file.stat().st_mode & 0o777
    config = json.loads(config_file.read_text(encoding="utf-8"))
    before: Mapping[str, Any] = {}
    if source is not None:
        _take_files(source, folder, mode)
        before = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    written = in_both_notations(config, before, dtype_of(folder))
    write_text(config_file, json.dumps(written, indent=2, sort_keys=True) + "\n", mode)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(mode)  # safetensors makes a file that only its owner can read, whatever the umask


def is_portable(folder: Path) -> bool:
    return "torch_dtype" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def _take_files(source: Path, folder: Path, mode: int) -> None:
    taken = {
        file.relative_to(source)
        for pattern in (*_INPUT_FILES, "*.py")
        for file in source.glob(pattern)
        if file.is_file()
    }
    if taken.intersection(map(Path, _TOKENIZERS)):
        for pattern in _INPUT_FILES:
            for file in folder.glob(pattern):
                if file.is_file() and file.relative_to(folder) not in taken:
                    file.unlink()
    for name in taken:
        (folder / name).parent.mkdir(exist_ok=True)
        write_bytes(folder / name, (source / name).read_bytes(), mode)


def in_both_notations(config: Mapping[str, Any], before: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """A configuration of transformers 5 in both notations; missing keys for positions come from the input model's."""
    written = dict(config)
    # How this process computes attention is nothing that others can do.
    written.pop("attn_implementation", None)
    written |= {key: value for key, value in before.items() if key.startswith(_ROPE) and key not in config}
    written |= {"dtype": dtype, "torch_dtype": dtype}
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        scaling = {
            key: value for key, value in rope.items() if not key.startswith(("rope_theta", "partial_"))
        }
        plain = not scaling.keys() - {"rope_type"} and scaling.get("rope_type", "default") == "default"
        written |= {"rope_theta": rope["rope_theta"], "rope_scaling": None if plain else scaling}
        if "partial_rotary_factor" in rope:
            written["partial_rotary_factor"] = rope["partial_rotary_factor"]
    for key, section in config.items():
        if isinstance(section, dict) and "model_type" in section:
            written[key] = in_both_notations(section, before.get(key) or {}, dtype)
    return written
