"""Rewards: extracting an episode's answer, scoring it by the row's scorer, and loading a recipe's reward function."""

from aworld_train.episode.score import ScoreOutcome, ScoreResult
from aworld_train.reward.assistant_text import assistant_text
from aworld_train.reward.extraction import check_schema_name, extract
from aworld_train.reward.loading import load_reward
from aworld_train.reward.number import numeric_match
from aworld_train.reward.score_types import Score, ScoringContext, TooHard
from aworld_train.reward.scorers import find_scorer, register_scorer, scorer_names
from aworld_train.reward.scoring import score, score_now
from aworld_train.reward.settings import RewardSettings

__all__ = [
    "RewardSettings",
    "Score",
    "ScoreOutcome",
    "ScoreResult",
    "ScoringContext",
    "TooHard",
    "assistant_text",
    "check_schema_name",
    "extract",
    "find_scorer",
    "load_reward",
    "numeric_match",
    "register_scorer",
    "score",
    "score_now",
    "scorer_names",
]
