"""Rewards: finding an episode's answer, scoring it by the row's scorer, and loading the function a recipe names."""

from aworld_train.reward.extraction import check_schema_name, extract
from aworld_train.reward.loading import load_reward
from aworld_train.reward.number import numeric_match
from aworld_train.reward.spoken import assistant_text

__all__ = ["assistant_text", "check_schema_name", "extract", "load_reward", "numeric_match"]
