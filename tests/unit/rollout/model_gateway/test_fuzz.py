"""Whatever an agent sends, in any dialect, is answered or refused with a reason; nothing fails."""

import asyncio
import json
import os
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.model_gateway import app
from aworld_train.rollout.token_episode import TokenEpisode
from tests.gateways import MODEL, serving
from tests.properties import TRY_ALL
from tests.templates import ENDS, ScriptedModel, cut_up
from tests.vision import data_url, png

EXCHANGES = 20_000
SEEDS = 5
TALKS = 8  # exchanges of one conversation
LIMITS = EpisodeLimits(TALKS, 4000, 4000, SamplingParams(1.0, 1.0, -1))
KEEP_ALIVE_SECONDS, SLOW_SECONDS = 0.002, 0.005
CALL = '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>'
TURNS = [
    "Yes.", "", "a\ud7ff\U0001f600", "<think>hm</think>yes", "<think>never ends", "<tool_call>{", "<|im_end|>",
    CALL % "{}", CALL % '{"a": "\\ud800"}', CALL % "[1]", CALL % '{"a": 1e999}', CALL % "{}" + CALL % '{"b": {}}',
]  # fmt: skip
TEXTS = [
    "", " ", "q", "\ud83d", "\ude00 cut \ud83d", "\U0001f600", "\0", "\x1b[31m", "\u2028", "\ufffe", "\r\n",
    "<|im_start|>system", "<tool_response>", "{{ x }}", "%s", "a1w2o3r4l5d6", "words " * 200, "\u0301" * 50,
    "Calling tools:\n[{", "data: [DONE]\n\n", "{%", "</think>", "<think>", "c7i6m5a4g3e20;", '[{"a":' * 50,
]  # fmt: skip
IMAGE = data_url(png())
JSON: list[Any] = [
    None, True, 0, -1, 1.5, 1 << 70, "", "x", [], {}, [None], {"type": None}, {"type": ["text"]}, {"a": {"b": [1]}},
]  # fmt: skip


class Chance(random.Random):
    """Random choices that are odd as often as ``oddness`` has it: what no client writes."""

    def __init__(self, seed: str):
        super().__init__(seed)
        self.oddness = self.choice([0.0, 0.01, 0.05, 0.3])

    def odd(self) -> bool:
        return self.random() < self.oddness

    def usual(self, usual: Sequence[Any], odd: Sequence[Any] = JSON) -> Any:
        return self.choice(odd if self.odd() else usual)


OF_TOOLS = ["text", "image", "document", "tool_reference", "search_result", "resource", "audio", "another"]


def part(rng: Chance, kind: str, text: str) -> Any:
    """A part of a tool's result, seldom with all that belongs to its kind."""
    source = {
        "type": rng.usual(["base64", "url", "text"]),
        "data": IMAGE[22:],
        "url": "http://127.0.0.1/a.png",
    }
    return rng.usual([{"type": kind, "text": text, "source": source, "tool_name": "f"}, {"type": kind}])


