"""Conversations for supervised fine-tuning: one line each, in the form that `datasets` loads and TRL trains on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.image_files import IMAGE_MARK
from aworld_train.store.export.conversations import (
    conversation_ends,
    embedded_part,
    episode_facts,
    messages_of,
    openai_message,
)
from aworld_train.store.export.writer import JsonLinesWriter
from aworld_train.store.reading import StoredEpisode

_FACTS = "source index phase step attempt outcome reward accuracy correct_answer"
_TASK_FIELDS = ("id", "scorer", "answer_schema", "level", "attachments", "ground_truths")
"""What ``dataset build`` needs to make the task again, beside its messages and its right answer."""


class MessagesWriter(JsonLinesWriter):
    """A line for each conversation; what belongs to the episode is under ``metadata``."""

    def lines(self, episode: StoredEpisode) -> Iterator[Mapping[str, Any]]:
        assert episode.content is not None
        head, image = episode.head, embedded_part(self.run.read_blob)
        info = episode.task_row.get("extra_info") or {}
        task = {name: info[name] for name in _TASK_FIELDS if info.get(name)}
        for agent in episode.content.agents:
            for end in conversation_ends(agent):
                call = agent.call_of(end)
                tools = episode.tools.get(agent.calls[call].tools) if call is not None else None
                path = agent.path(end)
                messages = messages_of(agent, path)
                yield {
                    "messages": [openai_message(message, image) for message in messages],
                    "tools": tools or [],
                    "metadata": {
                        "run": self.run.name,
                        "episode": head.id,
                        "agent": agent.name,
                        **episode_facts(head, _FACTS),
                        "answer": episode.content.answer,
                        "redacted": any(agent.nodes[node].redacted for node in path),
                        **task,
                        **_own_prompt(episode.task_row, messages),
                    },
                }


def _own_prompt(row: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """The task's prompt and its images, where they are not the only messages of system and user that were played."""
    prompt = row.get("prompt") or []
    written = [(message["role"], IMAGE_MARK.sub("", message["content"])) for message in prompt]
    played = [
        (one.role, IMAGE_MARK.sub("", one.content)) for one in messages if one.role in ("system", "user")
    ]
    if not prompt or written == played:
        return {}
    images = (row.get("extra_info") or {}).get("images")
    return {"prompt": prompt, **({"images": images} if images else {})}
