"""The scorer ``llm_judge``: a language model says whether an answer means what the ground truth says.

1 for a right answer, 0 for a wrong one, and nothing at all where no judge gave a verdict that could be read: then the
scorer abstains, and its steps say why. Judges, their connections and their pace are shared by all that one event loop
scores with the same settings, and end with the loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import aiohttp

from aworld_train.reward.judge.panel import Judgement, JudgePanel
from aworld_train.reward.judge.question import Question, own_instructions
from aworld_train.reward.judge.verdict import Verdict
from aworld_train.reward.scored import Score, ScoringContext
from aworld_train.reward.settings import JudgeSettings

# What is left of a score's time limit for saying that there was no verdict: a share of it, and seconds at most.
_SHARE_LEFT, _MAX_LEFT = 0.05, 1.0


async def llm_judge(answer: str, ground_truth: str, context: ScoringContext) -> Score:
    """Score an answer by the judges in ``context.settings.judge``.

    Returns:
        1 or 0, or no score; with the parts ``judge_cost`` (what the requests cost, by the models' prices),
        ``judge_calls`` (requests sent) and ``judge_cached`` (1 if the verdict was given before, which costs nothing).
    """
    judge = context.settings.judge
    if not judge.models:
        return _score(Judgement(steps=["no judge is set: the recipe's reward.judge.models is empty"]))
    limit = context.settings.timeout
    question = Question(context.query, ground_truth, answer, judge.prompt or own_instructions())
    panel = await _panel(judge)
    return _score(await panel.judge(question, limit - min(_MAX_LEFT, limit * _SHARE_LEFT)))


def _score(judgement: Judgement) -> Score:
    parts = {
        "judge_cost": judgement.cost,
        "judge_calls": float(judgement.calls),
        "judge_cached": float(judgement.cached),
    }
    ruling = judgement.ruling
    value = None if ruling is None else float(ruling.verdict is Verdict.correct)
    return Score(value, parts, tuple(judgement.steps))


@dataclass
class _Bench:
    """What one event loop judges with."""

    session: aiohttp.ClientSession
    life: AsyncGenerator[aiohttp.ClientSession, None]
    panels: dict[JudgeSettings, JudgePanel] = field(default_factory=dict)


_benches: dict[asyncio.AbstractEventLoop, _Bench] = {}


async def _panel(settings: JudgeSettings) -> JudgePanel:
    loop = asyncio.get_running_loop()
    bench = _benches.get(loop)
    if bench is None:
        for ended in [other for other in list(_benches) if other.is_closed()]:
            _benches.pop(ended, None)
        life = _session_of(loop)
        bench = _benches[loop] = _Bench(await anext(life), life)
    panel = bench.panels.get(settings)
    if panel is None:
        panel = bench.panels[settings] = JudgePanel(settings, bench.session)
    return panel


async def _session_of(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Connections that live as long as the loop: `asyncio.run` and its like end a loop's generators with it."""
    # How many requests there are at a time is the pace's to say; how long they take, each request's.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        try:
            yield session
        finally:
            _benches.pop(loop, None)
