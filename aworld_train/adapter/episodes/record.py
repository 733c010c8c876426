"""What every episode leaves, however it ends: a line in ``traces/episodes.jsonl``, and everything in the run's store.

The worker opens a record before an episode, the player fills it, and the worker writes it once there is a score. Each
asyncio task has its own record, because a worker plays many episodes at the same time.
"""

import json
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aworld_train.adapter.episodes.scoring import EpisodeScore
from aworld_train.adapter.episodes.settings import EpisodeSettings
from aworld_train.adapter.episodes.stored import episode_content, store_recorder
from aworld_train.episode.figures import EpisodeFigures
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.errors import one_line
from aworld_train.masking import masked
from aworld_train.reward.hacking import look, suspicions
from aworld_train.rollout.episode import Episode
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.graph import Row
from aworld_train.store.recording import StoreRecorder

RUN_DIR_VARIABLE = "AWORLD_TRAIN_RUN_DIR"
_MAX_EXTRACTED_CHARS = 1_000


class EpisodeRecord:
    def __init__(self, step: int, validate: bool, index: int):
        self.validate = validate
        self.id = os.urandom(8).hex()
        self.figures = EpisodeFigures(episode=self.id, step=step, validate=validate, index=index)
        self.result: EpisodeResult | None = None
        self.is_written = False
        self._recorder: StoreRecorder | None = None
        self._has_tools = True
        self._rows: list[tuple[str, Row]] = []
        self._score: EpisodeScore | None = None

    def begin(
        self,
        settings: EpisodeSettings,
        task: Mapping[str, Any],
        *,
        phase: str,
        attempt: int = 0,
        key: str = "",
    ) -> None:
        """Open the episode in the run's store, if there is one, under ``key``, the training framework's name for it."""
        self._has_tools = settings.env["has_tools"]
        folder = os.environ.get(RUN_DIR_VARIABLE)
        self._recorder = store_recorder(Path(folder), settings) if folder else None
        if self._recorder is not None:
            stored = self._recorder.task(task)
            step = self.figures.step
            self._recorder.begin(self.id, stored, step=step, phase=phase, attempt=attempt, key=key)

    @property
    def is_usable(self) -> bool:
        """Whether the episode has a place in its group: it was played, not dropped, and could be scored."""
        return self.figures.scores is not None

    def finish(
        self, result: EpisodeResult, rows: list[tuple[str, Row]], treatment: Treatment, seconds: float
    ) -> None:
        self.result, self._rows, episode = result, rows, result.episode
        agents, figures, tools = list(episode.agents.values()), self.figures, result.tools
        figures.outcome, figures.cause = result.outcome, result.cause
        figures.treatment = treatment.value
        figures.turns, figures.rows = episode.turns, len(rows)
        figures.tool_calls, figures.tool_errors = tools.calls, tools.errors
        self._count_tokens(episode, rows)
        figures.branches, figures.format_misses = dict(episode.branches), dict(episode.misses)
        figures.branch_points = [
            replace(point, agent=agent.name) for agent in agents for point in agent.graph.branch_points
        ]
        figures.undelivered = sum(agent.graph.undelivered for agent in agents)
        figures.weights = episode.versions
        figures.agents = {agent.name: len(agent.completions) for agent in agents}
        figures.seconds, figures.generate_seconds = round(seconds, 4), round(episode.generate_seconds, 4)
        figures.tool_seconds = round(tools.seconds, 4)
        if (failure := episode.failure) is not None and failure.is_permanent:
            figures.refusal = f"An endpoint refuses all requests: {failure}"

    def _count_tokens(self, episode: Episode, rows: list[tuple[str, Row]]) -> None:
        """The tokens of an episode's rows; without rows those that were counted."""
        figures = self.figures
        figures.given_tokens = episode.given_tokens
        trained_agents = {name for name, _ in rows}
        figures.unique_tokens = sum(episode.agents[name].graph.unique_tokens for name in trained_agents)
        if rows:
            figures.prompt_tokens = sum(len(row.prompt) for _, row in rows)
            figures.response_tokens = sum(len(row.response) for _, row in rows)
            figures.sampled_tokens = sum(sum(row.mask) for _, row in rows)
            return
        nodes = [node for agent in episode.agents.values() for node in agent.graph.nodes()]
        figures.prompt_tokens = sum(node.token_count for node in nodes if node.parent is None)
        figures.response_tokens = sum(node.token_count for node in nodes) - figures.prompt_tokens
        figures.sampled_tokens = sum(node.token_count for node in nodes if node.sampled)

    def score(self, score: EpisodeScore, task: Mapping[str, Any]) -> bool:
        """Record how the episode was scored; returns whether it has a score: one without is dropped."""
        self._score, result, figures = score, score.result, self.figures
        figures.scorer, figures.scoring = result.scorer, result.outcome.value
        figures.parts = dict(result.parts)
        if score.value is None:
            figures.treatment, figures.cause = Treatment.dropped.value, result.cause
            if result.judges_refuse:
                figures.refusal = f"The judges refuse all requests: {result.cause}"
            return False
        figures.extracted = None if result.extracted is None else result.extracted[:_MAX_EXTRACTED_CHARS]
        self.reward(score.value, score.figures())
        self._suspect(score, task)
        return True

    def reward(self, reward: float | None, scores: Mapping[str, Any]) -> None:
        self.figures.reward = reward
        self.figures.scores = {name: value for name, value in scores.items() if _is_figure(value)}

    def _suspect(self, score: EpisodeScore, task: Mapping[str, Any]) -> None:
        result = self.result
        if result is None:
            return
        info = task.get("extra_info") or {}
        attachments = info.get("attachments")
        query = "\n".join(
            str(message.get("content") or "") for message in task["raw_prompt"] if message["role"] == "user"
        )
        extracted = score.result.extracted
        signs = suspicions(
            query=query,
            text=result.answer,
            answer=extracted,
            right=score.accuracy is not None and score.accuracy >= 1.0,
            tools=tool_uses(result.episode),
            tool_calls=result.tools.calls,
            # May be an array, which has no truth value.
            files=[] if attachments is None else [str(path) for path in attachments],
            has_tools=self._has_tools,
        )
        if signs:
            truth = str((task.get("reward_model") or {}).get("ground_truth") or "")
            self.figures.suspicions = [sign.value for sign in signs]
            self.figures.look = dict(look(query, result.answer, extracted, truth))

    def lost(self, result: EpisodeResult) -> None:
        """Write at once that the environment or the engine was lost; the episode itself may be played again."""
        _append(replace(self.figures, outcome=result.outcome, retried=True, cause=result.cause or ""))

    def write(self, error: BaseException | None) -> None:
        """Append the line, and close the episode in the store. An agent loop that raised leaves a dropped episode."""
        figures = self.figures
        if figures.outcome is None or error is not None:
            figures.reward = figures.scores = None
            figures.outcome, figures.treatment = Outcome.infrastructure, Treatment.dropped.value
            figures.cause = one_line(error) if error else "the agent loop reported nothing"
        _append(figures)
        self._store()
        self.is_written = True

    async def keep(self) -> None:
        """Write, and wait until the store's part is written too, so that no end of this process loses it."""
        self.write(None)
        if self._recorder is not None:
            await self._recorder.written()

    def _store(self) -> None:
        recorder, result = self._recorder, self.result
        if recorder is None:
            return
        content = None
        if result is not None and recorder.keep.content_of(self.id, self.figures):
            parts = {
                name: float(value) for name, value in (self.figures.scores or {}).items() if value is not None
            }
            content = episode_content(recorder, result, self._rows, self._score, parts)
        recorder.end(self.id, self.figures, content)


