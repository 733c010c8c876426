"""The rollout server: one Ray actor that turns VeRL's generation requests into steps of the continuous batcher.

Only one worker thread uses the batcher, one call at a time, so nothing is decoded while weights load.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.verl.cpu import threads_per_process
from aworld_train.adapter.verl.cpu.batching import ContinuousBatcher, GenerationRequest
from aworld_train.adapter.verl.cpu.sampling import GenerationParams

_MEMORY_SHARE = 0.15  # of the machine's memory for keys and values, over all replicas on it


class TransformersServer:
    """Serves one replica of the model; ``replica_rank`` is part of the sampler's seed."""

    def __init__(self, config: RolloutConfig, model_config: Any, replica_rank: int, replicas: int):
        from transformers import AutoModelForCausalLM
        from verl.utils.config import omega_conf_to_dataclass

        self.config = config
        loaded: HFModelConfig = omega_conf_to_dataclass(model_config)
        self._worker = ThreadPoolExecutor(
            1,
            thread_name_prefix="decode",
            initializer=torch.set_num_threads,
            initargs=(threads_per_process(replicas),),
        )
        torch.set_num_threads(threads_per_process(replicas))
        model = AutoModelForCausalLM.from_pretrained(
            loaded.local_path, dtype=torch.float32, trust_remote_code=loaded.trust_remote_code
        ).eval()
        self._max_length = config.max_model_len or config.prompt_length + config.response_length
        self._batcher = ContinuousBatcher(
            model,
            eos_ids=eos_token_ids(loaded),
            max_running=config.max_num_seqs,
            max_length=self._max_length,
            kv_budget_bytes=int(psutil.virtual_memory().total * _MEMORY_SHARE / replicas),
            seed=config.seed + replica_rank,
            text_of=partial(loaded.tokenizer.decode, skip_special_tokens=True) if loaded.tokenizer else None,
        )
        self._incoming: list[GenerationRequest] = []  # arrived since the worker's last step
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._loop_task: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._weights_whole = asyncio.Event()
        self._weights_whole.set()
        self._rejecting = False
        self._global_steps: int | None = None

    async def ready(self) -> bool:
        return True

    async def until_the_end(self) -> None:
        """Run for as long as this process lives; see ``samplers`` and ``liveness``."""
        await asyncio.Event().wait()

    async def generate(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        sampling_params: dict[str, Any],
        image_data: Any = None,
        video_data: Any = None,
        **unused: Any,
    ) -> TokenOutput:
        """Sample tokens after ``prompt_ids``; ValueError for images and for parameters that are not supported."""
        if image_data or video_data:
            raise ValueError(
                "the transformers engine serves text only; use rollout.engine=vllm for images and video"
            )
        if self._rejecting:
            raise RuntimeError("the rollout server takes no requests now")
        while not self._open.is_set():  # it may be closed again before this request continues
            await self._open.wait()
        prompt = [int(token) for token in prompt_ids]
        room = self._max_length - len(prompt)
        params = GenerationParams.parse(
            sampling_params, default_max_tokens=max(1, min(self.config.response_length, room))
        )
        request = GenerationRequest(
            request_id, prompt, params, versions=(self._global_steps, self._global_steps)
        )
        if params.prompt_logprobs is not None:
            return await self._scored(request)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batcher.check(request)
        self._incoming.append(request)
        self._futures[id(request)] = future
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.get_running_loop().create_task(self._run())
        try:
            await future
        finally:
            self._futures.pop(id(request), None)
        first, last = request.versions
        return TokenOutput(
            token_ids=request.tokens,
            log_probs=request.logprobs if sampling_params.get("logprobs", True) else None,
            stop_reason="aborted" if request.finish_reason == "aborted" else "completed",
            extra_fields={
                "global_steps": first,
                "min_global_steps": first,
                "max_global_steps": last,
                "num_cached_tokens": request.reused_tokens,
                "top_logprobs": request.top_logprobs,
            },
        )

    async def _scored(self, request: GenerationRequest) -> TokenOutput:
        await self._weights_whole.wait()
        ids, logprobs = await self._on_worker(self._batcher.score_prompt, request)
        return TokenOutput(
            token_ids=request.tokens,
            log_probs=request.logprobs,
            stop_reason="completed",
            extra_fields={
                "global_steps": self._global_steps,
                "prompt_ids": ids,
                "prompt_logprobs": logprobs,
            },
        )

    async def update_weights(
        self, names: list[str], arrays: list[np.ndarray], last: bool, global_steps: int | None
    ) -> None:
        """Load a part of the weights; after the ``last`` part generation continues, as of ``global_steps``."""
        self._weights_whole.clear()
        try:
            tensors = [(name, torch.from_numpy(array)) for name, array in zip(names, arrays, strict=True)]
            await self._on_worker(self._batcher.load_weights, tensors)
        except Exception as error:
            await self._fail(f"new weights could not be loaded: {error}")
            self._weights_whole.set()
            raise
        if last:
            self._global_steps = self._global_steps if global_steps is None else global_steps
            self._weights_whole.set()

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """End every request at once; new ones wait for ``resume_generation``, or fail with ``reject_request``."""
        self._open.clear()
        self._rejecting = reject_request
        ended = await self._on_worker(self._abort, self._arrived(), None)
        self._resolve(ended)
        return {"aborted_count": len(ended), "request_ids": [request.request_id for request in ended]}

    async def abort_request(self, request_id: str) -> dict[str, Any]:
        ended = await self._on_worker(self._abort, self._arrived(), request_id)
        self._resolve(ended)
        return {"aborted": bool(ended), "request_id": request_id}

    async def resume_generation(self) -> None:
        self._rejecting = False
        self._open.set()

    async def clear_kv_cache(self) -> None:
        await self._on_worker(self._batcher.prefixes.clear)

    sleep = release_kv_cache = clear_kv_cache
    """While the trainer works: finished sequences cannot be reused with new weights."""

    async def wake_up(self, **unused: Any) -> None:
        """The weights stay in memory."""

    resume_kv_cache = start_profile = stop_profile = wake_up

    async def _run(self) -> None:
        while self._incoming or not self._batcher.idle:
            await self._weights_whole.wait()
            try:
                self._resolve(await self._on_worker(self._step, self._arrived()))
            except Exception as error:
                await self._fail(f"decoding failed: {type(error).__name__}: {error}")

    async def _fail(self, reason: str) -> None:
        self._incoming.clear()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(RuntimeError(reason))
        await self._on_worker(self._batcher.drop)

    def _arrived(self) -> list[GenerationRequest]:
        arrived, self._incoming = self._incoming, []
        return arrived

    def _step(self, arrived: list[GenerationRequest]) -> list[GenerationRequest]:
        for request in arrived:
            self._batcher.submit(request)
        return self._batcher.step()

    def _abort(self, arrived: list[GenerationRequest], request_id: str | None) -> list[GenerationRequest]:
        for request in arrived:
            self._batcher.submit(request)
        return self._batcher.abort(request_id)

    async def _on_worker(self, call: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *arguments)

    def _resolve(self, ended: list[GenerationRequest]) -> None:
        for request in ended:
            request.versions = (request.versions[0], self._global_steps)
            future = self._futures.get(id(request))
            if future is not None and not future.done():
                future.set_result(None)


def eos_token_ids(model_config: HFModelConfig) -> set[int]:
    end_tokens: set[int] = set()
    for source in (model_config.generation_config, model_config.tokenizer):
        ids = getattr(source, "eos_token_id", None)
        end_tokens.update([ids] if isinstance(ids, int) else ids or [])
    return end_tokens
