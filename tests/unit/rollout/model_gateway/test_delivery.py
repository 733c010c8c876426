"""A turn that was sent is trained on once, whatever becomes of its connection; it answers the same request again."""

import asyncio
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import openai
import pytest

from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.messages import Completion
from aworld_train.rollout.model import SampledTokens, SamplingParams
from aworld_train.rollout.model_gateway import ModelGatewaySession, delivery
from aworld_train.rollout.model_gateway.delivery import Delivery
from aworld_train.rollout.token_episode import TokenEpisode
from tests.gateways import MODEL, Scripted, serving
from tests.templates import ScriptedModel, cut_up

LIMITS = EpisodeLimits(1000, 10_000, 100_000, SamplingParams(1.0, 1.0, -1))
USER: Any = [{"role": "user", "content": "1+1?"}]
SECONDS = 20.0


class Slow(ScriptedModel):
    """Numbers its turns; each takes as long as ``delays`` has it and may do something at its end."""

    def __init__(self, *delays: float, at_end: Callable[[], None] = lambda: None):
        self.delays, self.at_end = list(delays), at_end
        super().__init__("chatml_tools", self._next)

    def _next(self, tokenizer: Any) -> tuple[list[int], bool]:
        self.at_end()
        return [*cut_up(tokenizer, f"turn {len(self.calls)}", 1), tokenizer.eos_token_id], True

    async def generate(self, *arguments: Any) -> SampledTokens:
        if self.delays:
            await asyncio.sleep(self.delays.pop(0))
        return await super().generate(*arguments)


@asynccontextmanager
async def playing(
    model: ScriptedModel, limits: EpisodeLimits = LIMITS
) -> AsyncIterator[tuple[TokenEpisode, ModelGatewaySession]]:
    episode = TokenEpisode(model, limits)
    async with serving() as gateway, asyncio.timeout(SECONDS):
        yield episode, gateway.open_session(MODEL, episode.conversation)


def sent(session: ModelGatewaySession, **options: Any) -> socket.socket:
    """A connection over which a request was sent."""
    url = urlsplit(session.address())
    assert url.hostname is not None and url.port is not None
    body = json.dumps({"model": "m", "messages": USER, **options}).encode()
    head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection((url.hostname, url.port))
    connection.sendall(head.encode() + body)
    connection.setblocking(False)
    return connection


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110, a socket's buffer has no event
        await asyncio.sleep(0.005)


def has_answer(connection: socket.socket) -> bool:
    try:
        peeked = connection.recv(1 << 16, socket.MSG_PEEK)
        return b"data: [DONE]" in peeked or b"usage" in peeked
    except BlockingIOError:
        return False


def undelivered(episode: TokenEpisode) -> int:
    return sum(record.graph.undelivered for record in episode.agents.values())


def in_doubt(episode: TokenEpisode) -> int:
    """How many turns may not have reached their client."""
    return sum(len(record.lost) for record in episode.agents.values())


