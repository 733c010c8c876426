"""One row for each model call, for DuckDB, pandas and other readers of Parquet."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from aworld_train.store.content import EpisodeContent, StoredAgent, float_array
from aworld_train.store.export.conversations import (
    digest_part,
    episode_facts,
    openai_message,
)
from aworld_train.store.export.writer import ExportedRun, json_text
from aworld_train.store.reading import RowUse, StoredEpisode

# A call has the whole conversation before it, so some hundred are megabytes.
_MAX_GROUP_ROWS = 512
_MAX_GROUP_TOKENS = 1_000_000

SCHEMA = pyarrow.schema(
    [
        pyarrow.field(name, kind)
        for name, kind in {
            "run": pyarrow.string(),
            "episode": pyarrow.string(),
            "step": pyarrow.int64(),
            "phase": pyarrow.string(),
            "source": pyarrow.string(),
            "task": pyarrow.string(),
            "task_index": pyarrow.int64(),
            "attempt": pyarrow.int64(),
            "outcome": pyarrow.string(),
            "treatment": pyarrow.string(),
            "reward": pyarrow.float64(),
            "accuracy": pyarrow.float64(),
            "agent": pyarrow.string(),
            "call": pyarrow.int64(),
            "messages_in": pyarrow.string(),
            "message_out": pyarrow.string(),
            "tools": pyarrow.string(),
            "prompt_tokens": pyarrow.int64(),
            "sampled_tokens": pyarrow.int64(),
            "prompt_token_ids": pyarrow.list_(pyarrow.int32()),
            "sampled_token_ids": pyarrow.list_(pyarrow.int32()),
            "logprobs": pyarrow.list_(pyarrow.float64()),
            "row": pyarrow.int64(),
            "trained_step": pyarrow.int64(),
            "row_position": pyarrow.int64(),
            "mask": pyarrow.list_(pyarrow.int8()),
            "advantage": pyarrow.float64(),
            "advantages": pyarrow.list_(pyarrow.float64()),
            "temperature": pyarrow.float64(),
            "top_p": pyarrow.float64(),
            "top_k": pyarrow.int64(),
            "max_tokens": pyarrow.int64(),
            "finish_reason": pyarrow.string(),
            "malformed": pyarrow.bool_(),
            "delivered": pyarrow.bool_(),
            "weights_first": pyarrow.int64(),
            "weights_last": pyarrow.int64(),
            "began": pyarrow.float64(),
            "seconds": pyarrow.float64(),
        }.items()
    ]
)
"""The columns; docs/how-to/export.md says what is in them."""


class ParquetWriter:
    def __init__(self, file: Path, run: ExportedRun):
        self._run = run
        # What is long is different in each row: to look each value up in a dictionary would take half of the time.
        short = [field.name for field in SCHEMA if field.name != "messages_in" and field.type.num_fields == 0]
        self._writer = parquet.ParquetWriter(
            file, SCHEMA, compression="zstd", use_dictionary=short, write_statistics=short
        )
        self._rows: list[dict[str, Any]] = []
        self._tokens = 0

    def add(self, episode: StoredEpisode) -> int:
        count = 0
        for row in call_rows(episode, self._run.name):
            self._rows.append(row)
            self._tokens += row["prompt_tokens"] + row["sampled_tokens"]
            count += 1
            if len(self._rows) >= _MAX_GROUP_ROWS or self._tokens >= _MAX_GROUP_TOKENS:
                self._write_group()
        return count

    def finish(self) -> None:
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, SCHEMA))
        self._rows, self._tokens = [], 0


def call_rows(episode: StoredEpisode, run: str) -> Iterator[dict[str, Any]]:
    content = episode.content
    assert content is not None
    head = episode.head
    episode_columns = {
        "run": run,
        "episode": head.id,
        "task_index": head.index,
        **episode_facts(head, "step phase source task attempt outcome treatment reward accuracy"),
    }
    tools = {digest: json_text(schemas) for digest, schemas in episode.tools.items()}
    for index, agent in enumerate(content.agents):
        uses = _uses_of_nodes(content, index, episode.rows)
        prompt = _Prompt(agent)
        for number, call in enumerate(agent.calls):
            prompt.end_at(agent.nodes[call.node].parent)
            yield {
                **episode_columns,
                **_call_row(agent, number, prompt),
                "tools": tools.get(call.tools),
                **uses.get(call.node, {}),
            }


class _Prompt:
    """What the model was shown before a call, by node; it begins as a rule with what it was shown before the last."""

    def __init__(self, agent: StoredAgent):
        self.texts = [
            [json_text(openai_message(message, digest_part)) for message in node.messages]
            for node in agent.nodes
        ]
        self._nodes, self._end = agent.nodes, -1
        self._messages: list[bytes] = []
        self._tokens: list[bytes] | None = []

    def end_at(self, end: int) -> None:
        path, node = [], end
        while node not in (self._end, -1):
            path.append(node)
            node = self._nodes[node].parent
        if node != self._end:
            self._messages, self._tokens = [], []
        for node in reversed(path):
            self._messages += self.texts[node]
            if not self._nodes[node].has_tokens:
                self._tokens = None
            elif self._tokens is not None:
                self._tokens.append(self._nodes[node].tokens)
        self._end = end

    @property
    def messages(self) -> bytes:
        return b"[%b]" % b",".join(self._messages)

    @property
    def token_ids(self) -> np.ndarray[Any, Any] | None:
        """None where those of a node are redacted or missing."""
        return None if self._tokens is None else np.frombuffer(b"".join(self._tokens), "<i4")


def _call_row(agent: StoredAgent, number: int, prompt: _Prompt) -> dict[str, Any]:
    call = agent.calls[number]
    node = agent.nodes[call.node]
    versions = node.versions or (None, None)
    (message,) = prompt.texts[call.node] or (None,)
    return {
        "agent": agent.name,
        "call": number,
        "messages_in": prompt.messages,
        "message_out": message,
        "prompt_tokens": call.prompt_tokens,
        "sampled_tokens": node.token_count,
        "prompt_token_ids": prompt.token_ids,
        "sampled_token_ids": np.frombuffer(node.tokens, "<i4") if node.has_tokens else None,
        "logprobs": float_array(node.logprobs or b""),
        "temperature": call.temperature,
        "top_p": call.top_p,
        "top_k": call.top_k,
        "max_tokens": call.max_tokens or None,
        "finish_reason": call.finish_reason,
        "malformed": call.malformed,
        "delivered": node.received,
        "weights_first": versions[0],
        "weights_last": versions[1],
        "began": call.began,
        "seconds": call.seconds,
    }


def _uses_of_nodes(content: EpisodeContent, agent: int, uses: Sequence[RowUse]) -> dict[int, dict[str, Any]]:
    columns_by_node: dict[int, dict[str, Any]] = {}
    for number, (row, use) in enumerate(zip(content.rows, uses, strict=False)):
        if row.agent != agent:
            continue
        for span in content.spans(number):
            if span.own:
                columns_by_node[span.node] = {"row": number} | _use(
                    use, span.begin - row.prompt_tokens, span.end - span.begin
                )
    return columns_by_node


def _use(use: RowUse, begin: int, count: int) -> dict[str, Any]:
    """How training used the tokens of a row from place ``begin`` of its response."""
    if use.trained_step is None:
        return {}
    # An episode is under the mask as a whole, or with its treatment not at all.
    return {
        "trained_step": use.trained_step,
        "row_position": use.position,
        "mask": np.full(count, bool(use.masked_in), "i1"),
        "advantage": use.advantage,
        "advantages": list(use.advantages[begin : begin + count]) or None,
    }
