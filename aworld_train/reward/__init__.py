"""Rewards: extracting an episode's answer, scoring it by the row's scorer, and loading a recipe's reward function."""

from aworld_train.reward.score_types import ScoringContext as ScoringContext
