"""What is sent to an OpenAI-compatible endpoint, and what its answers and refusals mean, over a real socket."""

import asyncio
import json
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.errors import ModelError, UsageError
from aworld_train.rollout import chat_endpoint, outage
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_endpoint import ChatEndpoint, only_model
from aworld_train.rollout.chat_model import ContextExceeded
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from tests.faulty_endpoint import FaultyEndpoint
from tests.proxies import proxy_variables
from tests.server_thread import ServerThread
from tests.vision import data_url, image, png

GREEDY = SamplingParams(0.0, 1.0, -1)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ASKED = [Message("user", "How many?")]
Reply = Callable[[dict[str, Any]], web.Response]


class Scripted(ServerThread):
    """Answers each request by a function of its body; ``models`` is its list of models."""

    def __init__(self, reply: Reply, models: Any = None):
        super().__init__()
        self.reply, self.models = reply, models
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()

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
        self.keys.add(request.headers.get("Authorization"))
        return web.json_response(self.models)

    async def _complete(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("Authorization"))
        self.bodies.append(await request.json())
        return self.reply(self.bodies[-1])


def says(message: dict[str, Any], finish_reason: str = "stop", **more: Any) -> web.Response:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return web.json_response({"choices": [choice], **more})


def refuses(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


class Clock:
    """Time that passes only where it is waited for; ``slept`` has the pauses."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept.append(seconds)


def endpoint_at(server: Scripted, clock: Clock | None = None) -> ChatEndpoint:
    clock = clock or Clock()
    address = EndpointAddress(server.url, "m")
    return ChatEndpoint(address, concurrency=4, request_timeout=60, now=clock.now, sleep=clock.sleep)


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": '{"a": 1}'}, **more}


@pytest.mark.parametrize(
    ("message", "finish_reason", "more", "expected"),
    [
        (
            {"content": None, "tool_calls": [call("add", id="c1")], "reasoning_content": "hm"},
            "tool_calls",
            {"usage": {"prompt_tokens": 1, "completion_tokens": 1_000_000_000}},
            ChatAnswer("", "hm", (ToolCall("add", '{"a": 1}', "c1"),), "tool_calls", 1, 1_000_000_000),
        ),
        (
            {"tool_calls": [call("add"), call("say", id=""), call("say", id=3)], "reasoning": "so"},
            "stop",
            {"usage": {"prompt_tokens": 0, "completion_tokens": 1_000_000_001}},
            ChatAnswer(
                "",
                "so",
                tuple(ToolCall(n, '{"a": 1}', f"call_{i}") for i, n in enumerate(("add", "say", "say"))),
                "tool_calls",
                0,
                0,
            ),
        ),
        (
            {"content": "cut", "tool_calls": [call("add", id="c1")]},
            "length",
            {"usage": [1, 2]},
            ChatAnswer("cut", "", (ToolCall("add", '{"a": 1}', "c1"),), "length", 0, 0),
        ),
        (
            {"content": [{"text": "4"}, {"type": "image"}, {"text": None}, "x", {"text": "2"}]},
            "tool_calls",
            {},
            ChatAnswer("4x2", "", (), "stop", 0, 0),
        ),
        (
            {"content": [{"type": "thinking", "text": "41"}, {"type": "text", "text": "42"}]},
            "stop",
            {},
            ChatAnswer("42", "41", (), "stop", 0, 0),
        ),
        *(
            ({"content": "42"}, reason, {}, ChatAnswer("42", "", (), "stop", 0, 0))
            for reason in (None, "function_call", "eos")
        ),
    ],
)
async def test_an_answer_is_read_from_what_endpoints_write(
    message: dict[str, Any], finish_reason: Any, more: dict[str, Any], expected: ChatAnswer
) -> None:
    with Scripted(lambda body: says(message, finish_reason, **more)) as server:
        assert await endpoint_at(server).for_episode().answer(ASKED, TOOLS, GREEDY, 20) == expected


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
        await model.answer(ASKED, TOOLS, SamplingParams(0.7, 0.9, 1, ("end",), seed=3), 9, use_tools=False)
        seen = Message("user", "", images=(image(0),))
        await model.answer([seen], TOOLS, SamplingParams(1.0, 1.0, 0), 9)
        plain, full, with_image = server.bodies
    messages = [{"role": "user", "content": "How many?"}]
    assert plain == {"model": "m", "messages": messages, "temperature": 0.0, "max_tokens": 20}
    assert full == {
        "model": "m",
        "messages": messages,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 1,
        "stop": ["end"],
        "seed": 3,
        "tools": TOOLS,
        "tool_choice": "none",
        "max_tokens": 9,
    }
    content = [{"type": "image_url", "image_url": {"url": data_url(png())}}]
    assert with_image == {
        "model": "m",
        "messages": [{"role": "user", "content": content}],
        "temperature": 1.0,
        "tools": TOOLS,
        "max_tokens": 9,
    }


async def test_the_newer_name_of_the_limit_is_used_from_its_refusal_on() -> None:
    def reply(body: dict[str, Any]) -> web.Response:
        if "max_tokens" in body:
            return refuses(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return says({"content": "42"})

    with Scripted(reply) as server:
        endpoint = endpoint_at(server)
        for faults in ({"no max_tokens": 1}, {}):
            model = endpoint.for_episode()
            assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
            assert model.faults == faults
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 20, 20]


async def test_an_error_that_names_a_parameter_as_wrong_is_not_one_that_does_not_take_it() -> None:
    with Scripted(lambda body: refuses(400, "'max_tokens' is too large")) as server:
        with pytest.raises(EpisodeFailure, match="is too large"):
            await endpoint_at(server).for_episode().answer(ASKED, [], GREEDY, 20)
        assert len(server.bodies) == 1


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
    with Scripted(lambda body: refuses(400, "no such parameter")) as server:
        model = endpoint_at(server).for_episode()
        with pytest.raises(EpisodeFailure, match="no such parameter") as failure:
            await model.answer(later, [], GREEDY, 20)
    assert "max_response_tokens" not in str(failure.value)


async def test_each_request_gives_its_place_to_the_next_whether_it_failed_or_not() -> None:
    replies = iter([says({"content": 3}), *(says({"content": "42"}) for _ in range(2))])
    with Scripted(lambda body: next(replies)) as server:
        endpoint = ChatEndpoint(EndpointAddress(server.url, "m"), concurrency=1, request_timeout=60)
        for _ in range(2):
            answer = await asyncio.wait_for(endpoint.for_episode().answer(ASKED, [], GREEDY, 20), 60)
            assert answer.content == "42"


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, " Put its key into THE_KEY."),
        (402, ""),
        (403, ""),
        (404, " Is there a model 'm', and does the address end before /chat/completions?"),
    ],
)
async def test_a_refusal_that_is_the_same_for_all_ends_all_and_says_what_to_do(
    status: int, remedy: str
) -> None:
    with Scripted(lambda body: refuses(status, "no")) as server:
        address = EndpointAddress(server.url, "m", "THE_KEY")
        endpoint = ChatEndpoint(address, concurrency=4, request_timeout=60)
        assert endpoint.refusal is None
        for _ in range(3):
            with pytest.raises(EpisodeFailure) as failure:
                await endpoint.for_episode().answer(ASKED, [], GREEDY, 20)
            assert str(failure.value) == endpoint.refusal
        assert len(server.bodies) == 1
    assert endpoint.refusal == f"{server.url} refuses requests: HTTP {status} 'no'.{remedy}"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, "other_status") for status in (408, 409, 425)),
        (429, "429"),
        *((status, "5xx") for status in (500, 502, 503, 504, 529)),
    ],
)
async def test_a_status_that_passes_is_asked_again_and_counted_by_its_kind(status: int, kind: str) -> None:
    replies = iter([refuses(status, "later"), refuses(status, "later"), says({"content": "42"})])
    with Scripted(lambda body: next(replies)) as server:
        endpoint = endpoint_at(server)
        model = endpoint.for_episode()
        assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
    assert dict(model.faults) == {kind: 2}
    # Only an endpoint that says that there are too many gets fewer at the same time, and more with each answer.
    assert endpoint.limit.allowed == (2 if status in (429, 503, 529) else 4)


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        *(("429", "429", "HTTP 429"), ("500", "5xx", "HTTP 500"), ("503", "5xx", "HTTP 503")),
        *(("hang", "timeout", "no answer in 0.5 seconds"), ("cut", "cut", "its answer was cut off: ")),
        *(("no_json", "no_json", "its answer is not valid JSON"), ("reset", "connection", "")),
        ("no_completion", "no_completion", "its answer is not a chat completion"),
    ],
)
async def test_each_way_to_fail_is_counted_by_its_kind(
    fault: str, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_endpoint, "MAX_OUTAGE_SECONDS", 0.0)
    with FaultyEndpoint(fault_share=1.0, faults=[fault]) as server:
        address = EndpointAddress(server.url, "m")
        model = ChatEndpoint(
            address, concurrency=1, request_timeout=0.5 if fault == "hang" else 60
        ).for_episode()
        with pytest.raises(EpisodeFailure, match=f"gave no answer for 0 seconds: {reason}"):
            await model.answer(ASKED, [], GREEDY, 20)
    assert dict(model.faults) == {kind: 1}


@pytest.mark.parametrize(
    ("most", "retry_after", "pauses", "seconds"),
    [
        (600.0, "", [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 18], 572),
        (600.0, "100", [100.0] * 6, 600),
        (1.5, "", [0.5, 1.0], 2),
        (1.4, "", [0.5], 0),
    ],
)
async def test_each_pause_is_longer_up_to_half_a_minute_until_the_endpoint_is_given_up(
    most: float, retry_after: str, pauses: list[float], seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds, clock = set(), Clock()

    def uniform(low: float, high: float) -> float:
        bounds.add((low, high))
        return high

    def reply(body: dict[str, Any]) -> web.Response:
        return web.Response(status=500, text="out of order", headers={"Retry-After": retry_after})

    monkeypatch.setattr(chat_endpoint, "MAX_OUTAGE_SECONDS", most)
    monkeypatch.setattr(outage, "random", SimpleNamespace(uniform=uniform))
    with Scripted(reply) as server:
        endpoint = endpoint_at(server, clock)
        model = endpoint.for_episode()
        with pytest.raises(EpisodeFailure, match=f"gave no answer for {seconds} seconds: .*out of order"):
            await model.answer(ASKED, [], GREEDY, 20)
    assert (clock.slept, bounds) == (pauses, {(0.5, 1.0)})
    assert (model.faults, endpoint.limit.allowed) == ({"5xx": len(pauses) + 1}, 4)


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
    ],
    ids=json.dumps,
)
async def test_what_is_no_completion_is_counted_as_a_fault(message: dict[str, Any]) -> None:
    replies = iter([says(message), says({"content": [{"type": "text", "text": "42"}]})])
    with Scripted(lambda body: next(replies)) as server:
        model = endpoint_at(server).for_episode()
        assert (await model.answer(ASKED, [], GREEDY, 20)).content == "42"
    assert dict(model.faults) == {"no_completion": 1}


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ({"data": [{"id": name} for name in "ab"]}, "has several models: a, b."),
        ({"data": [{"id": "a"}, 3, {}]}, "has several models: a, None."),
        ({"data": [{"id": "a"}] * 20}, f"has several models: {', '.join('a' * 20)}."),
        ({"data": [{"id": "a"}] * 21}, f"has several models: {', '.join('a' * 20)}, ...."),
        *((models, "/models names no model.") for models in ({"data": []}, {"data": [{"id": 1}]}, [], None)),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_of_several_models_or_none_one_has_to_be_named(models: Any, reason: str) -> None:
    with Scripted(lambda body: says({}), models) as server, pytest.raises(ModelError) as error:
        await only_model(server.url)
    separator = "" if reason.startswith("/") else " "
    assert str(error.value) == f"{server.url}{separator}{reason} Name one with --model."


async def test_the_only_model_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "sesame")
    with Scripted(lambda body: says({}), {"data": [{"id": "only"}]}) as server:
        assert await only_model(f"{server.url}/chat/completions", "THE_KEY") == "only"
        assert server.keys == {"Bearer sesame"}
    with pytest.raises(ModelError, match=r"does not say which models there are: .* Name one with --model"):
        await only_model(server.url)


async def test_a_list_of_models_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_endpoint, "_LIST_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match=f"{url}/models does not say .*: no answer in 0 seconds"):
            await asyncio.wait_for(only_model(url), 30)


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
async def test_an_address_may_have_the_path_and_requests_have_the_key(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame\n")
    with Scripted(lambda body: says({"content": "42"})) as server:
        address = EndpointAddress(server.url + ending, "m")
        endpoint = ChatEndpoint(address, concurrency=4, request_timeout=60)
        assert (await endpoint.for_episode().answer(ASKED, [], GREEDY, 20)).content == "42"
        assert server.keys == {"Bearer sesame"}
    assert (endpoint.name, endpoint.tokenizer, endpoint.limit.allowed) == ("m", None, 4)


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "ses\name")
    with pytest.raises(ModelError) as error:
        ChatEndpoint(EndpointAddress("http://h", "m", "THE_KEY"), concurrency=1, request_timeout=1)
    assert str(error.value) == "What is in THE_KEY cannot be sent as a key."


def test_a_proxy_of_another_kind_is_refused() -> None:
    with proxy_variables(all="socks5://127.0.0.1:9"), pytest.raises(UsageError, match="socks5 proxy"):
        ChatEndpoint(EndpointAddress("http://far.invalid", "m"), concurrency=1, request_timeout=1)


@pytest.mark.parametrize("url", ["host:8000/v1", "ftp://host/v1", "", "http://host:port/v1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ModelError, match="not the address of an endpoint"):
        ChatEndpoint(EndpointAddress(url, "m"), concurrency=1, request_timeout=1)
