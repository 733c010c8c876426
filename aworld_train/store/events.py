"""What the processes of a run report about episodes, in the order in which it happens."""

import msgspec

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.store.content import EpisodeContent


class Blob(msgspec.Struct, frozen=True, omit_defaults=True, tag="blob"):
    """Bytes that several episodes have in common; ``digest`` is their SHA-256. They come before their first use."""

    digest: str
    data: bytes


class TaskSeen(msgspec.Struct, frozen=True, omit_defaults=True, tag="task"):
    """A task, before its first episode: ``id`` is made of its content, ``row`` is the dataset's, as JSON."""

    id: str
    index: int
    source: str
    scorer: str
    question: str
    answer: str
    row: str


class EpisodeBegun(msgspec.Struct, frozen=True, omit_defaults=True, tag="begun"):
    """An episode begins, the ``attempt`` of its task in this step; its id is unique, its ``key`` the framework's."""

    id: str
    task: str
    step: int
    phase: str
    attempt: int
    key: str
    began: float


class EpisodeEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag="ended"):
    """An episode is over; ``content`` is None for one that is not kept."""

    id: str
    ended: float
    figures: EpisodeFigures
    content: EpisodeContent | None = None


class TrainedRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row by its episode's key and its index; ``advantage`` is the mean over its ``masked_in`` tokens under the mask.

    ``advantages`` are those of each token of the response, as ``packed_floats``; empty where all under the mask are
    equal.
    """

    key: str
    advantage: float | None
    masked_in: int
    advantages: bytes = b""


class RowsTrained(msgspec.Struct, frozen=True, omit_defaults=True, tag="trained"):
    """A training step has used these rows, in this order, after ``before`` others."""

    step: int
    rows: tuple[TrainedRow, ...]
    before: int = 0


class GroupsDropped(msgspec.Struct, frozen=True, omit_defaults=True, tag="left_out"):
    """Groups or episodes, by their keys, that are dropped."""

    keys: tuple[str, ...]
    reason: str


class GroupsReplayed(msgspec.Struct, frozen=True, omit_defaults=True, tag="replayed"):
    """A resumed run plays these groups again, whose episodes began ``before``, in Unix time."""

    keys: tuple[str, ...]
    before: float


Event = Blob | TaskSeen | EpisodeBegun | EpisodeEnded | RowsTrained | GroupsDropped | GroupsReplayed
