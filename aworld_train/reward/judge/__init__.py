"""Language models as judges of answers: a verdict that can be relied on, or none."""

from aworld_train.reward.judge.scorer import llm_judge

__all__ = ["llm_judge"]