def _is_figure(value: Any) -> bool:
    """Whether a value is a number, and none of those beyond 64 bits that a reward function read from an answer."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


def tool_uses(episode: Episode) -> list[tuple[str, str]]:
    """The arguments and results of an episode's calls, in the order of the conversation; each once."""
    uses: list[tuple[str, str]] = []
    for agent in episode.agents.values():
        arguments: dict[str, str] = {}
        for node in agent.graph.nodes():
            for message in node.messages:
                arguments |= {call.call_id: call.arguments for call in message.tool_calls}
                if message.role == "tool":
                    uses.append((arguments.get(message.call_id, ""), message.content))
    return uses


def _append(figures: EpisodeFigures) -> None:
    folder = os.environ.get(RUN_DIR_VARIABLE)
    if not folder:
        return
    file = Path(folder) / "traces" / "episodes.jsonl"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # One write with O_APPEND, so that lines of several processes do not mix; a full disk may take a part of it.
        rest = (json.dumps(masked(figures.line()), ensure_ascii=False) + "\n").encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


_current: ContextVar[EpisodeRecord] = ContextVar("current_episode")


def current_record() -> EpisodeRecord:
    return _current.get()


def open_record(step: int, validate: bool, index: int) -> EpisodeRecord:
    record = EpisodeRecord(step, validate, index)
    _current.set(record)
    return record