def texts(episode: TokenEpisode, model: ScriptedModel) -> list[str]:
    """The turns that are trained on."""
    return [
        model.text(row.response[begin:end])
        for _, row in episode.rows()
        for begin, end in row.turns
        if any(row.mask[begin:end])
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_nobody_reads_answers_the_next_attempt_and_is_trained_on_once(
    stream: bool,
) -> None:
    model = Slow()
    async with playing(model) as (episode, session):
        connection = sent(session, stream=stream)
        await until(lambda: has_answer(connection))
        connection.close()
        await until(lambda: in_doubt(episode))
        assert texts(episode, model) == ["turn 0"]
        async with openai.AsyncOpenAI(base_url=session.address(), api_key="k") as ai:
            got = await ai.chat.completions.create(model="m", messages=USER, stream=False)
        assert got.choices[0].message.content == "turn 0"
        assert len(model.calls) == 1
        assert texts(episode, model) == ["turn 0"]
        assert (undelivered(episode), in_doubt(episode)) == (0, 0)
        assert not episode.branches


async def test_an_answer_that_is_read_before_a_reset_is_trained_on_and_cannot_be_drawn_again() -> None:
    model = Slow()
    async with playing(model) as (episode, session):
        for _ in range(3):
            connection = sent(session)
            await until(lambda: has_answer(connection))  # noqa: B023, at once
            assert b"turn 0" in connection.recv(1 << 16)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            await until(lambda: in_doubt(episode))
        assert texts(episode, model) == ["turn 0"]
        assert len(model.calls) == 1


async def test_an_answer_that_was_read_is_trained_on_though_its_connection_ends() -> None:
    model = Slow()
    async with playing(model) as (episode, session):
        connection = sent(session)
        await until(lambda: has_answer(connection))
        connection.recv(1 << 16)
        connection.close()
        async with openai.AsyncOpenAI(base_url=session.address(), api_key="k") as ai:
            await ai.models.list()  # later than the end of the connection
        assert texts(episode, model) == ["turn 0"]
        assert undelivered(episode) == 0


async def test_a_request_with_other_options_is_no_further_attempt() -> None:
    model = Slow()
    async with playing(model) as (episode, session):
        connection = sent(session)
        await until(lambda: has_answer(connection))
        connection.close()
        await until(lambda: in_doubt(episode))
        async with openai.AsyncOpenAI(base_url=session.address(), api_key="k") as ai:
            got = await ai.chat.completions.create(model="m", messages=USER, max_tokens=7)
        assert got.choices[0].message.content == "turn 1"
        assert texts(episode, model) == ["turn 0", "turn 1"]


async def test_a_turn_that_a_client_continues_was_received() -> None:
    model = Slow()
    async with playing(model) as (episode, session):
        connection = sent(session)
        await until(lambda: has_answer(connection))
        connection.close()
        await until(lambda: in_doubt(episode))
        history = [*USER, {"role": "assistant", "content": "turn 0"}, {"role": "user", "content": "And?"}]
        async with openai.AsyncOpenAI(base_url=session.address(), api_key="k") as ai:
            await ai.chat.completions.create(model="m", messages=history)
        assert texts(episode, model) == ["turn 0", "turn 1"]
        assert len(episode.rows()) == 1


async def test_under_harsh_time_outs_each_question_is_answered_and_trained_on_once() -> None:
    rng = random.Random(0)
    model = Slow(*(rng.uniform(0.0, 0.4) for _ in range(400)))
    received = []
    async with (
        playing(model) as (episode, session),
        openai.AsyncOpenAI(base_url=session.address(), api_key="k", timeout=0.2, max_retries=0) as ai,
    ):
        for number in range(20):
            messages: Any = [{"role": "user", "content": f"question {number}"}]
            for _ in range(3):
                try:
                    got = await ai.chat.completions.create(model="m", messages=messages)
                except openai.APITimeoutError:
                    continue
                received.append(got.choices[0].message.content)
                break
        await ai.models.list(timeout=120)
        assert len(received) > 0
        trained = texts(episode, model)
        assert set(received) <= set(trained)
        assert len(set(trained)) == len(trained) <= 20


async def test_the_last_turn_is_not_given_to_two_requests_at_the_same_time() -> None:
    model = Slow(0.1, 0.1, 0.1)
    limits = EpisodeLimits(2, 10_000, 100_000, SamplingParams(1.0, 1.0, -1))
    async with (
        playing(model, limits) as (_, session),
        openai.AsyncOpenAI(base_url=session.address(), api_key="k", timeout=120) as ai,
    ):
        results = await asyncio.gather(
            *(
                ai.chat.completions.create(model="m", messages=[{"role": "user", "content": f"{number}"}])
                for number in range(5)
            ),
            return_exceptions=True,
        )
    refused = [result for result in results if isinstance(result, openai.BadRequestError)]
    assert [error.code for error in refused] == ["max_turns"] * 3
    assert len(model.calls) == 2


@pytest.mark.parametrize(
    ("written", "prepared", "was_reset", "lost", "doubtful"),
    [
        *((True, True, False, 0, 0), (True, True, True, 2, 2)),
        *((True, False, False, 2, 0), (False, False, False, 2, 0)),
    ],
)
def test_answers_arrived_if_their_response_was_begun_and_are_in_doubt_if_the_connection_was_reset(
    written: bool, prepared: bool, was_reset: bool, lost: int, doubtful: int
) -> None:
    conversation, answers = Scripted([]), Delivery()
    for text in "ab":
        answers.add(conversation, Completion(text))
    if written:
        response: Any = SimpleNamespace(prepared=prepared)
        answers.written_as(response)
    answers.end(was_reset)
    assert conversation.lost == [Completion("a"), Completion("b")][:lost]
    assert conversation.sent == doubtful


def test_an_answer_is_lost_once_and_so_is_one_that_comes_later() -> None:
    conversation, answers = Scripted([]), Delivery()
    answers.add(conversation, Completion("a"))
    answers.fail()
    answers.fail()
    answers.add(conversation, Completion("b"))
    assert conversation.lost == [Completion("a"), Completion("b")]


async def test_of_a_connection_with_an_error_the_answer_is_lost_and_of_an_earlier_request_it_is_not() -> None:
    conversation = Scripted([])
    server = delivery.DeliveryServer(lambda _: None)
    response: Any = SimpleNamespace(prepared=True)
    handler: Any = Mock(transport=None, _task_handler=None)
    request: Any = SimpleNamespace(protocol=handler)
    for number, error in enumerate([None, ConnectionError()]):
        for text in "ab":
            answers = server.begin(request)
            answers.add(conversation, Completion(f"{text}{number}"))
        answers.written_as(response)
        server.connection_made(handler, Mock())
        server.connection_lost(handler, error)
        assert server.connections == []
    server.connection_lost(handler, ConnectionError())
    assert conversation.lost == [Completion("b1")]


def test_where_the_system_does_not_tell_no_connection_was_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection:
        states: Any = iter([b"\x07x", b"\x08x"])

        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            for state in self.states:
                return bytes(state)
            raise OSError

    transport: Any = SimpleNamespace(get_extra_info={"socket": Connection()}.get)
    assert [delivery._was_reset(transport) for _ in range(3)] == [True, False, False]
    assert not delivery._was_reset(None)
    monkeypatch.delattr(socket, "TCP_INFO")
    Connection.states = iter([b"\x07"])
    assert not delivery._was_reset(transport)
