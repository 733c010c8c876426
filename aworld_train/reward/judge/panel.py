"""The models of a recipe as one judge: asked in order, each several times, until one gives a verdict.

A verdict that was given before costs nothing. A model that is out of order may use up no more than its share of the
time, so that the next one still gets asked, and is asked last for a while. When all fail there is no verdict, and the
steps say what each of them did.
"""

import asyncio
import random
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import aiohttp

from aworld_train.reward.judge.cache import VerdictCache
from aworld_train.reward.judge.client import Client, Reply, Unanswered
from aworld_train.reward.judge.question import Question
from aworld_train.reward.judge.rate_limiter import RateLimiter, RateLimitTimeout
from aworld_train.reward.judge.verdict import JudgedVerdict, Unreadable, read_ruling
from aworld_train.reward.settings import JudgeModel, JudgeSettings

_REST = 30.0  # seconds for which a model that was out of order is asked after the others
_DOUBLINGS = 64  # more make no wait longer, and 2 to a thousand is no float
_MILLION = 1_000_000
_SHOWN = 500  # characters of a reason


@dataclass(frozen=True)
class Backoff:
    """How long to wait before asking again: exponential with full jitter (Brooker, AWS Architecture Blog, 2015).

    Attributes:
        first: Most seconds before the second request.
        most: Most seconds before any.
    """

    first: float = 0.5
    most: float = 8.0

    def seconds(self, failures: int) -> float:
        """A wait after so many failures."""
        return random.uniform(0.0, min(self.most, self.first * 2.0 ** min(failures - 1, _DOUBLINGS)))


@dataclass
class Judgement:
    """What became of a question, and what it took.

    Attributes:
        ruling: The verdict; None where there is none.
        calls: Requests that were sent.
        cost: What they cost, as far as servers say how much they read and wrote.
        cached: Whether the verdict was given before.
        steps: What happened, a line each.
    """

    ruling: JudgedVerdict | None = None
    calls: int = 0
    cost: float = 0.0
    cached: bool = False
    steps: list[str] = field(default_factory=list)


@dataclass
class _JudgeState:
    """A model and what is remembered of it."""

    client: Client
    speaks_plainly: bool = False  # refuses structured output, or takes no notice of it
    rests_until: float = 0.0

    @property
    def model(self) -> JudgeModel:
        return self.client.model


