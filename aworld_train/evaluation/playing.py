"""Makes the attempts of an evaluation, a limited number at a time, until all are made or a limit ends it.

What an attempt comes to is in the store when it is over; nothing of it is kept here but counts. So memory does not grow
with the number of attempts, and a process that is killed loses only those that it was making.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aworld_train.adapter.base import EpisodeModel
from aworld_train.adapter.episodes.agent import EpisodeAgent
from aworld_train.adapter.episodes.play_single import close_gateways, close_store, play_row
from aworld_train.errors import AworldTrainError, EvaluationFailure, ModelError
from aworld_train.evaluation.plan import EvalPlan, PlannedAttempt
from aworld_train.evaluation.tally import PHASE, Tally
from aworld_train.rollout.chat_endpoint import ChatEndpoint
from aworld_train.training.environment import HealthWatch

_PROGRESS_SECONDS = 0.25
_MIN_ERRORS_IN_A_ROW = 20
_MAX_FAILED_SHARE = 2
"""So many times as many failures in a row as attempts are made at a time end an evaluation: something is broken."""


class Player:
    """Makes attempts, from ``play`` until they are made; ``watch`` is called a few times a second."""

    def __init__(
        self,
        plan: EvalPlan,
        folder: Path,
        rows: Sequence[Mapping[str, Any]],
        model: EpisodeModel,
        agent: EpisodeAgent | None,
        tally: Tally,
        watch: Callable[[], None],
        health: HealthWatch,
    ):
        self._plan, self._folder, self._rows, self._model = plan, folder, rows, model
        self._agent, self._tally, self._watch, self._health = agent, tally, watch, health
        self._began = time.monotonic()
        self._broken: AworldTrainError | None = None
        self._making: set[asyncio.Task[None]] = set()
        self.limit_reached: str | None = None

    async def play(self, attempts: Sequence[PlannedAttempt]) -> None:
        waiting = iter(attempts)
        workers = [
            asyncio.create_task(self._work(waiting))
            for _ in range(min(self._plan.section.concurrency, len(attempts)))
        ]
        try:
            pending = set(workers)
            while pending:
                done, pending = await asyncio.wait(pending, timeout=_PROGRESS_SECONDS)
                for worker in done:
                    worker.result()
                self._watch()
                # A probe of an environment that is gone takes seconds.
                reason = await asyncio.to_thread(self._health.failure_reason)
                if self._broken is None and reason is not None:
                    self._broken = EvaluationFailure(reason)
                if self._broken is not None:
                    raise self._broken
        finally:
            under_way = [*workers, *self._making]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await close_gateways()
            await self._model.close()
            await close_store(self._folder)

    async def _work(self, waiting: Iterator[PlannedAttempt]) -> None:
        """Make one attempt after the other; each is scored and recorded while the next is played."""
        before: asyncio.Task[None] | None = None
        for attempt in waiting:
            if self._broken is not None or self._is_over():
                break
            making, played = self._begin(attempt)
            await played.wait()
            if before is not None:
                await before
            before = making
        if before is not None:
            await before

    def _begin(self, attempt: PlannedAttempt) -> "tuple[asyncio.Task[None], asyncio.Event]":
        """Begin an attempt; the event tells when it has been played, or has failed."""
        played = asyncio.Event()
        making = asyncio.create_task(self._make(attempt, played))
        self._making.add(making)

        def end(task: "asyncio.Task[None]") -> None:
            self._making.discard(task)
            played.set()

        making.add_done_callback(end)
        return making, played

    async def _make(self, attempt: PlannedAttempt, played: asyncio.Event) -> None:
        recipe = self._plan.loaded.recipe
        episode = await play_row(
            self._folder,
            self._model,
            self._rows[attempt.row],
            self._plan.sampling_params(attempt),
            validate=True,
            max_prompt_tokens=recipe.dataset.max_prompt_tokens,
            max_response_tokens=recipe.rollout.max_response_tokens,
            phase=PHASE,
            attempt=attempt.number,
            key=attempt.key,
            agent=self._agent,
            on_played=played.set,
        )
        self._tally.add(str(attempt.row), episode.figures)
        self._look_for_faults()

    def _is_over(self) -> bool:
        section, tally = self._plan.section, self._tally
        for name, limit, used in (
            ("max_seconds", section.max_seconds, time.monotonic() - self._began),
            ("max_tokens", section.max_tokens, tally.tokens),
            ("max_cost", section.max_cost, tally.cost),
        ):
            if limit is not None and used >= limit:
                self.limit_reached = f"eval.{name} ({limit:g})"
                return True
        return False

    def _look_for_faults(self) -> None:
        if isinstance(self._model, ChatEndpoint) and self._model.refusal is not None:
            self._broken = ModelError(self._model.refusal)
            return
        if self._tally.refusal:
            self._broken = EvaluationFailure(self._tally.refusal)
            return
        most = max(_MIN_ERRORS_IN_A_ROW, _MAX_FAILED_SHARE * self._plan.section.concurrency)
        if self._tally.errors_in_a_row >= most:
            self._broken = EvaluationFailure(
                f"{self._tally.errors_in_a_row} attempts in a row could not be scored, so the evaluation was ended. "
                f"The last one: {self._tally.last_cause}. Continue with --resume --retry-errors once it is mended."
            )
