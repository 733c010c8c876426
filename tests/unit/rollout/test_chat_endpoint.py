"""What is sent to an OpenAI-compatible endpoint, and what its answers and refusals mean, over a real socket."""

import asyncio
import json
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from aiohttp import web

from aworld_train.errors import ModelError
from aworld_train.rollout import chat_endpoint
from aworld_train.rollout.chat_endpoint import ChatEndpoint, EndpointAddress, only_model
from aworld_train.rollout.chat_model import ContextExceeded
from aworld_train.rollout.messages import Message, ToolCall
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from tests.faulty_endpoint import FaultyEndpoint
from tests.server_thread import ServerThread

GREEDY = SamplingParams(0.0, 1.0, -1)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ASKED = [Message("user", "How many?")]
Reply = Callable[[dict[str, Any]], web.Response]


class Scripted(ServerThread):
    """Answers each request by a function of its body."""

    def __init__(self, reply: Reply):
        super().__init__()
        self.reply = reply
        self.bodies: list[dict[str, Any]] = []

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "only"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        return self.reply(self.bodies[-1])


def says(message: dict[str, Any], finish_reason: str = "stop", **more: Any) -> web.Response:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return web.json_response({"choices": [choice], **more})


def refuses(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


def endpoint_at(server: Scripted) -> ChatEndpoint:
    return ChatEndpoint(EndpointAddress(server.url, "m"), concurrency=4, request_timeout=5)


async def test_calls_thoughts_and_counts_are_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    message = {"content": None, "tool_calls": [call], "reasoning_content": "hm"}
    with Scripted(lambda body: says(message, "tool_calls", usage=usage)) as server:
        answer = await endpoint_at(server).for_episode().answer(ASKED, TOOLS, GREEDY, 20)
    assert answer.tool_calls == (ToolCall("add", '{"a": 1}', "c1"),)
    assert (answer.content, answer.reasoning, answer.finish_reason) == ("", "hm", "tool_calls")
    assert (answer.prompt_tokens, answer.sampled_tokens) == (7, 3)


@pytest.mark.parametrize("count", [1 << 64, 10**400, -1, 1.5, "7", True, None])
async def test_what_is_no_number_of_tokens_is_not_taken_over(count: object) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": 3}
    with Scripted(lambda body: says({"content": "42"}, usage=usage)) as server:
        answer = await endpoint_at(server).for_episode().answer(ASKED, [], GREEDY, 20)
    assert (answer.prompt_tokens, answer.sampled_tokens) == (0, 3)


async def test_what_changes_nothing_is_not_sent() -> None:
    with Scripted(lambda body: says({"content": "42"})) as server:
        model = endpoint_at(server).for_episode()
        await model.answer(ASKED, [], GREEDY, 20)
        await model.answer(ASKED, TOOLS, SamplingParams(0.7, 0.9, 5, ("end",), seed=3), 9, use_tools=False)
        plain, full = server.bodies
    messages = [{"role": "user", "content": "How many?"}]
    assert plain == {"model": "m", "messages": messages, "temperature": 0.0, "max_tokens": 20}
    assert full == {
        "model": "m",
        "messages": messages,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["end"],
        "seed": 3,
        "tools": TOOLS,
        "tool_choice": "none",
        "max_tokens": 9,
    }


async def test_the_newer_name_of_the_limit_is_used_from_its_refusal_on() -> None:
    def reply(body: dict[str, Any]) -> web.Response:
        if "max_tokens" in body:
            return refuses(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return says({"content": "42"})

    with Scripted(reply) as server:
        endpoint = endpoint_at(server)
        for _ in range(2):
            model = endpoint.for_episode()
            assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
            assert not model.faults
        assert len(server.bodies) == 3


async def test_a_conversation_that_has_grown_too_long_is_the_agents_and_a_first_prompt_is_not() -> None:
    with Scripted(lambda body: refuses(400, "maximum context length is 8 tokens")) as server:
        model = endpoint_at(server).for_episode()
        later = [*ASKED, Message("assistant", "a"), Message("user", "b")]
        with pytest.raises(ContextExceeded):
            await model.answer(later, [], GREEDY, 20)
        with pytest.raises(EpisodeFailure, match=r"rollout\.max_response_tokens"):
            await model.answer(ASKED, [], GREEDY, 20)


@pytest.mark.parametrize(
    "message",
    [
        "Error code: context_length_exceeded",
        "a context length of 8 is all it has",
        "This model's maximum context is 8 tokens",
        "the context window is full",
        "The prompt is too long",
    ],
)
async def test_a_conversation_is_too_long_in_the_words_of_any_server(message: str) -> None:
    later = [*ASKED, Message("assistant", "a"), Message("user", "b")]
    with Scripted(lambda body: refuses(400, message)) as server, pytest.raises(ContextExceeded):
        await endpoint_at(server).for_episode().answer(later, [], GREEDY, 20)


async def test_any_other_refusal_is_a_failure_that_says_nothing_of_lengths() -> None:
    later = [*ASKED, Message("assistant", "a"), Message("user", "b")]
    with Scripted(lambda body: refuses(400, "there is no such parameter")) as server:
        model = endpoint_at(server).for_episode()
        with pytest.raises(EpisodeFailure, match="no such parameter") as failure:
            await model.answer(later, [], GREEDY, 20)
    assert "max_response_tokens" not in str(failure.value)


async def test_each_request_gives_its_place_to_the_next_whether_it_failed_or_not() -> None:
    replies = iter([says({"content": 3}), *(says({"content": "42"}) for _ in range(2))])
    with Scripted(lambda body: next(replies)) as server:
        endpoint = ChatEndpoint(EndpointAddress(server.url, "m"), concurrency=1, request_timeout=5)
        for _ in range(2):
            answer = await asyncio.wait_for(endpoint.for_episode().answer(ASKED, [], GREEDY, 20), 60)
            assert answer.content == "42"


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_refusal_that_is_the_same_for_all_ends_all(status: int) -> None:
    with Scripted(lambda body: refuses(status, "no")) as server:
        endpoint = endpoint_at(server)
        for _ in range(3):
            with pytest.raises(EpisodeFailure):
                await endpoint.for_episode().answer(ASKED, [], GREEDY, 20)
        assert len(server.bodies) == 1
    assert endpoint.refusal is not None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "other_status") for status in (408, 409, 425)),
        (429, "429"),
        *((status, "5xx") for status in (500, 502, 503, 504, 529)),
    ],
)
async def test_a_status_that_passes_is_asked_again_and_counted_by_its_kind(
    status: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "_FIRST_PAUSE", 0.001)
    replies = iter([refuses(status, "later"), refuses(status, "later"), says({"content": "42"})])
    with Scripted(lambda body: next(replies)) as server:
        endpoint = endpoint_at(server)
        model = endpoint.for_episode()
        assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
    assert dict(model.faults) == {kind: 2}
    # Fewer requests at the same time are for an endpoint that says that there are too many.
    assert (endpoint.limit.allowed < 4) is (status in (429, 503))


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        *(("429", "429"), ("500", "5xx"), ("503", "5xx"), ("hang", "timeout"), ("cut", "cut")),
        *(("no_json", "no_json"), ("no_completion", "no_completion"), ("reset", "connection")),
    ],
)
async def test_each_way_to_fail_is_counted_by_its_kind(
    fault: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "MAX_OUTAGE_SECONDS", 0.0)
    with FaultyEndpoint(fault_share=1.0, faults=[fault]) as server:
        address = EndpointAddress(server.url, "m")
        model = ChatEndpoint(address, concurrency=1, request_timeout=0.5).for_episode()
        with pytest.raises(EpisodeFailure, match="gave no answer"):
            await model.answer(ASKED, [], GREEDY, 20)
    assert dict(model.faults) == {kind: 1}


