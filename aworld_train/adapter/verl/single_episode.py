"""Single episodes in this process: agent loop, engine, sampling and reward of training, without Ray and a trainer."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aworld_train.adapter.verl.command import verl_environment
from aworld_train.adapter.verl.compose import agent_file, compose
from aworld_train.adapter.verl.episode_record import RUN_DIR_VARIABLE, Unscored, open_record
from aworld_train.adapter.verl.episode_settings import episode_settings
from aworld_train.adapter.verl.paths import EPISODES_FILE, REWARD_FILE
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.reward import reward_plan
from aworld_train.atomic import write_text
from aworld_train.recipe.schema import Recipe


@dataclass(frozen=True)
class SingleEpisode:
    """One episode to be looked at.

    Attributes:
        line: What training would write into ``traces/episodes.jsonl``.
        played: The episode itself.
        outputs: The rows that training would get; none for an episode that it drops.
        scores: What the reward function returned; None where there is nothing to score.
    """

    line: Mapping[str, Any]
    played: Any
    outputs: list[Any]
    scores: Mapping[str, Any] | None


class EpisodePlayer:
    """Where single episodes are played.

    Args:
        recipe: A recipe with a model.
        folder: For the files of a run.
        model_url: An inference server to sample from; None loads the model into this process.
        greedy: Take the most likely token, as validation does.
    """

    def __init__(self, recipe: Recipe, folder: Path, *, model_url: str | None, greedy: bool):
        (folder / "traces").mkdir(parents=True, exist_ok=True)
        private = PrivateFolder(folder / "private")
        private.fill()
        os.environ |= verl_environment(recipe, folder / "metrics.jsonl", private)
        os.environ[RUN_DIR_VARIABLE] = str(folder)
        for name, content in ((EPISODES_FILE, episode_settings(recipe)), (REWARD_FILE, reward_plan(recipe))):
            write_text(folder / name, yaml.safe_dump(content, allow_unicode=True))
        self._recipe = recipe
        self._greedy = greedy
        self._entry = agent_file(recipe, folder)[0]
        self._load(compose(recipe, folder), model_url)

    def _load(self, composed: dict[str, Any], model_url: str | None) -> None:
        from hydra.utils import get_class
        from omegaconf import OmegaConf
        from transformers.utils import logging
        from verl.utils.config import omega_conf_to_dataclass

        logging.disable_progress_bar()
        self._config = OmegaConf.create(composed)
        OmegaConf.resolve(self._config)
        actor = self._config.actor_rollout_ref
        self._model = omega_conf_to_dataclass(actor.model)
        self._loop_class = get_class(self._entry["_target_"])
        if model_url is None:
            from aworld_train.adapter.verl.cpu.server import TransformersServer

            self._engine: Any = TransformersServer(actor.rollout, actor.model, 0, 1)
        else:
            from aworld_train.adapter.verl.completions import CompletionsServer

            self._engine = CompletionsServer(model_url)

    @property
    def tokenizer(self) -> Any:
        """The model's."""
        return self._model.tokenizer

    async def play(self, row: Mapping[str, Any]) -> SingleEpisode:
        """Play one task of a dataset."""
        slot = open_record(step=0, validate=self._greedy, index=int(row["extra_info"]["index"]))
        rollout = self._recipe.rollout
        sampling = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k}
        if self._greedy:
            sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
        loop = self._loop()
        began = time.monotonic()
        outputs = await loop.run(sampling, raw_prompt=row["prompt"], **_rest(row))
        slot.line["seconds"] = round(time.monotonic() - began, 4)
        scores = None
        if outputs:
            scores = outputs[-1].extra_fields["reward_extra_info"] = await self._score(row, outputs[-1])
            try:
                slot.take_score({**_rest(row), "raw_prompt": row["prompt"]})
            except Unscored:
                outputs, scores = [], None
        return SingleEpisode(slot.line, slot.played, outputs, scores)

    async def close(self) -> None:
        """End what episodes had in common in this process."""
        from aworld_train.rollout.model_gateway import model_gateway
        from aworld_train.rollout.tool_gateway import tool_gateway

        await (await model_gateway()).stop()
        await (await tool_gateway()).stop()

    def _loop(self) -> Any:
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap

        return self._loop_class(
            trainer_config=DictConfigWrap(self._config),
            server_manager=self._engine,
            tokenizer=self._model.tokenizer,
            processor=self._model.processor,
            dataset_cls=None,
            data_config=DictConfigWrap(self._config.data),
            hf_model_type=getattr(self._model.hf_config, "model_type", None),
            settings=self._entry["settings"],
        )

    async def _score(self, row: Mapping[str, Any], output: Any) -> dict[str, Any]:
        from aworld_train.adapter.verl.reward import score

        return await score(
            data_source=row["data_source"],
            solution_str=self.tokenizer.decode(output.response_ids, skip_special_tokens=True),
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info={**row["extra_info"], **output.extra_fields},
            **self._config.reward.custom_reward_function.reward_kwargs,
        )


def _rest(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns beside the prompt, as VeRL hands them to an agent loop."""
    return {name: value for name, value in row.items() if name != "prompt"}
