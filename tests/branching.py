"""An episode of two agents, one of which went back in its conversation, with an image: what a page shows as a tree."""

import struct
import zlib
from pathlib import Path

from aworld_train.episode.branch_point import BranchPoint
from aworld_train.episode.figures import figures_of
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.score import ScoreResult
from aworld_train.store.content import (
    EpisodeContent,
    ModelCall,
    StoredAgent,
    StoredNode,
    StoredRow,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.database import Database
from aworld_train.store.loading import load
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import store_location
from tests.stored_runs import BEGAN, task_row


def add_episode(folder: Path, content: EpisodeContent | None, *, step: int, index: int, episode: str) -> None:
    """Add an episode to a run's store, as its processes do while it goes on."""
    recorder = StoreRecorder(folder, parse_keep("all"), Redactor())
    task = recorder.task(task_row(index, 6, 7))
    recorder.begin(episode, task, step=step, phase="train", attempt=0, key="")
    figures = {"outcome": "answered", "treatment": "trained", "reward": 1.0, "turns": 3, "tool_calls": 0}
    figures |= {"tool_errors": 0, "sampled_tokens": 9, "seconds": 2.0}
    recorder.end(episode, figures_of(figures), content)
    recorder.close()
    place = store_location(folder)
    assert place is not None
    database = Database(place)
    load(database)
    database.close()


def branching_content(folder: Path) -> EpisodeContent:
    """The content of such an episode; its image is put into the run's store."""
    recorder = StoreRecorder(folder, parse_keep("all"), Redactor())
    digest = recorder.blob(png())
    recorder.close()
    nodes = (
        context(-1, Message("user", "Look at this.", images=(Image(0, digest),))),
        sampled(0, "My first attempt."),
        context(1, Message("user", "Go on.")),
        sampled(2, "The end of the first branch."),
        context(1, Message("user", "Do it in another way.")),
        sampled(4, "The end of the second branch."),
    )
    calls = tuple(
        ModelCall(node, BEGAN + number, 0.5, "stop", 8, 1.0) for number, node in enumerate((1, 3, 5))
    )
    branch = BranchPoint("edited", 2, "user", 0, "Go on.", "Do it in another way.")
    helper = StoredAgent(
        "helper",
        (context(-1, Message("user", "Help.")), sampled(0, "I help.")),
        (ModelCall(1, BEGAN, 0.1, "stop", 3, 1.0),),
    )
    rows = (StoredRow(0, (0, 1, 2, 3), (1, 3), 4), StoredRow(0, (0, 1, 4, 5), (5,), 4))
    return EpisodeContent(
        (StoredAgent("main", nodes, calls, (branch,)), helper),
        (),
        rows,
        ScoreResult(1.0, "42", steps=("compared 42 with 42",), scorer="number"),
        "The end of the second branch.",
    )


def context(parent: int, message: Message) -> StoredNode:
    """Input of the model."""
    return StoredNode(parent, (message,), packed_tokens(range(4)), 4)


def sampled(parent: int, text: str) -> StoredNode:
    """A turn of the model."""
    logprobs = packed_floats([-0.05, -0.7, -3.0])
    return StoredNode(parent, (Message("assistant", text),), packed_tokens((7, 8, 9)), 3, logprobs)


def png(side: int = 16) -> bytes:
    """A blue picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x1f\x6f\xeb" * side) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
