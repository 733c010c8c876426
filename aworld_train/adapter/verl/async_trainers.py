"""VeRL's trainers that sample ahead of training, and their client, which continues turns that new weights interrupt."""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import ray
from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.base import SAMPLERS_REQUEST
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.compose import TRAINERS
from aworld_train.adapter.verl.log import error_line
from aworld_train.adapter.verl.samplers import Samplers
from aworld_train.adapter.verl.trainer import EpisodeUpdates
from aworld_train.recipe.schema import Mode
from aworld_train.rollout.outcome import EngineLost

_LOOK_SECONDS = 0.5
_NO_SERVERS = "No available servers"  # verl/workers/rollout/router.py
_ENDED_BY_THIS_RUN = "killed by `ray.kill`"  # Ray's words for what ``Samplers`` ends

# VeRL 0.9.1 passes an argument to `info` that it does not take.
trainer_separate_async.logger.setLevel(logging.WARNING)


@register_trainer(TRAINERS[Mode.colocate_async])
class ColocateTrainer(EpisodeUpdates, PPOTrainerColocateAsync):  # type: ignore[misc]
    mode = Mode.colocate_async

    def get_llm_client(self) -> Any:
        return _client(self.llm_server_manager, self.config)

    def on_init_end(self) -> None:
        super().on_init_end()
        engines = liveness.numbered("the engine", self.llm_server_manager.server_handles)
        liveness.watch({name: engine.until_the_end.remote for name, engine in engines.items()})


@register_trainer(TRAINERS[Mode.separate_async])
class SeparateTrainer(EpisodeUpdates, trainer_separate_async.PPOTrainerSeparateAsync):  # type: ignore[misc]
    mode = Mode.separate_async
    standalone_checkpoint_manager: Any

    def get_llm_client(self) -> Any:
        return _client(self.standalone_server_manager, self.config, max_wait=self._max_wait)

    def on_init_end(self) -> None:
        self.standalone_checkpoint_manager = Samplers(
            self.standalone_checkpoint_manager.config,
            self.actor_rollout_wg,
            self.standalone_server_manager,
            self._max_wait,
            Path(os.environ[RUN_DIR_VARIABLE]) / SAMPLERS_REQUEST,
        )
        super().on_init_end()
        self.standalone_checkpoint_manager.watch()

    @property
    def _max_wait(self) -> float:
        return float(self.config.trainer.v1.sampler.sampler_kwargs.recovery_timeout)


def _client(servers: Any, config: Any, max_wait: float | None = None) -> Any:
    continues = bool(config.trainer.v1.sampler.sampler_kwargs.partial_rollouts)
    return servers.get_client(client_cls=ResumingClient, continues=continues, max_wait=max_wait)


class ResumingClient(LLMServerClient):  # type: ignore[misc]
    """Continues an interrupted turn with the tokens that it has, or begins it again unless it ``continues``.

    VeRL's own waits a second first, and keeps the first and the last version of the weights alone. With ``max_wait``,
    in seconds, samplers that die are replaced: a turn loses its sampler, and the next one waits that long for another.
    A turn whose sampler was asked to leave continues on another.
    """

    def __init__(self, *args: Any, continues: bool, max_wait: float | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._continues = continues
        self._max_wait = max_wait
        self._server_of: dict[str, str] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any
    ) -> Any:
        """The whole turn, with ``parts`` as in ``SampledTokens`` among its ``extra_fields``."""
        turn, params = TokenOutput(token_ids=[], log_probs=[]), dict(sampling_params)
        parts: list[tuple[int, int]] = []
        while turn.stop_reason is None:
            part = await self._sample(request_id, [*prompt_ids, *turn.token_ids], params, **options)
            interrupted = part.stop_reason in ("aborted", "abort")
            if interrupted and not self._continues:
                continue
            version = part.extra_fields.get("global_steps")
            if part.token_ids and (not parts or parts[-1][1] != version):
                parts.append((len(turn.token_ids), version))
            turn.token_ids += part.token_ids
            turn.log_probs += part.log_probs
            likely = turn.extra_fields.get("top_logprobs", []) + part.extra_fields.get("top_logprobs", [])
            turn.extra_fields = {**part.extra_fields, "parts": parts, "top_logprobs": likely}
            left = sampling_params["max_tokens"] - len(turn.token_ids)
            if not interrupted or left <= 0:
                turn.stop_reason = part.stop_reason if not interrupted else "completed"
            params["max_tokens"] = left
            if "seed" in params:  # else the rest would be sampled with the random numbers of the beginning
                params["seed"] += len(part.token_ids)
        return turn

    async def _sample(
        self, request_id: str, prompt_ids: list[int], params: dict[str, Any], **options: Any
    ) -> Any:
        try:
            return await super().generate(
                request_id, prompt_ids=prompt_ids, sampling_params=params, **options
            )
        except ray.exceptions.RayActorError as error:
            if self._max_wait is None:
                raise
            if isinstance(error, ray.exceptions.ActorDiedError) and request_id in self._server_of:
                # With no requests left it would be the balancer's first choice until its death is noticed.
                await self._load_balancer.remove_servers.remote([self._server_of[request_id]])
            if _ENDED_BY_THIS_RUN in str(error):
                return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted")
            raise EngineLost(f"the sampler died: {error_line(error)}") from error
        finally:
            self._server_of.pop(request_id, None)

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        """A server; while there is none it waits for a replacement."""
        deadline = time.monotonic() + (self._max_wait or 0)
        while True:
            try:
                server, handle = await super()._acquire_server(request_id, **extra)
            except RuntimeError as error:
                if _NO_SERVERS not in str(error) or time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                self._server_of[request_id] = server
                return server, handle
