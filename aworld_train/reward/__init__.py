"""Rewards: extracting an episode's answer, scoring it by the row's scorer, and loading a recipe's reward function."""

from aworld_train.episode.score import ScoreOutcome as ScoreOutcome
from aworld_train.episode.score import ScoreResult as ScoreResult
from aworld_train.reward.assistant_text import assistant_text as assistant_text
from aworld_train.reward.extraction import check_schema_name as check_schema_name
from aworld_train.reward.extraction import extract as extract
from aworld_train.reward.loading import load_reward as load_reward
from aworld_train.reward.number import numeric_match as numeric_match
from aworld_train.reward.score_types import Score as Score
from aworld_train.reward.score_types import ScoringContext as ScoringContext
from aworld_train.reward.score_types import TooHard as TooHard
from aworld_train.reward.scorers import find_scorer as find_scorer
from aworld_train.reward.scorers import register_scorer as register_scorer
from aworld_train.reward.scorers import scorer_names as scorer_names
from aworld_train.reward.scoring import score as score
from aworld_train.reward.scoring import score_now as score_now
from aworld_train.reward.settings import RewardSettings as RewardSettings
