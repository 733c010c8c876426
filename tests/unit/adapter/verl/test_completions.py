"""An inference server in VeRL's place: the very tokens it sampled, or a clear word why there are none."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aworld_train.adapter.verl.completions import CompletionsServer
from aworld_train.errors import ModelError
from tests.proxies import Proxy
from tests.vllm_stub import VllmStub

SAMPLING = {"temperature": 0.5, "top_p": 1.0, "top_k": -1, "max_tokens": 8, "logprobs": True}


@asynccontextmanager
async def serving(**behaviour: Any) -> AsyncIterator[VllmStub]:
    with VllmStub(lambda prompt: [*prompt[:2], 5], **behaviour) as server:
        yield server


async def generate(url: str) -> Any:
    return await CompletionsServer(url).generate("one", [7, 8, 9], dict(SAMPLING))


async def refusal(url: str) -> str:
    with pytest.raises(ModelError) as caught:
        await generate(url)
    return str(caught.value)


async def test_what_the_server_sampled_comes_back_token_by_token_with_its_logprobs() -> None:
    async with serving() as server:
        output = await generate(server.url + "/")
    assert output.token_ids == [7, 8, 5]
    assert output.log_probs == [-0.5, -1.0, -1.5]
    assert output.stop_reason == "completed"


async def test_it_is_given_token_ids_and_the_sampling_and_asked_for_token_ids() -> None:
    async with serving(model="org/big") as server:
        completions = CompletionsServer(server.url)
        for _ in range(3):
            await completions.generate("one", [7, 8, 9], dict(SAMPLING))
    body = server.bodies[0]
    assert body["prompt"] == [7, 8, 9]
    assert body["model"] == "org/big"
    assert body["return_token_ids"] is True
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "max_tokens")} == {
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": -1,
        "max_tokens": 8,
    }
    # vLLM counts alternatives here: none beside the sampled token, whose own is always told.
    assert body["logprobs"] == 0
    assert server.asked_for_models == 1


async def test_a_request_that_the_server_gave_up_is_told_as_verl_tells_it() -> None:
    async with serving(finish_reason="abort") as server:
        assert (await generate(server.url)).stop_reason == "aborted"


@pytest.mark.parametrize("withheld", ["token_ids", "logprobs"])
async def test_a_server_that_does_not_tell_its_tokens_is_refused(withheld: str) -> None:
    async with serving(withheld=(withheld,)) as server:
        error_message = await refusal(server.url)
    assert (
        "does not return the tokens that it sampled, and their text must not be tokenised again"
        in error_message
    )
    assert "return_token_ids" in error_message


@pytest.mark.parametrize("logprobs", [[-1.0], [-1.0, None, -1.0]])
async def test_a_token_without_its_logprob_is_refused(logprobs: list[float | None]) -> None:
    async with serving(logprobs=logprobs) as server:
        assert "does not return the tokens" in await refusal(server.url)


async def test_an_http_error_is_said_with_where_status_and_text() -> None:
    async with serving(error=(400, "max_tokens is too large")) as server:
        error_message = await refusal(server.url)
    assert error_message == f"{server.url}/completions: HTTP 400 'max_tokens is too large'"


async def test_the_key_is_sent_as_a_bearer_and_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret\n")
    async with serving(key="sk-very-secret") as server:
        await generate(server.url)
    async with serving(key="another") as server:
        error_message = await refusal(server.url)
    assert "HTTP 401" in error_message
    assert "very-secret" not in error_message
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret\nX: 1")
    assert "very-secret" not in await refusal(server.url)


async def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with serving() as server:
        await generate(server.url)
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://127.0.0.1:9/v1", "ConnectError"),
        ("gpu-node:8000/v1", "begins with http:// or https://"),
        ("http://gpu-node:port/v1", "no address of a server"),
    ],
)
async def test_a_server_that_cannot_be_reached_is_said_with_its_address(url: str, what: str) -> None:
    error_message = await refusal(url)
    assert url.rstrip("/") in error_message
    assert what in error_message


async def test_a_far_server_is_reached_through_the_proxy_of_the_environment() -> None:
    with Proxy(body={"data": [{"id": "far"}]}) as proxy, proxy.variables("http"):
        assert await CompletionsServer("http://model.invalid/v1").served_model() == "far"
    assert proxy.requests == [("GET", "model.invalid")]


def test_it_may_be_asked_in_one_event_loop_after_another() -> None:
    with VllmStub(lambda prompt: [5]) as server:
        completions = CompletionsServer(server.url)
        for _ in range(2):
            output = asyncio.run(completions.generate("one", [7], dict(SAMPLING)))
            assert output.token_ids == [5]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("models", "<html>", "sent no JSON: is this the address of a vLLM server?"),
        ("models", {}, "names no model: is this the address of a vLLM server?"),
        ("models", {"data": []}, "names no model"),
        ("models", [], "names no model"),
        ("completions", {}, "sent no completion"),
        ("completions", {"choices": []}, "sent no completion"),
        ("completions", {"choices": [None]}, "sent no completion"),
    ],
)
async def test_another_kind_of_server_is_told_from_vllm(path: str, body: Any, sentence: str) -> None:
    async def odd(request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(text=text)

    async with serving(replaced={path: odd}) as server:
        error_message = await refusal(server.url)
    assert error_message.startswith(f"{server.url}/{path} ")
    assert sentence in error_message
