"""How an answer was scored."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

JUDGES_REFUSE = "judges_refuse"
"""The part of a score that says that no judge takes any request, as with a wrong key or a spent quota."""


class ScoreOutcome(StrEnum):
    scored = "scored"
    no_answer = "no_answer"
    too_hard = "too_hard"
    """The scorer fails on this answer and copes with the ground truth; the score is 0."""
    abstained = "abstained"
    timeout = "timeout"
    error = "error"


class ScoreResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of scoring an answer; ``score`` is None for ``abstained``, ``timeout`` and ``error``.

    Of a reward function that is the training framework's it has the parts alone.
    """

    score: float | None = None
    extracted: str | None = None
    outcome: ScoreOutcome = ScoreOutcome.scored
    parts: Mapping[str, float] = {}
    steps: tuple[str, ...] = ()
    cause: str | None = None
    scorer: str = ""

    @property
    def judges_refuse(self) -> bool:
        """Whether there is no score because no judge takes any request; ``composite`` names parts by their scorer."""
        return self.score is None and any(name.endswith(JUDGES_REFUSE) for name in self.parts)
