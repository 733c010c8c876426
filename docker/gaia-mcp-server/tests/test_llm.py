"""An endpoint that is busy, slow or broken ends in an answer or in an error that says what to do, without the key."""

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import llm
from mcp.server.fastmcp.exceptions import ToolError

KEY = "sk-very-secret"
ASKED = [{"role": "user", "content": "Six times seven?"}]
GOOD = {
    "model": "thinker-1",
    "choices": [{"message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
}
Answers = list[Callable[[], http.StreamResponse]]


class Endpoint:
    """An OpenAI-compatible endpoint that gives the answers it was told to, the last one again and again."""

    def __init__(self) -> None:
        self.answers: Answers = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []

    async def handle(self, request: http.Request) -> http.StreamResponse:
        self.keys.append(request.headers.get("Authorization", ""))
        self.requests.append(await request.json() if request.path.endswith("completions") else {})
        return self.answers[min(len(self.requests), len(self.answers)) - 1]()


@pytest.fixture
async def endpoint(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Endpoint]:
    monkeypatch.setattr(llm, "_FIRST_PAUSE", 0.001)
    made = Endpoint()
    app = http.Application(client_max_size=10 << 20)
    app.router.add_post("/v1/{path:.*}", made.handle)
    server = TestServer(app)
    await server.start_server()
    monkeypatch.setenv("CODE_LLM_BASE_URL", f"http://127.0.0.1:{server.port}/v1/")
    monkeypatch.setenv("CODE_LLM_API_KEY", KEY)
    monkeypatch.setenv("CODE_LLM_MODEL_NAME", "thinker")
    yield made
    await server.close()


def good() -> http.Response:
    return http.json_response(GOOD)


def failing(
    status: int, body: str = f"it went wrong with {KEY}", **headers: str
) -> Callable[[], http.Response]:
    return lambda: http.Response(status=status, text=body, headers=headers)


def saying(**message: Any) -> Callable[[], http.Response]:
    return lambda: http.json_response({"choices": [{"message": message}]})


async def test_the_answer_its_model_and_its_usage_come_back(endpoint: Endpoint) -> None:
    endpoint.answers = [good]
    said = await llm.reply("CODE_LLM", ASKED, temperature=0.5, max_tokens=9)
    assert (said.text, said.model, said.finish_reason) == ("42", "thinker-1", "stop")
    assert said.usage == {"prompt_tokens": 5, "completion_tokens": 1}
    sent = {"model": "thinker", "messages": ASKED, "temperature": 0.5, "max_tokens": 9}
    assert endpoint.requests == [sent] and endpoint.keys == [f"Bearer {KEY}"]
    assert (await llm.chat("CODE_LLM", ASKED))["role"] == "assistant"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_a_busy_or_failing_endpoint_is_asked_again(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [failing(status), failing(status), good]
    assert await llm.ask("CODE_LLM", ASKED) == "42"
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("status", "asked", "hint"),
    [
        (400, 1, "was not understood"),
        (401, 1, "check CODE_LLM_API_KEY"),
        (403, 1, "CODE_LLM_MODEL_NAME"),
        (404, 1, "CODE_LLM_BASE_URL"),
        (429, 5, "asked too often"),
        (500, 5, "it failed"),
    ],
)
async def test_what_stays_wrong_is_said_with_what_to_do(
    endpoint: Endpoint, status: int, asked: int, hint: str
) -> None:
    endpoint.answers = [failing(status)]
    with pytest.raises(ToolError, match=f"answered {status}.*") as caught:
        await llm.ask("CODE_LLM", ASKED)
    assert hint in str(caught.value) and "it went wrong with ***" in str(caught.value)
    assert KEY not in str(caught.value) and len(endpoint.requests) == asked


async def test_it_waits_as_long_as_the_endpoint_asks_and_not_beyond_the_limit(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(429, **{"Retry-After": "0.4"}), good]
    began = time.monotonic()
    assert await llm.ask("CODE_LLM", ASKED) == "42"
    assert time.monotonic() - began >= 0.4
    later = email.utils.formatdate(time.time() + 3600, usegmt=True)
    for wait in ("3600", later):
        endpoint.answers = [failing(429, **{"Retry-After": wait})]
        with pytest.raises(ToolError, match=r"asked again in 3[56]"):
            await llm.ask("CODE_LLM", ASKED, seconds=60)


async def test_an_endpoint_that_does_not_answer_is_left(endpoint: Endpoint) -> None:
    async def never(request: http.Request) -> http.Response:
        await asyncio.sleep(60)
        raise AssertionError

    endpoint.handle = never  # type: ignore[method-assign]
    app = http.Application()
    app.router.add_post("/{path:.*}", never)
    server = TestServer(app)
    await server.start_server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODE_LLM_BASE_URL", f"http://127.0.0.1:{server.port}")
        with pytest.raises(ToolError, match=r"thinker .* did not answer within 0.3 seconds"):
            await llm.ask("CODE_LLM", ASKED, seconds=0.3)
    await server.close()


async def test_an_endpoint_that_is_not_there_is_said(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for base in ("http://127.0.0.1:9/v1", "not an address", f"http://127.0.0.1:9/{KEY}"):
        monkeypatch.setenv("CODE_LLM_BASE_URL", base)
        with pytest.raises(ToolError, match="cannot be used \\(CODE_LLM_BASE_URL\\)") as caught:
            await llm.ask("CODE_LLM", ASKED)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>502</html>", "not valid JSON: <html>502"),
        ("", "not valid JSON"),
        ("[]", "without a message"),
        ("null", "without a message"),
        ('{"choices": []}', "without a message"),
        ('{"choices": [{}]}', "without a message"),
        ('{"choices": [{"message": "x"}]}', "without a message"),
        ('{"choices": [{"message": {"content": null}}]}', "empty answer"),
        ('{"choices": [{"message": {"content": "  "}}]}', "empty answer"),
        (
            '{"choices": [{"message": {"content": "<think>On and on"}, "finish_reason": "length"}]}',
            "limit of tokens",
        ),
        ('{"error": {"message": "no credit for ' + KEY + '"}}', "no credit for ***"),
    ],
)
async def test_answers_of_any_form_end_in_an_error_that_says_so(
    endpoint: Endpoint, body: str, said: str
) -> None:
    endpoint.answers = [failing(200, body)]
    with pytest.raises(ToolError) as caught:
        await llm.ask("CODE_LLM", ASKED)
    assert said in str(caught.value) and KEY not in str(caught.value)


async def test_an_answer_without_end_is_cut_off(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "_MAX_BYTES", 1000)
    endpoint.answers = [failing(200, "x" * 5000)]
    with pytest.raises(ToolError, match="more than 0 MB"):
        await llm.ask("CODE_LLM", ASKED)


async def test_a_model_that_takes_no_temperature_is_asked_without(endpoint: Endpoint) -> None:
    endpoint.answers = [failing(400, '{"error": "temperature does not support 0.5"}'), good]
    assert await llm.ask("CODE_LLM", ASKED, temperature=0.5) == "42"
    assert ["temperature" in request for request in endpoint.requests] == [True, False]


async def test_reasoning_is_kept_apart(endpoint: Endpoint) -> None:
    endpoint.answers = [saying(content="<think>6 * 7 = 42</think>\n\n42")]
    said = await llm.reply("CODE_LLM", ASKED)
    assert (said.text, said.reasoning) == ("42", "6 * 7 = 42")
    endpoint.answers = [saying(content="42", reasoning_content="6 * 7")]
    said = await llm.reply("CODE_LLM", ASKED)
    assert (said.text, said.reasoning) == ("42", "6 * 7")
    endpoint.answers = [saying(content=[{"type": "text", "text": "4"}, {"type": "text", "text": "2"}])]
    assert await llm.ask("CODE_LLM", ASKED) == "42"


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("plain", "plain", ""),
        ("<think>a</think>b", "b", "a"),
        ("a</think>b", "b", "a"),
        ("<think>a", "", "a"),
        ("<think>a</think><think>b</think>c", "c", "ab"),
        ("the tag <think> is odd", "the tag <think> is odd", ""),
    ],
)
def test_where_reasoning_ends(text: str, answer: str, reasoning: str) -> None:
    assert llm.without_reasoning(text) == (answer, reasoning)


@pytest.mark.parametrize("name", ["CODE_LLM_BASE_URL", "CODE_LLM_API_KEY", "CODE_LLM_MODEL_NAME"])
async def test_the_variable_that_is_missing_is_named(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, " ")
    with pytest.raises(ToolError, match=f"{name} is not set.*no model for this tool"):
        await llm.ask("CODE_LLM", ASKED)


async def test_a_file_is_sent_anew_with_each_try(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    path.write_bytes(b"sound")
    endpoint.answers = [failing(503), lambda: http.json_response({"text": "heard"})]
    assert (await llm.transcribe("CODE_LLM", path))["text"] == "heard"
    assert len(endpoint.requests) == 2
    endpoint.answers = [lambda: http.json_response({"words": []})]
    with pytest.raises(ToolError, match="without a text"):
        await llm.transcribe("CODE_LLM", path)
