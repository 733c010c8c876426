"""An inference server in VeRL's place: the very tokens it sampled, or a clear word why there are none."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aworld_train.adapter.verl import completions
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
        sampler = CompletionsServer(server.url)
        for _ in range(3):
            await sampler.generate("one", [7, 8, 9], dict(SAMPLING))
    body = server.bodies[0]
    assert body["prompt"] == [7, 8, 9]
    assert body["model"] == "org/big"
    assert (body["return_token_ids"], body["skip_special_tokens"]) == (True, False)
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "max_tokens")} == {
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": -1,
        "max_tokens": 8,
    }
    # vLLM counts alternatives here: none beside the sampled token, whose own is always told.
    assert body["logprobs"] == 0
    assert server.asked_for_models == 1


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
    assert await refusal(server.url) == "What is in OPENAI_API_KEY cannot be sent as a key."


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
        ("http://gpu-node:port/v1", "not the address of an endpoint"),
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
        sampler = CompletionsServer(server.url)
        for _ in range(2):
            output = asyncio.run(sampler.generate("one", [7], dict(SAMPLING)))
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


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_busy_server_is_asked_again_when_it_says_so(status: int) -> None:
    refused = []

    async def busy(request: web.Request) -> web.Response:
        if len(refused) < 2:
            refused.append(1)
            return web.Response(status=status, text="busy", headers={"Retry-After": "0"})
        choice = {"finish_reason": "stop", "token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}}
        return web.json_response({"choices": [choice]})

    async with serving(replaced={"completions": busy}) as server:
        assert (await generate(server.url)).token_ids == [5]
    assert len(refused) == 2


async def test_a_server_that_stays_busy_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MAX_RETRY_SECONDS", 1.0)
    async with serving(error=(503, "no room")) as server:
        error_message = await refusal(server.url)
    assert "HTTP 503 'no room', for " in error_message


async def test_a_server_that_starts_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = VllmStub(lambda prompt: [5])
    with server:
        sampler = CompletionsServer(server.url)
        assert (await sampler.generate("one", [7], dict(SAMPLING))).token_ids == [5]
        port = int(server.url.rpartition(":")[2].removesuffix("/v1"))
    waiting = asyncio.create_task(sampler.generate("one", [7], dict(SAMPLING)))
    await asyncio.sleep(1)
    assert not waiting.done()
    with VllmStub(lambda prompt: [6], port=port):
        assert (await asyncio.wait_for(waiting, 30)).token_ids == [6]


async def test_a_server_that_is_gone_for_good_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MAX_RETRY_SECONDS", 1.0)
    with VllmStub(lambda prompt: [5]) as server:
        sampler = CompletionsServer(server.url)
        await sampler.generate("one", [7], dict(SAMPLING))
    with pytest.raises(ModelError, match=r"ConnectError.* for "):
        await sampler.generate("one", [7], dict(SAMPLING))


async def test_a_context_that_is_too_small_is_said_with_the_flag() -> None:
    text = "This model's maximum context length is 64 tokens. However, you requested 99 tokens."
    async with serving(error=(400, text)) as server:
        error_message = await refusal(server.url)
    assert "--max-model-len: dataset.max_prompt_tokens plus rollout.max_response_tokens" in error_message


async def test_a_server_with_the_log_probabilities_of_the_model_is_refused_with_the_flag() -> None:
    async with serving(processed=False) as server:
        assert "--logprobs-mode processed_logprobs" in await refusal(server.url)


@pytest.mark.parametrize(
    ("shape", "is_checked"),
    [
        ({"temperature": 0.5}, True),
        ({"top_k": 1}, True),
        ({"top_p": 0.9}, True),
        ({}, False),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 0}, False),
        ({"temperature": 0.0, "top_p": 0.9}, False),
    ],
)
async def test_only_a_distribution_that_is_not_the_models_is_checked(
    shape: dict[str, Any], is_checked: bool
) -> None:
    async with serving(processed=False) as server:
        sampling = CompletionsServer(server.url).generate("one", [7], {"max_tokens": 8, **shape})
        if is_checked:
            with pytest.raises(ModelError, match="processed_logprobs"):
                await sampling
        else:
            assert (await sampling).token_ids == [7, 5]


@pytest.mark.parametrize(
    ("cool", "warm", "is_refused"),
    [(4.0, 3.0, False), (4.0, 3.1, True), (0.1, 0.1, False), (0.11, 0.11, True), (None, None, False)],
)
async def test_a_server_is_checked_once_by_how_far_apart_two_tokens_are_at_two_temperatures(
    cool: float | None, warm: float | None, is_refused: bool
) -> None:
    probes: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        if not body["logprobs"]:
            return answer(6)
        probes.append(body)
        distance = cool if body["temperature"] == 1.0 else warm
        # vLLM has none for a prompt that it does not sample after.
        top = None if distance is None else [{"token_id:1": 0.0, "token_id:2": -distance}]
        return web.json_response({"choices": [{"logprobs": {"top_logprobs": top}}]})

    async with serving(replaced={"completions": complete}) as server:
        sampler = CompletionsServer(server.url)
        turns = [sampler.generate("one", [7, 8], dict(SAMPLING)) for _ in range(2)]
        outputs = await asyncio.gather(*turns, return_exceptions=True)
    assert [isinstance(output, ModelError) for output in outputs] == [is_refused] * 2
    expected = {
        "model": "served",
        "prompt": [7, 8],
        "max_tokens": 1,
        "top_p": 1.0,
        "top_k": -1,
        **{"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
        "logprobs": 5,
        "return_tokens_as_token_ids": True,
    }
    # A refusal is not remembered.
    temperatures = [1.0, 2.0] * (2 if is_refused else 1)
    assert probes == [expected | {"temperature": temperature} for temperature in temperatures]


def answer(*tokens: int, finish_reason: str = "stop") -> web.Response:
    logprobs = {"token_logprobs": [-1.0] * len(tokens)}
    choice = {"finish_reason": finish_reason, "token_ids": list(tokens), "logprobs": logprobs}
    return web.json_response({"choices": [choice]})


PLAIN = SAMPLING | {"temperature": 1.0}  # nothing to probe


async def test_a_turn_that_a_server_gives_up_as_it_is_ended_is_sampled_again() -> None:
    attempts = []

    async def ended(request: web.Request) -> web.Response:
        attempts.append(1)
        return answer(5, finish_reason="abort") if len(attempts) == 1 else answer(6, 7)

    async with serving(replaced={"completions": ended}) as server:
        output = await CompletionsServer(server.url).generate("one", [7], PLAIN)
    assert (output.token_ids, output.stop_reason) == ([6, 7], "completed")


async def test_a_server_that_gives_every_request_up_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completions, "MAX_RETRY_SECONDS", 1.0)
    async with serving(finish_reason="abort") as server:
        assert "finish_reason abort" in await refusal(server.url)


async def test_a_dead_engine_is_waited_for_as_its_server_ends_and_starts_again() -> None:
    attempts = []

    async def dead(request: web.Request) -> web.Response:
        attempts.append(1)
        if len(attempts) > 1:
            return answer(6)
        text = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        error = {"message": text, "type": "InternalServerError", "param": None, "code": 500}
        return web.json_response({"error": error}, status=500)

    async with serving(replaced={"completions": dead}) as server:
        assert (await CompletionsServer(server.url).generate("one", [7], PLAIN)).token_ids == [6]


async def test_an_error_of_the_server_that_does_not_pass_ends_the_turn_at_once() -> None:
    attempts = []

    async def broken(request: web.Request) -> web.Response:
        attempts.append(1)
        return web.json_response({"error": {"message": "Internal server error", "code": 500}}, status=500)

    async with serving(replaced={"completions": broken}) as server:
        with pytest.raises(ModelError, match="HTTP 500"):
            await CompletionsServer(server.url).generate("one", [7], PLAIN)
    assert len(attempts) == 1


async def test_half_an_answer_is_thrown_away_and_a_long_turn_has_its_full_time_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The turn takes longer than an outage may before its connection breaks: only the outage counts.
    monkeypatch.setattr(completions, "MAX_RETRY_SECONDS", 1.0)
    attempts = []

    async def cut(request: web.Request) -> web.StreamResponse:
        attempts.append(1)
        if len(attempts) > 1:
            return answer(6)
        await asyncio.sleep(1.5)
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [{"token_ids": [5')
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(replaced={"completions": cut}) as server:
        assert (await CompletionsServer(server.url).generate("one", [7], PLAIN)).token_ids == [6]
    assert len(attempts) == 2


async def test_a_pause_that_is_too_long_is_said_and_not_waited_for() -> None:
    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=429, text="busy", headers={"Retry-After": "3600"})

    async with serving(replaced={"completions": busy}) as server:
        with pytest.raises(ModelError, match="it asks for a pause of 3600 seconds"):
            await asyncio.wait_for(CompletionsServer(server.url).generate("one", [7], PLAIN), 30)


async def test_a_turn_that_the_server_cuts_off_by_a_limit_of_its_own_is_refused_with_the_flag() -> None:
    async with serving(finish_reason="length") as server:
        sampler = CompletionsServer(server.url)
        with pytest.raises(ModelError, match=r"after 3 of 8 tokens.*--generation-config vllm"):
            await sampler.generate("one", [7, 8, 9], PLAIN)
        whole = await sampler.generate("one", [7, 8, 9], PLAIN | {"max_tokens": 3})
    assert whole.token_ids == [7, 8, 5]


@pytest.mark.parametrize(("processed", "most"), [(True, 5), (False, 5), (False, 2)])
async def test_a_folder_with_top_p_of_its_own_does_not_mislead_the_check(processed: bool, most: int) -> None:
    """vLLM gives a token that top-p leaves out -9999, and takes top-p from the model's folder if a request has none."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        if not body["logprobs"]:
            return answer(6)
        warmth = body["temperature"] if processed else 1.0
        cut = processed and body.get("top_p", 0.9) < 1
        top = {"token_id:1": -0.01} | {
            f"token_id:{token}": -9999.0 if cut else -5.0 * token / warmth for token in range(2, most + 1)
        }
        return web.json_response({"choices": [{"logprobs": {"top_logprobs": [top]}}]})

    async with serving(replaced={"completions": complete}) as server:
        if processed:
            assert (await generate(server.url)).token_ids == [6]
        else:
            assert "--logprobs-mode processed_logprobs" in await refusal(server.url)


@pytest.mark.parametrize(
    ("path", "status", "remedy"),
    [
        ("models", 404, "ends in /v1"),
        ("models", 401, "Put the server's key into OPENAI_API_KEY"),
        ("completions", 404, "started again with another one"),
    ],
)
async def test_a_refusal_by_the_server_is_said_with_the_remedy(path: str, status: int, remedy: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "The model `x` does not exist."}}, status=status)

    async with serving(replaced={path: refuse}) as server:
        with pytest.raises(ModelError, match=remedy):
            await CompletionsServer(server.url).generate("one", [7], PLAIN)
