"""Decides of which episodes a run keeps texts and tokens; figures are kept of all, unless the store is off."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.episode.outcome import Outcome

_SAMPLE = re.compile(r"sample:(0(?:\.\d+)?|1(?:\.0+)?|\.\d+)")
KEEP_FORMS = "all, failures, sample:SHARE (as sample:0.1) or off"


class KeepKind(StrEnum):
    all = "all"
    failures = "failures"
    sample = "sample"
    off = "off"


@dataclass(frozen=True)
class Keep:
    kind: KeepKind
    share: float = 1.0

    @property
    def is_on(self) -> bool:
        return self.kind is not KeepKind.off

    def content_of(self, episode: str, figures: EpisodeFigures) -> bool:
        """Whether the content of an episode is kept.

        ``failures`` are those that were not answered, not scored, or not right. A sample is drawn by the episode's id.
        """
        match self.kind:
            case KeepKind.all:
                return True
            case KeepKind.off:
                return False
            case KeepKind.sample:
                fraction = int(hashlib.sha256(episode.encode()).hexdigest()[:8], 16) / (1 << 32)
                return fraction < self.share
            case KeepKind.failures:
                accuracy = figures.accuracy
                return figures.outcome != Outcome.answered or accuracy is None or accuracy < 1.0


def parse_keep(text: str) -> Keep:
    """What a value of ``store.keep`` means; raises ValueError if it has none of the forms."""
    if match := _SAMPLE.fullmatch(text):
        return Keep(KeepKind.sample, float(match[1]))
    if text in (KeepKind.all, KeepKind.failures, KeepKind.off):
        return Keep(KeepKind(text))
    raise ValueError(f"`store.keep` is {text!r}; it must be {KEEP_FORMS}")
