"""The scorer ``llm_judge``: a language model says whether an answer means what the ground truth says.

Where no judge gave a readable verdict the scorer abstains, and its steps say why. Judges, connections and rate limits
are shared by all that one event loop scores with the same settings.
"""

import asyncio

from aworld_train.episode.score import JUDGES_REFUSE
from aworld_train.reward.judge.forms import Verdict
from aworld_train.reward.judge.panel import Judgement, JudgePanel
from aworld_train.reward.judge.question import Question, default_instructions
from aworld_train.reward.score_types import Score, ScoringContext, TooHard
from aworld_train.reward.scorers import register_scorer
from aworld_train.reward.settings import JudgeSettings

# Part of a score's time limit that is reserved for returning the reason when there is no verdict: a share, and seconds.
_RESERVED_SHARE, _MAX_RESERVED = 0.05, 1.0
_MAX_ANSWER_CHARS = 20_000  # a longer one may exceed the judge's context, which would leave the episode out


@register_scorer("llm_judge", takes_references=True)
async def llm_judge(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """1, 0 or no score, by the judges in ``context.settings.judge``.

    The parts are ``judge_cost`` (by the models' prices), ``judge_calls`` (requests sent), ``judge_cached`` (1 if the
    verdict came from the cache), ``judges_refuse`` (1 where no judge takes any request) and ``confidence`` (from 0 to
    1) where the judge's instructions ask how sure the answer says that it is.
    """
    if len(answer) > _MAX_ANSWER_CHARS:
        raise TooHard(f"the answer has {len(answer)} characters; {_MAX_ANSWER_CHARS} are judged")
    judge = context.settings.judge
    if not judge.models:
        return _score(Judgement(steps=["no judge is set: the recipe's reward.judge.models is empty"]))
    limit = context.settings.timeout
    question = Question(context.query, ground_truth, answer, judge.prompt or default_instructions())
    panel = _panel(judge)
    judgement = await panel.judge(question, limit - min(_MAX_RESERVED, limit * _RESERVED_SHARE))
    return _score(judgement, len(judge.models))


def _score(judgement: Judgement, judges: int = 0) -> Score:
    parts = {
        "judge_cost": judgement.cost,
        "judge_calls": float(judgement.calls),
        "judge_cached": float(judgement.cached),
    }
    judged = judgement.judged
    if judged is not None and judged.confidence is not None:
        parts["confidence"] = judged.confidence
    if judges and judgement.refusals == judges:
        parts[JUDGES_REFUSE] = 1.0
    value = None if judged is None else float(judged.verdict is Verdict.correct)
    return Score(value, parts, tuple(judgement.steps), is_provoked=judgement.is_provoked)


_panels: dict[asyncio.AbstractEventLoop, dict[JudgeSettings, JudgePanel]] = {}


def _panel(settings: JudgeSettings) -> JudgePanel:
    for ended in [loop for loop in _panels if loop.is_closed()]:
        del _panels[ended]
    panels = _panels.setdefault(asyncio.get_running_loop(), {})
    if settings not in panels:
        panels[settings] = JudgePanel(settings)
    return panels[settings]