@pytest.mark.parametrize("status", [400, 405, 422])
async def test_a_request_that_is_refused_ends_its_episode_alone(status: int) -> None:
    replies = iter([refuses(status, "no"), says({"content": "42"})])
    with Scripted(lambda body: next(replies)) as server:
        endpoint = endpoint_at(server)
        model = endpoint.for_episode()
        with pytest.raises(EpisodeFailure, match=f"refused the request: HTTP {status}"):
            await model.answer(ASKED, [], GREEDY, 20)
        assert (await endpoint.for_episode().answer(ASKED, [], GREEDY, 20)).content == "42"
    assert not model.faults


@pytest.mark.parametrize(("retry_after", "max_failures"), [("", 4), ("0.1", 1)])
async def test_an_endpoint_that_gives_no_answer_for_long_ends_the_episode(
    retry_after: str, max_failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each pause is twice as long, so the fourth ends after the limit; one that the endpoint asks for does at once.
    monkeypatch.setattr(chat_endpoint, "MAX_OUTAGE_SECONDS", 0.02)
    monkeypatch.setattr(chat_endpoint, "_FIRST_PAUSE", 0.005)
    failures = (
        web.Response(status=503, text="out of order", headers={"Retry-After": retry_after})
        for _ in range(max_failures)
    )
    replies = chain(failures, [says({"content": "too late"})])
    with Scripted(lambda body: next(replies)) as server:
        model = endpoint_at(server).for_episode()
        with pytest.raises(EpisodeFailure, match=r"gave no answer for .* seconds: HTTP 503 'out of order'"):
            await model.answer(ASKED, [], GREEDY, 20)
    assert model.faults == {"5xx": len(server.bodies)}


async def test_a_completion_that_was_given_up_is_asked_for_again() -> None:
    replies = iter([says({"content": "4"}, "abort"), says({"content": "42"})])
    with Scripted(lambda body: next(replies)) as server:
        model = endpoint_at(server).for_episode()
        assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
    assert dict(model.faults) == {"no_completion": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"content": 3},
        {"content": "", "tool_calls": {"add": {}}},
        {"content": "", "tool_calls": [{"function": {"name": 1, "arguments": ""}}]},
        {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
    ],
    ids=json.dumps,
)
async def test_what_is_no_completion_is_counted_as_a_fault(message: dict[str, Any]) -> None:
    replies = iter([says(message), says({"content": [{"type": "text", "text": "42"}]})])
    with Scripted(lambda body: next(replies)) as server:
        model = endpoint_at(server).for_episode()
        assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
    assert dict(model.faults) == {"no_completion": 1}


async def test_the_only_model_needs_no_name() -> None:
    with Scripted(lambda body: says({})) as server:
        assert await only_model(server.url) == "only"
    with pytest.raises(ModelError, match="--model"):
        await only_model(server.url)


@pytest.mark.parametrize("url", ["host:8000/v1", "ftp://host/v1", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ModelError, match="no address of an endpoint"):
        ChatEndpoint(EndpointAddress(url, "m"), concurrency=1, request_timeout=1)
