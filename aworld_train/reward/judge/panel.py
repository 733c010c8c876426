"""The models of a recipe as one judge: tried in order, with retries, until one gives a verdict.

A failing model may use no more than its share of the time, and is tried last for a while. When all fail there is no
verdict, and the steps say how each one failed.
"""

import asyncio
import random
import re
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakValueDictionary

from aworld_train.reward.judge.cache import VerdictCache
from aworld_train.reward.judge.question import Question
from aworld_train.reward.judge.rate_limiter import RateLimiter, RateLimitTimeout
from aworld_train.reward.judge.verdict import JudgedVerdict, UnreadableVerdict, read_verdict
from aworld_train.reward.settings import JudgeModel, JudgeSettings
from aworld_train.rollout.chat_client import ChatClient, EndpointAddress
from aworld_train.rollout.chat_completion import ChatAnswer, ChatFault

_COOLDOWN = 30.0  # seconds for which a failing model is tried after the others
_MAX_DOUBLINGS = 64  # more do not lengthen the wait, and 2.0 ** 1024 overflows
_MILLION = 1_000_000
_MAX_REASON = 500  # characters of a reason in a step
_ABOUT_THE_FORMAT = re.compile(
    r"response_format|json_schema|structured.?output|guided|grammar", re.IGNORECASE
)
_BAD_REQUEST = frozenset({400, 413, 422})
_ABOUT_TEXTS = frozenset({"request", "filtered", "too_long"})
_UNFINISHED = {
    "length": "what it said was cut off",
    "content_filter": "a content filter stopped it",
    "refusal": "it refused",
}