class JudgePanel:
    """Judges by the settings of a run; belongs to one event loop.

    Args:
        settings: Whom to ask, and how often.
        session: Connections.
        backoff: Waits between requests.
    """

    def __init__(
        self, settings: JudgeSettings, session: aiohttp.ClientSession, backoff: Backoff | None = None
    ):
        self._attempts = settings.attempts
        self._seats = [_JudgeState(Client(model, session)) for model in settings.models]
        self._pace = RateLimiter(settings.concurrency, settings.per_minute)
        self._backoff = backoff or Backoff()
        self._cache = VerdictCache(Path(settings.cache).expanduser()) if settings.cache else None
        self._asked_now: WeakValueDictionary[Question, asyncio.Lock] = WeakValueDictionary()

    async def judge(self, question: Question, seconds: float) -> Judgement:
        """A verdict on a question within so many seconds, or none and why; raises for nothing a server does."""
        judgement = Judgement()
        until = _now() + seconds
        try:
            # The same answer, given in several episodes at the same time, is paid for once.
            async with asyncio.timeout_at(until) as limit, self._alone_with(question):
                limit.reschedule(None)
                judgement.ruling = await self._ask_in_order(question, until, judgement)
        except TimeoutError:
            judgement.steps.append("the same answer was still being judged for another episode")
        return judgement

    async def _ask_in_order(
        self, question: Question, until: float, judgement: Judgement
    ) -> JudgedVerdict | None:
        resting = []
        waiting = len(self._seats)
        for seat in self._seats:
            if ruling := self._kept(seat, question, judgement):
                return ruling
            if seat.rests_until > _now():
                resting.append(seat)
            elif ruling := await self._ask_seat(seat, question, _share(until, waiting), judgement):
                return ruling
            else:
                waiting -= 1
        for seat in resting:
            if ruling := await self._ask_seat(seat, question, _share(until, waiting), judgement):
                return ruling
            waiting -= 1
        return None

    async def _ask_seat(
        self, seat: _JudgeState, question: Question, until: float, judgement: Judgement
    ) -> JudgedVerdict | None:
        def tell(what: object) -> None:
            judgement.steps.append(f"{seat.model.name}: {what}")

        out_of_order = False
        for failures in range(1, self._attempts + 1):
            wait = 0.0
            try:
                ruling = await self._ask_once(seat, question, until, judgement)
                tell(_told(ruling))
                await self._keep(seat, question, ruling, judgement)
                return ruling
            except RateLimitTimeout as reason:
                tell(f"was not asked: {reason}")
                return None
            except Unreadable as reason:
                tell(f"no verdict: {reason}")
                out_of_order = False
            except Unanswered as reason:
                tell(reason)
                if not reason.again:
                    return None
                wait = max(self._backoff.seconds(failures), reason.wait)
                out_of_order = True
            if failures == self._attempts:
                break
            if _now() + wait >= until:
                tell("there was no time to ask again")
                break
            await asyncio.sleep(wait)
        if out_of_order:
            seat.rests_until = _now() + _REST
        return None

    async def _ask_once(
        self, seat: _JudgeState, question: Question, until: float, judgement: Judgement
    ) -> JudgedVerdict:
        structured = not seat.speaks_plainly
        try:
            reply = await self._send(seat, question, structured, until, judgement)
        except Unanswered as reason:
            if not (structured and reason.about_format):
                raise
            seat.speaks_plainly, structured = True, False
            judgement.steps.append(f"{seat.model.name}: gives no structured answers; asked for a plain one")
            reply = await self._send(seat, question, structured, until, judgement)
        if reply.cut_off:
            raise Unreadable(f"what it said was cut off ({reply.cut_off})")
        try:
            ruling = read_ruling(reply.text)
        except Unreadable as reason:
            seat.speaks_plainly = True
            said = seat.client.without_key(reply.text)[:_SHOWN]
            raise Unreadable(f"{reason}: {said!r}") from reason
        return JudgedVerdict(ruling.verdict, seat.client.without_key(ruling.reason))

    async def _send(
        self, seat: _JudgeState, question: Question, structured: bool, until: float, judgement: Judgement
    ) -> Reply:
        model = seat.model
        body = question.request(model.model, structured=structured)
        seat.client.check_key()
        async with self._pace.turn(until - _now()):
            judgement.calls += 1
            reply = await seat.client.ask(body, min(model.timeout, until - _now()))
        judgement.cost += model.price_in * reply.prompt_tokens / _MILLION
        judgement.cost += model.price_out * reply.completion_tokens / _MILLION
        return reply

    def _alone_with(self, question: Question) -> AbstractAsyncContextManager[object]:
        if self._cache is None:
            return nullcontext()
        return self._asked_now.setdefault(question, asyncio.Lock())

    def _kept(self, seat: _JudgeState, question: Question, judgement: Judgement) -> JudgedVerdict | None:
        if self._cache is None:
            return None
        ruling = self._cache.read(question.key(seat.model.model))
        if ruling:
            judgement.cached = True
            judgement.steps.append(f"{seat.model.name}, asked before: {_told(ruling)}")
        return ruling

    async def _keep(
        self, seat: _JudgeState, question: Question, ruling: JudgedVerdict, judgement: Judgement
    ) -> None:
        if self._cache is None:
            return
        name = seat.model.model
        try:
            # Unlike a look for a file, writing one may take its time on the file system of a cluster.
            await asyncio.to_thread(self._cache.write, question.key(name), name, ruling)
        except OSError as error:
            judgement.steps.append(f"the verdict could not be kept: {error}")


def _told(ruling: JudgedVerdict) -> str:
    """A verdict and its reason, in a line."""
    return f"{ruling.verdict.upper()}: {' '.join(ruling.reason.split())[:_SHOWN]}"


def _share(until: float, waiting: int) -> float:
    """Until when a model may be asked, if so many, itself among them, are still to be asked."""
    now = _now()
    return now + (until - now) / waiting


def _now() -> float:
    return asyncio.get_running_loop().time()
