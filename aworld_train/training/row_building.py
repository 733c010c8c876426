"""Token rows for supervised training: of stored episodes as RL has them, or of conversations in files.

The rows of an episode are its stored ids and masks, and nothing is tokenised again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from aworld_train.dataset import output
from aworld_train.dataset.row_selection import Choice, choose_rows
from aworld_train.dataset.token_rows import TokenRow, TokenRowsFile, vocabulary_digest, write_token_rows
from aworld_train.errors import TRAINING_PROFILE, DatasetError, DatasetNotFound, DependencyMissing
from aworld_train.model.turns import chat_template
from aworld_train.rollout.conversation_rows import (
    Conversation,
    UnusableConversation,
    conversation_rows,
    read_conversation,
)
from aworld_train.rollout.template import ChatTemplate
from aworld_train.store.content import EpisodeContent
from aworld_train.store.reading import StoredEpisode
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.training.run_store import open_run_store


@dataclass
class RowSources:
    """Where rows come from; ``dropped`` counts episodes and conversations of which there are none, by reason."""

    model: Path
    runs: Sequence[RecordedRun] = ()
    condition: str = ""
    files: Sequence[Path] = ()
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def rows(self) -> Iterator[TokenRow]:
        for run in self.runs:
            yield from self._of_run(run)
        if self.files:
            yield from self._of_files()

    def _of_run(self, run: RecordedRun) -> Iterator[TokenRow]:
        vocabulary = _Vocabulary(self.model)
        with open_run_store(run, self.condition) as store:
            for episode in store.whole_episodes(store.ids(self.condition)):
                self.read += 1
                rows = list(_rows_of(episode, run.name, vocabulary))
                if not rows:
                    has_rows = episode.content is None or episode.content.rows
                    self.dropped["its tokens are not kept" if has_rows else "it has no training row"] += 1
                yield from rows

    def _of_files(self) -> Iterator[TokenRow]:
        template = _template(self.model)
        for path in self.files:
            for number, data in _lines(path):
                self.read += 1
                try:
                    conversation = read_conversation(data)
                    rendered = list(conversation_rows(template, conversation))
                except UnusableConversation as unusable:
                    self.dropped[str(unusable)] += 1
                    continue
                facts = _facts_of(data, conversation)
                for ids, mask in rendered:
                    yield TokenRow(ids, mask, origin=f"{path.name}:{number}", **facts)


def _template(model: Path) -> ChatTemplate:
    if missing := [name for name in ("torch", "transformers") if find_spec(name) is None]:
        raise DependencyMissing(
            f"Conversations are rendered with transformers, and {missing[0]} is not installed: "
            f"{TRAINING_PROFILE}."
        )
    return chat_template(str(model), {})


@dataclass(frozen=True)
class RowsReport:
    """What was made; ``read`` are episodes and conversations, ``splits`` the facts of the files by split."""

    out: str
    model: str
    read: int
    dropped: dict[str, int]
    splits: dict[str, TokenRowsFile]


def build_rows(sources: RowSources, choice: Choice, out: Path) -> RowsReport:
    output.check_replaceable(out)
    chosen = choose_rows(sources.rows(), choice)
    dropped = dict(sources.dropped + chosen.dropped)
    if not chosen.train:
        reasons = ", ".join(f"{count} because {reason}" for reason, count in dropped.items())
        raise DatasetError(
            f"There is nothing to train on: {sources.read} episodes or conversations were read"
            + (f", of which {reasons} were left out." if reasons else ". Widen the condition (--where).")
        )
    vocabulary = vocabulary_digest(sources.model)
    with output.replacing(out) as folder:
        splits = {
            split: write_token_rows(folder / f"{split}.parquet", rows, vocabulary)
            for split, rows in (("train", chosen.train), ("val", chosen.val))
            if rows
        }
        report = RowsReport(str(out), str(sources.model), sources.read, dropped, splits)
        output.write_manifest(folder, _manifest(report, sources, choice))
    return report


def _manifest(report: RowsReport, sources: RowSources, choice: Choice) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(report).items() if name != "out"}
    origins = {"runs": [run.name for run in sources.runs], "files": list(map(str, sources.files))}
    return {**origins, "where": sources.condition, "choice": asdict(choice), **facts}


class _Vocabulary:
    """A model's tokenizer, to check that stored ids are its own."""

    def __init__(self, model: Path):
        from tokenizers import Tokenizer

        file = model / "tokenizer.json"
        self._model = model
        self._tokenizer = Tokenizer.from_file(str(file)) if file.is_file() else None

    def check(self, texts: Sequence[str], ids: Sequence[int], origin: str) -> None:
        """Refuse ids that spell none of the texts that they were made of."""
        written = [text.strip() for text in texts if text.strip()]
        if self._tokenizer is None or not written:
            return
        spelled = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        if not any(text in spelled for text in written):
            raise DatasetError(
                f"The token ids of {origin} do not spell its messages with the tokenizer of {self._model}: it was "
                "played by a model with another one. Name that model with --model, and train it."
            )


def _rows_of(episode: StoredEpisode, run: str, vocabulary: _Vocabulary) -> Iterator[TokenRow]:
    content, head = episode.content, episode.head
    if content is None or not _keeps_tokens(content):
        return
    level = (episode.task_row.get("extra_info") or {}).get("level")
    for number, stored in enumerate(content.rows):
        nodes = [content.agents[stored.agent].nodes[node] for node in stored.path]
        ids = np.frombuffer(b"".join(node.tokens for node in nodes), "<i4").tolist()
        mask = [0] * len(ids)
        for span in content.spans(number):
            if span.own:
                mask[span.begin : span.end] = [1] * (span.end - span.begin)
        origin = f"{run}/{head.id}"
        vocabulary.check([message.content for node in nodes for message in node.messages], ids, origin)
        if any(mask):
            yield TokenRow(ids, mask, head.task, origin, str(level or ""), head.figures.reward)


def _keeps_tokens(content: EpisodeContent) -> bool:
    return all(content.agents[row.agent].nodes[node].has_tokens for row in content.rows for node in row.path)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, msgspec.json.decode(line, type=dict[str, Any])
    except FileNotFoundError:
        raise DatasetNotFound(f"No such file of conversations: {path}.") from None
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise DatasetError(
            f"{path} is not a file of conversations, one JSON object a line: line {max(1, number)}: {error}."
        ) from error


def _facts_of(data: Mapping[str, Any], conversation: Conversation) -> dict[str, Any]:
    """Task, level and reward of a line: what comes before the first answer is the task; see `runs export`."""
    metadata = data.get("metadata")
    facts = metadata if isinstance(metadata, dict) else data
    task = [
        (one.role, one.content)
        for one in takewhile(lambda one: one.role != "assistant", conversation.messages)
    ]
    reward = facts.get("reward")
    return {
        "task": hashlib.sha256(repr(task).encode()).hexdigest(),
        "level": str(facts.get("level") or ""),
        "reward": float(reward) if isinstance(reward, int | float) else None,
    }