@dataclass(frozen=True)
class Backoff:
    """Waits between attempts: exponential backoff with full jitter (Brooker, AWS Architecture Blog, 2015)."""

    first: float = 0.5
    max_seconds: float = 8.0

    def seconds(self, failures: int) -> float:
        return random.uniform(
            0.0, min(self.max_seconds, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        )


@dataclass
class Judgement:
    """The result for a question, and its cost, from the token counts that servers report.

    ``is_provoked``: a model gave no verdict, or refused the request by what is in it. ``refusals``: how many models
    take no request at all, as with a wrong key or a spent quota.
    """

    judged: JudgedVerdict | None = None
    calls: int = 0
    cost: float = 0.0
    cached: bool = False
    is_provoked: bool = False
    refusals: int = 0
    steps: list[str] = field(default_factory=list)


@dataclass
class _JudgeState:
    model: JudgeModel
    client: ChatClient
    plain_text: bool = False  # it refuses or ignores structured output
    cooldown_until: float = 0.0


class JudgePanel:
    """Judges by the settings of a run; belongs to one event loop."""

    def __init__(self, settings: JudgeSettings, backoff: Backoff | None = None):
        self._attempts = settings.attempts
        self._judges = [_JudgeState(model, _client(model)) for model in settings.models]
        self._limiter = RateLimiter(settings.concurrency, settings.per_minute)
        self._backoff = backoff or Backoff()
        self._cache = VerdictCache(Path(settings.cache).expanduser()) if settings.cache else None
        self._locks: WeakValueDictionary[Question, asyncio.Lock] = WeakValueDictionary()

    async def judge(self, question: Question, seconds: float) -> Judgement:
        """A verdict on a question within so many seconds, or none with the reasons; no server failure raises."""
        judgement = Judgement()
        deadline = _now() + seconds
        try:
            # The same answer in several simultaneous episodes is judged once.
            async with asyncio.timeout_at(deadline) as limit, self._lock(question):
                limit.reschedule(None)
                judgement.judged = await self._try_in_order(question, deadline, judgement)
        except TimeoutError:
            judgement.steps.append("the same answer was still being judged for another episode")
        return judgement

    async def _try_in_order(
        self, question: Question, deadline: float, judgement: Judgement
    ) -> JudgedVerdict | None:
        cooling_down = []
        remaining = len(self._judges)
        for judge in self._judges:
            if judged := self._cached(judge, question, judgement):
                return judged
            if judge.cooldown_until > _now():
                cooling_down.append(judge)
            elif judged := await self._try_judge(judge, question, _share(deadline, remaining), judgement):
                return judged
            else:
                remaining -= 1
        for judge in cooling_down:
            if judged := await self._try_judge(judge, question, _share(deadline, remaining), judgement):
                return judged
            remaining -= 1
        return None

    async def _try_judge(
        self, judge: _JudgeState, question: Question, deadline: float, judgement: Judgement
    ) -> JudgedVerdict | None:
        def report(event: object) -> None:
            judgement.steps.append(f"{judge.model.name}: {event}")

        failing = False
        for failures in range(1, self._attempts + 1):
            wait = 0.0
            try:
                judged = await self._request_verdict(judge, question, deadline, judgement)
                report(_verdict_line(judged))
                await self._store(judge, question, judged, judgement)
                return judged
            except RateLimitTimeout as error:
                report(f"was not asked: {error}")
                return None
            except UnreadableVerdict as error:
                report(f"no verdict: {error}")
                judgement.is_provoked = True
                failing = False
            except ChatFault as error:
                report(error)
                judgement.refusals += error.scope == "endpoint"
                if error.scope != "passing":
                    judgement.is_provoked |= error.scope in _ABOUT_TEXTS and error.status in _BAD_REQUEST
                    return None
                wait = max(self._backoff.seconds(failures), error.retry_after)
                failing = True
            if failures == self._attempts:
                break
            if _now() + wait >= deadline:
                report("there was no time to ask again")
                break
            await asyncio.sleep(wait)
        if failing:
            judge.cooldown_until = _now() + _COOLDOWN
        return None

    async def _request_verdict(
        self, judge: _JudgeState, question: Question, deadline: float, judgement: Judgement
    ) -> JudgedVerdict:
        structured = not judge.plain_text
        try:
            completion = await self._send(judge, question, structured, deadline, judgement)
        except ChatFault as error:
            if not (structured and error.status and _ABOUT_THE_FORMAT.search(f"{error} {error.named}")):
                raise
            judge.plain_text, structured = True, False
            judgement.steps.append(f"{judge.model.name}: gives no structured answers; asked for a plain one")
            completion = await self._send(judge, question, structured, deadline, judgement)
        text = judge.client.without_key(completion.content)[:_MAX_REASON]
        if completion.finish_reason in _UNFINISHED:
            raise UnreadableVerdict(f"{_UNFINISHED[completion.finish_reason]}: {text!r}")
        try:
            judged = read_verdict(completion.content, question.answer, question.code, question.forms)
        except UnreadableVerdict as error:
            judge.plain_text = True
            raise UnreadableVerdict(f"{error}: {text!r}") from error
        return replace(judged, reason=judge.client.without_key(judged.reason))

    async def _send(
        self, judge: _JudgeState, question: Question, structured: bool, deadline: float, judgement: Judgement
    ) -> ChatAnswer:
        model = judge.model
        body = question.request(model.model, structured=structured)
        judge.client.check_key()
        async with self._limiter.turn(deadline - _now()):
            judgement.calls += 1
            completion = await judge.client.complete(body, min(model.timeout, deadline - _now()))
        judgement.cost += model.price_in * completion.prompt_tokens / _MILLION
        judgement.cost += model.price_out * completion.sampled_tokens / _MILLION
        return completion

    def _lock(self, question: Question) -> AbstractAsyncContextManager[object]:
        if self._cache is None:
            return nullcontext()
        return self._locks.setdefault(question, asyncio.Lock())

    def _cached(self, judge: _JudgeState, question: Question, judgement: Judgement) -> JudgedVerdict | None:
        if self._cache is None:
            return None
        judged = self._cache.read(question.key(judge.model.model))
        if judged:
            judgement.cached = True
            judgement.steps.append(f"{judge.model.name}, asked before: {_verdict_line(judged)}")
        return judged

    async def _store(
        self, judge: _JudgeState, question: Question, judged: JudgedVerdict, judgement: Judgement
    ) -> None:
        if self._cache is None:
            return
        name = judge.model.model
        try:
            # In a thread, because a write, unlike a lookup, can be slow on a cluster's file system.
            await asyncio.to_thread(self._cache.write, question.key(name), name, judged)
        except OSError as error:
            judgement.steps.append(f"the verdict could not be kept: {error}")


def _client(model: JudgeModel) -> ChatClient:
    return ChatClient(EndpointAddress(model.url, model.model, model.key_variable, needs_key=True))


def _verdict_line(judged: JudgedVerdict) -> str:
    return f"{judged.verdict.upper()}: {' '.join(judged.reason.split())[:_MAX_REASON]}"


def _share(deadline: float, remaining: int) -> float:
    now = _now()
    return now + (deadline - now) / remaining


def _now() -> float:
    return asyncio.get_running_loop().time()
