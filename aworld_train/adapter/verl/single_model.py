"""VeRL's model for single episodes: its engine in this process, or a served model behind the engine's interface."""

from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from transformers.utils import logging
from verl.utils.config import omega_conf_to_dataclass

from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.cpu.sampling import MAX_TOP_LOGPROBS
from aworld_train.adapter.verl.images import image_tokens
from aworld_train.adapter.verl.language_model import VerlModel
from aworld_train.adapter.verl.served_vllm import ServedVllm
from aworld_train.model.turns import end_tokens
from aworld_train.recipe.schema import Engine, Recipe


class VerlLoadedModel:
    def __init__(self, recipe: Recipe, folder: Path, model_url: str | None):
        logging.disable_progress_bar()
        config = OmegaConf.create(compose(recipe, folder))
        OmegaConf.resolve(config)
        actor = config.actor_rollout_ref
        model = omega_conf_to_dataclass(actor.model)
        self.tokenizer: Any = model.tokenizer
        self.name = Path(str(actor.model.path)).name
        self._server: ServedVllm | None = None
        in_process = model_url is None and recipe.rollout.engine is Engine.transformers
        if in_process:
            from aworld_train.adapter.verl.cpu.server import TransformersServer

            self._engine: Any = TransformersServer(actor.rollout, actor.model, 0, 1)
        else:
            from aworld_train.adapter.verl.completions import CompletionsServer

            if model_url is None:
                self._server = ServedVllm(recipe, folder)
                self._engine = CompletionsServer(self._server.url, self._server.key)
            else:
                self._engine = CompletionsServer(model_url)
        self._template_options = dict(config.data.get("apply_chat_template_kwargs") or {})
        self.for_episode = partial(
            VerlModel,
            self._engine,
            self.tokenizer,
            recipe.agent.tool_parser,
            self._template_options,
            end_tokens(str(actor.model.path)),
            engine_stops=True,
            max_top_logprobs=MAX_TOP_LOGPROBS if in_process else 0,
            images=image_tokens(model.processor, actor.rollout.name if in_process else None),
        )

    async def close(self) -> None:
        """The memory of an engine in this process is freed when the process ends."""
        if self._server is not None:
            self._server.stop()
