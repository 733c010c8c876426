"""A trained model's folder: whose files it has, and what its configuration says in which notation."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aworld_train.model.portable import in_both_notations, is_portable, make_portable

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3]}


@pytest.mark.parametrize(
    ("written", "before", "expected"),
    [
        pytest.param(
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
            {"rope_theta": 1e4},
            {"rope_theta": 1e6, "rope_scaling": None},
            id="theta",
        ),
        pytest.param(
            {"rope_parameters": {"rope_theta": 5e5, **YARN}},
            {},
            {"rope_theta": 5e5, "rope_scaling": YARN},
            id="yarn",
        ),
        pytest.param(
            {"rope_parameters": {"rope_theta": 1e6, **MROPE}},
            {},
            {"rope_theta": 1e6, "rope_scaling": MROPE},
            id="positions-of-images",
        ),
        pytest.param(
            {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}},
            {},
            {"rope_theta": 1e4, "rope_scaling": None, "partial_rotary_factor": 0.5},
            id="partial",
        ),
        pytest.param(
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e6},
                    "sliding_attention": {"rope_theta": 1e4},
                }
            },
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "hidden_size": 8},
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
            id="by-kind-of-layer",
        ),
        pytest.param({"hidden_size": 8}, {}, {}, id="without-positions"),
    ],
)
def test_both_notations_say_the_same_at_the_top_and_in_parts(
    written: dict[str, Any], before: dict[str, Any], expected: dict[str, Any]
) -> None:
    written["dtype"] = "bfloat16"
    both = {"dtype": "float32", "torch_dtype": "float32"}
    assert in_both_notations(written, before, "float32") == written | expected | both
    whole = {
        "text_config": {**written, "model_type": "text"},
        "quantization_config": {"bits": 8},
        "attn_implementation": "torch_varlen",
    }
    nested = in_both_notations(whole, {"text_config": before}, "float32")
    assert nested == both | {
        "text_config": {**written, "model_type": "text", **expected, **both},
        "quantization_config": {"bits": 8},
    }
    assert in_both_notations(nested, {}, "float32") == nested


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        file = path / name.replace("__", "/").replace("_json", ".json").replace("_jinja", ".jinja")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """As VeRL leaves it."""
    made = folder(
        tmp_path / "trained",
        config_json='{"dtype": "bfloat16"}',
        tokenizer_config_json='{"tokenizer_class": "TokenizersBackend"}',
        tokenizer_json="anew",
        chat_template_jinja="anew",
        special_tokens_map_json="anew",
        generation_config_json="anew",
    )
    save_file({"w": torch.zeros(2)}, made / "model.safetensors")
    (made / "modeling_own.py").write_text("from VeRL")
    return made


def test_the_input_models_files_are_there_byte_for_byte_and_no_others(trained: Path, tmp_path: Path) -> None:
    files = {
        "tokenizer_config_json": '{"chat_template": "x",\r\n "tokenizer_class": "Qwen2Tokenizer"}',
        "tokenizer_json": "{}",
        "vocab_json": "{}",
        "generation_config_json": '{"top_k": 20}',
        "additional_chat_templates__tool_use_jinja": "a template",
    }
    blobs = folder(tmp_path / "blobs", **files)
    snapshot = tmp_path / "snapshot"  # as the hub's cache has it
    for file in [path for path in blobs.rglob("*") if path.is_file()]:
        link = snapshot / file.relative_to(blobs)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    folder(snapshot, config_json="{}", trainer_state_json="{}", adapter_config_json="{}")
    assert not is_portable(trained)
    for _ in range(2):
        make_portable(trained, snapshot)
        names = {str(file.relative_to(trained)) for file in trained.rglob("*") if file.is_file()}
        taken = {str(file.relative_to(blobs)) for file in blobs.rglob("*") if file.is_file()}
        assert names == taken | {"config.json", "model.safetensors", "modeling_own.py"}
        assert all((trained / name).read_bytes() == (blobs / name).read_bytes() for name in taken)
        assert not any((trained / name).is_symlink() for name in taken)
        assert json.loads((trained / "config.json").read_text())["torch_dtype"] == "float32"
        assert is_portable(trained)


@pytest.mark.parametrize("source", ["none", "without a tokenizer"])
def test_a_tokenizer_that_was_not_in_the_input_models_folder_is_kept(
    source: str, trained: Path, tmp_path: Path
) -> None:
    before = {file.name: file.read_bytes() for file in trained.glob("*token*")}
    make_portable(trained, None if source == "none" else folder(tmp_path / "empty", config_json="{}"))
    assert {file.name: file.read_bytes() for file in trained.glob("*token*")} == before


def test_who_may_read_the_configuration_may_read_the_weights(trained: Path) -> None:
    (trained / "config.json").chmod(0o640)
    make_portable(trained, None)
    modes = {(trained / name).stat().st_mode & 0o777 for name in ("config.json", "model.safetensors")}
    assert modes == {0o640}
