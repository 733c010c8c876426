"""What one question has in common with another."""

from enum import Enum
from typing import NamedTuple

from aworld_train.errors import UsageError

THRESHOLD = 0.8
"""Share of the shingles that two questions have in common where one is the other again."""


class MatchKind(Enum):
    """From the closest on: the same but for a comma; one in the other; as these, but with other figures."""

    near_duplicate = "near-duplicate"
    contained = "contained"
    figure_variant = "figure variant"


class FigureVariants(Enum):
    keep = "keep"
    drop = "drop"


def parse_figure_variants(text: str | None) -> FigureVariants | None:
    try:
        return None if text is None else FigureVariants(text)
    except ValueError:
        raise UsageError(f"figure_variants is {text!r} and can be keep or drop.") from None


class QuestionMatch(NamedTuple):
    """The other question, and how near it is.

    ``share`` is the Jaccard similarity of near-duplicates; otherwise the share of the shorter one's shingles that the
    longer one has, figures aside.
    """

    kind: MatchKind
    name: str
    share: float

    def __str__(self) -> str:
        text = {
            MatchKind.near_duplicate: f"near-duplicate of {self.name}",
            MatchKind.contained: f"contains or is a part of {self.name}",
            MatchKind.figure_variant: f"has the words and not the figures of {self.name}",
        }[self.kind]
        return f"{text} ({self.share:.2f})"


class MatchVerdict(NamedTuple):
    match: QuestionMatch
    is_left_out: bool
