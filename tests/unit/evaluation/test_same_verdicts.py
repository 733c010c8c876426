"""An answer is as right in training, in an evaluation and offline, and equal answers are one vote of maj@k."""

import asyncio
import json
import random
from pathlib import Path

import yaml

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes.scoring import reward_plan, score_episode
from aworld_train.adapter.verl.reward import score as training_reward
from aworld_train.episode.score import ScoreResult
from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.prediction_files import score_file
from aworld_train.evaluation.results import EvalTask
from aworld_train.reward.settings import RewardSettings
from tests.unit.evaluation.test_metrics import attempt, evaluation
from tests.written_answers import Pair, pairs

PAIRS = random.Random(5).sample([pair for pair in pairs() if not pair.question], 400)


def test_training_evaluations_offline_scores_and_votes_agree(tmp_path: Path) -> None:
    file = tmp_path / "reward.yaml"
    file.write_text(yaml.safe_dump(reward_plan(recipes.load({"name": "a"}))))
    predictions = tmp_path / "predictions.jsonl"
    predictions.write_text(
        "".join(
            json.dumps({
                "id": number, "prediction": pair.text, "answer": pair.truth, "scorer": pair.scorer,
                "answer_schema": pair.schema,
            }) + "\n"
            for number, pair in enumerate(PAIRS)
        )
    )  # fmt: skip
    offline = asyncio.run(_offline(predictions))
    trained, evaluated = asyncio.run(_in_episodes(str(file)))
    expected = [pair.score for pair in PAIRS]
    assert [result.score for result in offline] == expected
    assert trained == expected
    assert evaluated == expected
    assert [
        _is_one_vote(pair, result.extracted)
        for pair, result in zip(PAIRS, offline, strict=True)
        if result.extracted
    ] == [pair.score == 1.0 for pair, result in zip(PAIRS, offline, strict=True) if result.extracted]


async def _offline(file: Path) -> list[ScoreResult]:
    """The scores of ``reward score``."""
    return [line.result async for line in score_file(file, RewardSettings()) if line.result is not None]


async def _in_episodes(file: str) -> tuple[list[float | None], list[float | None]]:
    """The rewards of training, from the decoded response, and of an evaluation, from the assistant's text."""
    trained: list[float | None] = []
    evaluated: list[float | None] = []
    for pair in PAIRS:
        info = {"scorer": pair.scorer, "answer_schema": pair.schema}
        reward = await training_reward("x", pair.text, pair.truth, info, file)
        trained.append(reward["score"])
        episode = await score_episode(
            file,
            data_source="x",
            response="",
            ground_truth=pair.truth,
            extra_info={**info, "assistant_text": pair.text},
        )
        evaluated.append(episode.value)
    return trained, evaluated


def _is_one_vote(pair: Pair, answer: str) -> bool:
    """Whether an answer and the ground truth, both wrong in this task, outvote its one right answer."""
    task = EvalTask("t", 0, "", "s", "q", "another", scorer=pair.scorer)
    attempts = [
        attempt("t", number, score, extracted=text, scorer=pair.scorer)
        for number, (text, score) in enumerate([(pair.truth, 0.0), (answer, 0.0), ("another", 1.0)])
    ]
    majority = figures_of(evaluation([task], attempts, 3)).majority[3]
    assert majority in (0.0, 1 / 3)
    return majority == 0.0
