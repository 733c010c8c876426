"""Language models as judges of answers: a reliable verdict, or none."""

from aworld_train.reward.judge.scorer import llm_judge as llm_judge
