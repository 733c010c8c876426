"""A reward function is a scorer of its own kind: called with keywords, in a worker that knows how to call it."""

from pathlib import Path

import pytest

from aworld_train.episode.score import ScoreOutcome
from aworld_train.errors import RewardError
from aworld_train.reward.reward_function import reward_function_scorer, score_by_function
from aworld_train.reward.scorers import ScorerKind, find_scorer
from aworld_train.reward.settings import RewardSettings
from aworld_train.reward.workers import Job, ScorerPool

KEYWORDS = {"data_source": "d", "solution_str": "s", "ground_truth": "4", "extra_info": {"n": 1}}
# Each can be called in both ways, and its score says in which it was.
BOTH = "def score(*args, **kwargs): return len(args) + 10 * len(kwargs)\n"


def function(folder: Path, source: str) -> str:
    (folder / "rewards.py").write_text(source)
    return f"{folder}/rewards.py:score"


async def test_it_is_called_with_keywords_alone_and_may_take_more_of_them(tmp_path: Path) -> None:
    spec = function(tmp_path, "def score(**kwargs): return len(kwargs)\n")
    result = await score_by_function(spec, RewardSettings(), **KEYWORDS, bonus=1)
    assert (result.score, result.scorer, result.extracted) == (5.0, spec, None)


async def test_texts_beside_its_score_are_left_out(tmp_path: Path) -> None:
    spec = function(
        tmp_path, "async def score(**kwargs): return {'score': 0.5, 'style': 2, 'note': 'text'}\n"
    )
    result = await score_by_function(spec, RewardSettings(), **KEYWORDS)
    assert (result.score, dict(result.parts)) == (0.5, {"style": 2.0})


async def test_one_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    spec = function(tmp_path, "import time\ndef score(**kwargs): time.sleep(600)\n")
    result = await score_by_function(spec, RewardSettings(timeout=0.2), **KEYWORDS)
    assert result.outcome is ScoreOutcome.timeout


@pytest.mark.parametrize("is_async", [False, True])
def test_the_scorer_has_an_absolute_reference_and_the_name_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    function(tmp_path, f"{'async ' if is_async else ''}def score(**kwargs): return 1\n")
    monkeypatch.chdir(tmp_path)
    scorer = reward_function_scorer("rewards.py:score")
    assert (scorer.name, scorer.reference) == ("rewards.py:score", f"{tmp_path}/rewards.py:score")
    assert (scorer.kind, scorer.isolated, scorer.is_async) == (ScorerKind.reward_function, True, is_async)


def test_one_function_can_be_scorer_and_reward_function_in_one_worker(tmp_path: Path) -> None:
    spec = function(tmp_path, BOTH)
    assert find_scorer(spec).kind is ScorerKind.scorer
    pool = ScorerPool(1)
    as_scorer = Job(ScorerKind.scorer, spec, "1", "1", None, 30.0)
    context = {
        "query": "",
        "text": "",
        "info": KEYWORDS,
        "episode": {},
        "settings": RewardSettings().to_plain(),
    }
    as_reward_function = Job(ScorerKind.reward_function, spec, "", "4", context, 30.0)
    scores = [pool.submit(job).result(60).value for job in (as_scorer, as_reward_function, as_scorer)]
    assert scores == [2.0, 40.0, 2.0]


def test_a_function_without_the_keywords_is_refused(tmp_path: Path) -> None:
    spec = function(tmp_path, "def score(answer, ground_truth): return 1\n")
    with pytest.raises(RewardError, match="keywords of reward functions"):
        reward_function_scorer(spec)
