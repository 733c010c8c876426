"""Plays single episodes in this process with the agent, engine, sampling and reward of training, without a trainer."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import EpisodeModel, LoadedModel, framework_of
from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.files import episode_files, write_files
from aworld_train.adapter.episodes.paths import EPISODES_FILE, REWARD_FILE
from aworld_train.adapter.episodes.player import EpisodePlayer, FinishedEpisode, episode_facts
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, open_record
from aworld_train.adapter.episodes.scoring import EpisodeScore, score_episode
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.adapter.episodes.stored import recorder_of
from aworld_train.episode.figures import EpisodeFigures
from aworld_train.recipe.schema import Recipe
from aworld_train.rollout.chat_model import ChatModel
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.graph import Row
from aworld_train.rollout.template_proof import prove


@dataclass(frozen=True)
class SingleEpisode:
    figures: EpisodeFigures
    result: EpisodeResult
    rows: list[tuple[str, Row]]
    score: EpisodeScore | None


async def play_row(
    folder: Path,
    model: EpisodeModel,
    row: Mapping[str, Any],
    sampling_params: Mapping[str, Any],
    *,
    validate: bool,
    max_prompt_tokens: int,
    max_response_tokens: int,
    step: int = 0,
    phase: str = "",
    attempt: int = 0,
    key: str = "",
    agent: EpisodeAgent | None = None,
    on_played: Callable[[], None] = lambda: None,
) -> SingleEpisode:
    """Play a row of a dataset, score it and record it, with the settings in a run folder (see ``episode_files``).

    ``phase`` is ``train`` or ``val``, as ``validate`` says, unless it is ``eval`` or ``rollout``; ``attempt`` numbers
    the episodes of a task in a step (0 outside of one); ``on_played`` is called between playing and scoring.
    """
    settings = read_settings(str(folder / EPISODES_FILE))
    player = EpisodePlayer(settings, agent)
    task = {**row, "raw_prompt": row["prompt"]}
    record = open_record(step, validate, int(row["extra_info"]["index"]))
    record.begin(settings, task, phase=phase or ("val" if validate else "train"), attempt=attempt, key=key)
    if (seed := sampling_params.get("seed")) is not None:
        record.figures.seed = seed
    episode_model = model.for_episode()
    finished = await player.play(
        episode_model,
        task,
        sampling_params,
        model_name=model.name,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
    )
    on_played()
    if isinstance(episode_model, ChatModel) and episode_model.faults:
        record.figures.faults = dict(episode_model.faults)
    rows, score = finished.rows, None
    if finished.is_scored:
        score = await score_episode(
            str(folder / REWARD_FILE),
            data_source=row["data_source"],
            response=_response(model, finished),
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info={**row["extra_info"], **episode_facts(finished)},
        )
        if not record.score(score, task):
            rows, score = [], None
    record.write(None)
    return SingleEpisode(record.figures, finished.result, rows, score)


def _response(model: EpisodeModel, finished: FinishedEpisode) -> str:
    """The response as a reward function gets it: decoded from the last row, or the answer where there is none."""
    if not finished.rows or model.tokenizer is None:
        return finished.result.answer
    _, row = finished.rows[-1]
    return str(model.tokenizer.decode(row.response, skip_special_tokens=True))


class SingleEpisodes:
    def __init__(self, recipe: Recipe, folder: Path, *, model_url: str | None, greedy: bool):
        (folder / "traces").mkdir(parents=True, exist_ok=True)
        os.environ[RUN_DIR_VARIABLE] = str(folder)
        write_files(folder, episode_files(recipe))
        self._recipe, self._folder, self._greedy = recipe, folder, greedy
        self._model: LoadedModel = framework_of(recipe).load_model(recipe, folder, model_url=model_url)

    @property
    def tokenizer(self) -> Any:
        return self._model.tokenizer

    @property
    def turns(self) -> str:
        return prove(self._model.for_episode().template).line

    async def play(self, row: Mapping[str, Any], attempt: int) -> SingleEpisode:
        rollout = self._recipe.rollout
        sampling_params = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k}
        if self._greedy:
            sampling_params = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
        return await play_row(
            self._folder,
            self._model,
            row,
            sampling_params,
            validate=self._greedy,
            max_prompt_tokens=self._recipe.dataset.max_prompt_tokens,
            max_response_tokens=rollout.max_response_tokens,
            phase="rollout",
            attempt=attempt,
        )

    async def close(self) -> None:
        await close_gateways()
        await self._model.close()
        await close_store(self._folder)


async def close_gateways() -> None:
    """Stop the gateways, which all episodes of this process share."""
    from aworld_train.rollout.model_gateway import model_gateway
    from aworld_train.rollout.tool_gateway import tool_gateway

    await (await model_gateway()).stop()
    await (await tool_gateway()).stop()


async def close_store(folder: Path) -> None:
    """Write what this process has reported to the store of a run folder."""
    if recorder := recorder_of(folder):
        await asyncio.to_thread(recorder.close)
