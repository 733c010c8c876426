"""Rewards: reading an episode's answer, scoring it, and loading the function a recipe names."""

from aworld_train.reward.answer import extract_answer, numeric_match, score_answer
from aworld_train.reward.loading import load_reward, resolve_reward

__all__ = ["extract_answer", "load_reward", "numeric_match", "resolve_reward", "score_answer"]