def parts(rng: Chance, kinds: Sequence[str]) -> Any:
    """Content as text or as parts of these kinds."""
    text = rng.choice(TEXTS)
    known: dict[str, Any] = {
        "text": {"text": text},
        "input_text": {"text": text},
        "output_text": {"text": text},
        "refusal": {"refusal": text},
        "image_url": {"image_url": {"url": rng.usual([IMAGE], ["http://127.0.0.1/a.png", "", 5])}},
        "input_image": {"image_url": IMAGE},
        "image": {"source": {"type": "base64", "media_type": "image/png", "data": IMAGE[22:]}},
        "document": {"source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        "input_file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        "file": {"file": {"file_data": "JVBERi0="}},
        "tool_reference": {"tool_name": "f"},
        "thinking": {"thinking": text, "signature": ""},
        "redacted_thinking": {"data": ""},
        "tool_use": {"id": "c1", "name": "f", "input": rng.usual([{"a": text}, {}])},
        "tool_result": {
            "tool_use_id": rng.usual(["c1", "c2"]),
            "is_error": rng.usual([True, False]),
            "content": rng.usual([text, None, [part(rng, kind, text) for kind in rng.sample(OF_TOOLS, 3)]]),
        },
        "server_tool_use": {"id": "s1", "name": "web_search", "input": {}},
        "web_search_tool_result": {"tool_use_id": "s1", "content": []},
        "input_audio": {"input_audio": {"data": "", "format": "wav"}},
    }
    if rng.random() < 0.5 or not kinds:
        return rng.usual([text])
    chosen = [rng.usual(kinds, [*known, "another"]) for _ in range(rng.randrange(4))]
    return [rng.usual([{"type": kind, **known.get(kind, {})}], [text, *JSON]) for kind in chosen]


def arguments(rng: Chance) -> Any:
    return rng.usual(["{}", '{"a": "\\ud800"}', '{"a": "\ud800"}', "[", "", "null", "1e999", *TEXTS])


def chat_message(rng: Chance) -> Any:
    role = rng.usual(["user"] * 3 + ["assistant"] * 3 + ["tool"] * 2 + ["system"], ["function", "x", *JSON])
    kinds = {"user": ["text", "image_url", "file"], "tool": ["text", "image_url"]}.get(str(role), ["text"])
    message: dict[str, Any] = {"role": role, "content": parts(rng, kinds)}
    if role == "assistant" and rng.random() < 0.4:
        function = {"name": rng.usual(["f", "g"], TEXTS), "arguments": arguments(rng)}
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    if role == "tool":
        message["tool_call_id"] = rng.usual(["c1", "c2", ""])
    if rng.random() < 0.1:
        message["reasoning_content"] = rng.usual(TEXTS)
    return rng.usual([message])


def anthropic_message(rng: Chance) -> Any:
    role = rng.usual(["user", "assistant"], ["system", "tool", *JSON])
    of_user = ["text", "image", "document", "tool_result", "tool_result"]
    of_assistant = ["text", "thinking", "redacted_thinking", "tool_use"]
    kinds = {"user": of_user, "assistant": of_assistant}.get(str(role), ["text"])
    return rng.usual([{"role": role, "content": parts(rng, kinds)}])


def response_item(rng: Chance) -> Any:
    kind = rng.usual(
        ["message"] * 3 + ["function_call", "function_call_output", "reasoning"],
        [
            "item_reference",
            "web_search_call",
            "custom_tool_call",
            "custom_tool_call_output",
            "compaction",
            *JSON,
        ],
    )
    role = rng.usual(["user", "assistant", "system"])
    kinds = ["input_text", "input_image", "input_file"] if role == "user" else ["output_text"]
    item: dict[str, Any] = {"type": kind, "role": role, "content": parts(rng, kinds)}
    if kind == "reasoning":
        item = {
            "type": kind,
            "summary": [],
            "content": [{"type": "reasoning_text", "text": rng.usual(TEXTS)}],
        }
    if kind == "function_call":
        item = {"type": kind, "call_id": "c1", "name": rng.usual(["f"], TEXTS), "arguments": arguments(rng)}
        if rng.random() < 0.2:
            item["namespace"] = rng.usual(["ns", "mcp__x__", "", None])
    if kind == "function_call_output":
        output = parts(rng, ["input_text", "input_image", "input_file", "input_audio", "refusal"])
        item = {"type": kind, "call_id": rng.usual(["c1", "c2"]), "output": output}
    return rng.usual([item])


def tools(rng: Chance, endpoint: str) -> Any:
    schema = {"type": "object", "properties": {"a": {"description": rng.choice(TEXTS)}}}
    function = {"name": "f", "description": rng.choice(TEXTS), "parameters": schema, "input_schema": schema}
    typed = {"type": "function", "function": function, **function}
    own = function if endpoint.startswith("messages") else typed
    if rng.random() < 0.3:
        inner = rng.usual([[typed], [typed, {"type": "custom", "name": "c"}], []], [[[]], *JSON])
        space = {"type": "namespace", "name": rng.usual(["ns", "mcp__x__"], ["", *JSON]), "tools": inner}
        other = {
            "type": rng.choice(["web_search", "custom", "local_shell", "bash_20250124", "x"]),
            "name": "f",
        }
        return [*([space] if endpoint == "responses" else []), other, *([own] if rng.random() < 0.8 else [])]
    return rng.usual([[own]], [[function], [typed], *JSON])


def options(rng: Chance, endpoint: str) -> dict[str, Any]:
    choice = ["auto", "none", "required", {"type": "any"}, {"type": "tool", "name": "f"}]
    schema = {"type": "json_schema", "schema": {"a": "\ud800"}}
    usual: dict[str, list[Any]] = {
        "stream": [True, False, None],
        "max_tokens": [1, 50, None],
        "max_output_tokens": [7],
        "temperature": [0, 1],
        "metadata": JSON,
        "system": TEXTS,
        "instructions": TEXTS,
    }
    odd: dict[str, list[Any]] = {
        **dict.fromkeys(usual, JSON),
        "tool_choice": [*choice, *JSON],
        "stop": ["a", ["a", ""], "\ud800", *JSON],
        "stop_sequences": [["e"], *JSON],
        "n": [2, 200, *JSON],
        "logprobs": JSON,
        "top_logprobs": [50, *JSON],
        "response_format": [{"type": "json_object"}, schema, *JSON],
        "previous_response_id": ["resp_1", *JSON],
        "padding": ["words " * 300_000],
        rng.choice(TEXTS): JSON,
    }
    chosen = {name: rng.choice(values) for name, values in usual.items() if rng.random() < 0.1}
    chosen |= {"stream": True} if rng.random() < 0.3 else {}
    chosen |= {name: rng.choice(values) for name, values in odd.items() if rng.odd() and rng.random() < 0.3}
    return {**chosen, "tools": tools(rng, endpoint)} if rng.random() < 0.7 else chosen


def histories(rng: Chance, one: Callable[[Chance], Any], before: list[Any]) -> list[Any]:
    """A history that often goes on with the one before, and sometimes changes, repeats, cuts or reorders it."""
    history = list(before) if rng.random() < 0.7 else []
    history += [one(rng) for _ in range(rng.randrange(3) + (not history))]
    if rng.random() < 0.02:
        history *= rng.choice([20, 200])
    if history and rng.random() < 0.1:
        rng.shuffle(history)
    return history[: rng.randrange(len(history) + 1)] if rng.random() < 0.1 else history


ENDPOINTS = {
    "chat/completions": ("messages", chat_message),
    "responses": ("input", response_item),
    "messages": ("messages", anthropic_message),
    "messages/count_tokens": ("messages", anthropic_message),
    "completions": ("prompt", lambda rng: rng.usual(TEXTS)),
}


def body_of(rng: Chance, endpoint: str, before: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    field, one = ENDPOINTS[endpoint]
    history = histories(rng, one, before)
    value: Any = rng.usual([history])
    if endpoint == "completions":
        value = history[0] if history else ""
    body = {"model": "m", field: value, **options(rng, endpoint)}
    if endpoint.startswith("messages"):
        body.setdefault("max_tokens", 50)
        if not rng.odd():  # Anthropic's clients end with a user's message
            history.append({"role": "user", "content": rng.choice(TEXTS)})
    return body, history


def reply_of(endpoint: str, answer: dict[str, Any]) -> list[Any]:
    """What a client adds to its history of an answer."""
    if endpoint == "chat/completions":
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        return [message, *({"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls)]
    if endpoint == "responses":
        return list(answer["output"])
    return [{"role": "assistant", "content": answer["content"]}] if endpoint == "messages" else []


async def cut_off(rng: Chance, url: str, path: str, body: bytes) -> None:
    """Send a request and leave in the middle of it, or of its answer."""
    host, port = url.removeprefix("http://").split("/")[0].split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    sent = head + body
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent if rng.random() < 0.6 else sent[: rng.randrange(len(sent))])
    with suppress(ConnectionError, TimeoutError):
        await writer.drain()
        async with asyncio.timeout(rng.choice([0, 0.001, 0.01])):
            await reader.read(rng.choice([1, 100, 10_000]))
    if rng.random() < 0.5:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.close()


def encoded(rng: Chance, body: Any) -> bytes:
    if rng.random() < 0.5:
        text = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        text = json.dumps(body).encode()
    if rng.odd():
        position = rng.randrange(len(text))
        text = text[:position] + rng.choice([b"", b"\xff", b"]", b'"', b"[" * 3000]) + text[position + 1 :]
    return text


class Talk:
    """One episode's conversation with random requests."""

    def __init__(self, rng: Chance):
        self.rng = rng
        family = rng.choice(list(ENDS))
        self.model = ScriptedModel(family, self._turn)
        self.model.generate = self.generate  # type: ignore[method-assign]
        self.episode = TokenEpisode(self.model, LIMITS)
        self.answers: list[str] = []  # that a request of the Responses API may name

    async def generate(self, *request: Any) -> Any:
        """Sample, sometimes so late that a stream begins before its answer."""
        if self.rng.random() < 0.1:
            await asyncio.sleep(SLOW_SECONDS)
        return await ScriptedModel.generate(self.model, *request)

    def _turn(self, tokenizer: Any) -> tuple[list[int], bool]:
        text, ended = self.rng.choice(TURNS), self.rng.random() < 0.9
        tokens = cut_up(tokenizer, text, 1) if text else []
        return ([*tokens, tokenizer.eos_token_id] if ended or not tokens else tokens), ended

    async def play(self, http: aiohttp.ClientSession, open_session: Callable[..., Any]) -> list[str]:
        """The exchanges that no client can explain."""
        session = open_session(MODEL, self.episode.conversation, self.episode.rules)
        endpoint, history = self.rng.choice(list(ENDPOINTS)), list[Any]()
        unexplained = []
        for _ in range(TALKS):
            if self.rng.random() < 0.1:
                endpoint, history = self.rng.choice(list(ENDPOINTS)), []
            body, sent = body_of(self.rng, endpoint, history)
            if endpoint == "responses" and self.answers and self.rng.random() < 0.2:
                body["previous_response_id"] = self.rng.choice(self.answers)
            data, url = encoded(self.rng, body), f"{session.address()}/{endpoint}"
            if self.rng.random() < 0.08:
                await cut_off(self.rng, url, f"/{url.split('/', 3)[3]}", data)
                continue
            async with http.post(url, data=data) as response:
                received = await response.read()
            if fault := fault_of(response, received):
                unexplained.append(f"{self.model.family} {endpoint} {fault}: {data[:2000]!r}")
            history = sent
            if response.status == 200 and response.content_type == "application/json":
                answer = json.loads(received)
                history = [*sent, *reply_of(endpoint, answer)]
                self.answers += [answer["id"]] if endpoint == "responses" else []
            elif self.rng.random() < 0.7:
                history = []
        session.close()
        unexplained += [f"the episode failed: {self.episode.failure}"] * (self.episode.failure is not None)
        assert_exact(self.episode, self.model)
        return unexplained


def assert_exact(episode: TokenEpisode, model: ScriptedModel) -> None:
    """Each row is the input of a model call and what it sampled, up to a stop text."""
    calls = [prompt + sampled.tokens for prompt, sampled in model.calls]
    for _, row in episode.rows():
        tokens = row.prompt + row.response
        assert len(row.response) == len(row.mask)
        assert any(call[: len(tokens)] == tokens for call in calls)


def fault_of(response: aiohttp.ClientResponse, received: bytes) -> str:
    """What is wrong with a response; empty for an answer, and for a refusal that says what is."""
    received.decode()
    if response.status == 200:
        return fault_of_stream(received) if response.content_type == "text/event-stream" else ""
    error = json.loads(received)["error"]
    if response.status in (400, 403, 413) and error["code"] and error["message"]:
        return ""
    return f"{response.status} {received[:300]!r}"


def fault_of_stream(received: bytes) -> str:
    """What is wrong with a stream; empty for one that has its last event, be it an error that says what is wrong."""
    lines = [line.removeprefix(b"data: ") for line in received.split(b"\n") if line.startswith(b"data: ")]
    *_, last = [json.loads(line) for line in lines if line != b"[DONE]"]
    error = last.get("error")
    if error and (error["code"] in (None, "internal_error") or not error["message"]):
        return f"an error in a stream: {last}"
    ends = ("message_stop", "response.completed", "response.incomplete", "error")
    is_whole = error or lines[-1] == b"[DONE]" or last.get("type") in ends
    return "" if is_whole and received.endswith(b"\n\n") else f"a stream without an end: {lines[-1]!r}"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_random_exchange_ends_in_an_answer_or_a_refusal_that_says_why(
    seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_KEEP_ALIVE_SECONDS", KEEP_ALIVE_SECONDS)
    exchanges = EXCHANGES if os.environ.get(TRY_ALL) else EXCHANGES // 25
    unexplained: list[str] = []
    async with serving() as gateway, aiohttp.ClientSession() as http:
        for number in range(exchanges // SEEDS // TALKS):
            rng = Chance(f"{seed} {number}")
            unexplained += await Talk(rng).play(http, gateway.open_session)
    assert unexplained == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("family", ENDS)
async def test_a_history_that_ends_with_the_model_s_own_turn_is_answered(family: str) -> None:
    model = ScriptedModel(
        family, lambda tokenizer: ([*cut_up(tokenizer, "a", 1), tokenizer.eos_token_id], True)
    )
    episode = TokenEpisode(model, LIMITS)
    history = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    async with serving() as gateway, aiohttp.ClientSession() as http:
        session = gateway.open_session(MODEL, episode.conversation, episode.rules)
        for messages in (history[:1], history, history):
            for endpoint, field in (("chat/completions", "messages"), ("responses", "input")):
                async with http.post(f"{session.address()}/{endpoint}", json={field: messages}) as response:
                    assert response.status == 200
    assert_exact(episode, model)
