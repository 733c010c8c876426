"""A model of the hub is in the cache before a run's processes ask for it, or the run says why it is not."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aworld_train.model.files import fetch
from tests.hub import REPOSITORY, REVISION, hub

FETCH = """
import sys
from aworld_train.errors import ModelError
from aworld_train.model.files import fetch, local_folder
try:
    print(fetch(sys.argv[1], lambda line: print(line, file=sys.stderr)), local_folder(sys.argv[1]))
except ModelError as error:
    print(error.message)
"""
FILES = {
    "config.json": b"{}",
    "tokenizer_config.json": b"{ }",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights",
    "model.gguf": b"for another program",
}


def fetched(home: Path, endpoint: str, **more: str) -> str:
    """What comes of it in a process of its own: the library reads its settings when it is loaded."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", FETCH, REPOSITORY],
        env={**variables, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_what_a_run_reads_is_fetched_once(tmp_path: Path, weights: str) -> None:
    files = (
        FILES
        if weights.endswith("safetensors")
        else {name: content for name, content in FILES.items() if not name.endswith("safetensors")}
    )
    folder = tmp_path / "hub" / "models--someone--tasks" / "snapshots" / REVISION
    read: list[str] = []
    with hub(files, read) as endpoint:
        for _ in range(2):
            assert fetched(tmp_path, endpoint) == f"True {folder}"
    expected = sorted({weights, "config.json", "tokenizer_config.json", "chat_template.jinja"})
    assert sorted(read) == expected == sorted(path.name for path in folder.iterdir())


def test_a_model_that_cannot_be_fetched_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        message = fetched(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert message.startswith(f"The model {REPOSITORY} could not be fetched: ")
    assert "HF_TOKEN" in message and "model.path" in message


def test_nothing_is_fetched_offline_or_of_a_directory(tmp_path: Path) -> None:
    assert fetched(tmp_path, "http://127.0.0.1:1", HF_HUB_OFFLINE="1") == "False None"
    assert not fetch(str(tmp_path), pytest.fail)
