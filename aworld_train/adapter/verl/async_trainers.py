"""VeRL's trainers that sample ahead of training, and their client, which continues turns that new weights interrupt."""

import logging
from typing import Any

from verl.trainer.ppo.v1 import trainer_separate_async
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.verl.compose import TRAINERS
from aworld_train.adapter.verl.trainer import EpisodeUpdates
from aworld_train.recipe.schema import Mode

# VeRL 0.9.1 passes an argument to `info` that it does not take.
trainer_separate_async.logger.setLevel(logging.WARNING)


@register_trainer(TRAINERS[Mode.colocate_async])
class ColocateTrainer(EpisodeUpdates, PPOTrainerColocateAsync):  # type: ignore[misc]
    mode = Mode.colocate_async

    def get_llm_client(self) -> Any:
        return _client(self.llm_server_manager, self.config)


@register_trainer(TRAINERS[Mode.separate_async])
class SeparateTrainer(EpisodeUpdates, trainer_separate_async.PPOTrainerSeparateAsync):  # type: ignore[misc]
    mode = Mode.separate_async

    def get_llm_client(self) -> Any:
        return _client(self.standalone_server_manager, self.config)


def _client(servers: Any, config: Any) -> Any:
    continues = bool(config.trainer.v1.sampler.sampler_kwargs.partial_rollouts)
    return servers.get_client(client_cls=ResumingClient, continues=continues)


class ResumingClient(LLMServerClient):  # type: ignore[misc]
    """Continues an interrupted turn with the tokens that it has, or begins it again unless it ``continues``.

    VeRL's own waits a second first, and keeps the first and the last version of the weights alone.
    """

    def __init__(self, *args: Any, continues: bool, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._continues = continues

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **options: Any
    ) -> Any:
        """The whole turn, with ``parts`` as in ``SampledTokens`` among its ``extra_fields``."""
        turn, params = TokenOutput(token_ids=[], log_probs=[]), dict(sampling_params)
        parts: list[tuple[int, int]] = []
        while turn.stop_reason is None:
            part = await super().generate(
                request_id, prompt_ids=[*prompt_ids, *turn.token_ids], sampling_params=params, **options
            )
            interrupted = part.stop_reason in ("aborted", "abort")
            if interrupted and not self._continues:
                continue
            version = part.extra_fields["global_steps"]
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
