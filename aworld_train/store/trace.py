"""Finds the origin of a token that was trained on: its model call, its episode and its task."""

from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from aworld_train.episode.message import Message
from aworld_train.errors import UsageError
from aworld_train.store.content import ModelCall
from aworld_train.store.reading import EpisodeHead, Store


@dataclass(frozen=True)
class TokenOrigin:
    """A token of a training row, and everything that it comes from.

    It is at ``token`` in its row and at ``place`` in its node; ``token_id`` is None where a secret was redacted,
    ``call_number`` for context. ``weights`` are the first and last version that may have sampled it.
    """

    step: int
    position: int
    row: int
    token: int
    token_id: int | None
    logprob: float | None
    under_mask: bool
    advantage: float | None
    agent: str
    node: int
    place: int
    messages: tuple[Message, ...]
    call_number: int | None
    call: ModelCall | None
    weights: tuple[int, int] | None
    episode: EpisodeHead

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "episode"}
        return {**to_builtins(values), "episode": self.episode.to_json()}


def trace_token(store: Store, step: int, position: int, token: int) -> TokenOrigin:
    """Where a token of a row that was trained on comes from; its place in the row counts from 0, prompt included."""
    episode, number = store.trained_row(step, position)
    content, use = episode.content, episode.rows[number]
    assert content is not None  # a row is kept with the content of its episode
    spans = list(content.spans(number))
    span = next((span for span in spans if span.begin <= token < span.end), None)
    if span is None or token < 0:
        raise UsageError(
            f"Row {position} of step {step} has {spans[-1].end} tokens, and {token} is none of them. The first is 0."
        )
    row = content.rows[number]
    agent, place = content.agents[row.agent], token - span.begin
    node = agent.nodes[span.node]
    call_number = agent.call_of(span.node)
    under_mask = span.own and episode.head.figures.treatment == "trained"
    advantage = use.advantage
    if use.advantages:
        advantage = use.advantages[token - row.prompt_tokens] if token >= row.prompt_tokens else None
    return TokenOrigin(
        step=step,
        position=position,
        row=number,
        token=token,
        token_id=None if node.redacted else node.token_ids[place],
        logprob=node.token_logprobs[place] if node.sampled else None,
        under_mask=under_mask,
        advantage=advantage if under_mask else None,
        agent=agent.name,
        node=span.node,
        place=place,
        messages=node.messages,
        call_number=call_number,
        call=None if call_number is None else agent.calls[call_number],
        weights=node.weights_of(place),
        episode=episode.head,
    )
