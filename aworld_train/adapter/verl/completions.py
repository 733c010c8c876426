"""An inference server in place of VeRL's engine: tokens in and tokens out over its completions endpoint.

With ``return_token_ids`` vLLM returns the tokens that it sampled; a server that does not is refused.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import aiohttp
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.verl.language_model import UNCHANGED
from aworld_train.errors import ModelError
from aworld_train.rollout.chat_client import KEY_VARIABLE, EndpointAddress
from aworld_train.rollout.http_client import (
    UVICORN_KEEPALIVE_SECONDS,
    RequestFailed,
    SessionPerLoop,
    request_json,
)
from aworld_train.rollout.outage import Outage

_SECONDS = 600.0
MAX_RETRY_SECONDS = 120.0
"""How long a server may be busy or gone, once it has answered: the tokens of a turn are then sampled again."""
_DEAD_ENGINE = "EngineCore encountered an issue"
"""What vLLM answers, with status 500, when its engine has died and before it ends itself (v1/engine/exceptions.py)."""
_WARM, _MIN_DISTANCE, _PROBED_TOKENS = 2.0, 0.1, 5
"""A second temperature, and how far apart the log-probabilities of two of so many tokens have to be to be compared."""
_MAX_PAUSE = 10.0
_PASSING = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
# For a connection, and then for each part of the answer.
_TIME_LIMITS = aiohttp.ClientTimeout(total=None, connect=_SECONDS, sock_connect=_SECONDS, sock_read=_SECONDS)
_HTTP = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS, max_connections=100)


class CompletionsServer:
    """Samples from a served model at ``url``, which ends in ``/v1``; the key is in ``OPENAI_API_KEY`` by default."""

    def __init__(self, url: str, key: str | None = None):
        address = EndpointAddress(url, "")
        self._url = address.url_of("")
        self._key = key or address.key()
        self._model: str | None = None
        self._has_answered = False
        self._is_checked = False
        self._checking = asyncio.Lock()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        if not self._is_checked and _is_shaped(sampling_params):
            await self._check_probabilities(prompt_ids)
        body = {
            **sampling_params,
            "model": await self.served_model(),
            "prompt": prompt_ids,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        match await self._request("POST", "/completions", body):
            case {"choices": [dict() as choice, *_]}:
                return self._read(choice, sampling_params.get("max_tokens"))
        raise ModelError(f"{self._url}/completions sent no completion.")

    async def served_model(self) -> str:
        if self._model is None:
            match await self._request("GET", "/models", None):
                case {"data": [{"id": str(name)}, *_]}:
                    self._model = name
                case _:
                    raise ModelError(
                        f"{self._url}/models names no model: is this the address of a vLLM server?"
                    )
        return self._model

    async def _check_probabilities(self, prompt_ids: list[int]) -> None:
        """Check once that the server's log-probabilities are of the distribution that it samples.

        By default vLLM returns those of the model, before temperature, top-p and top-k. They are told apart by asking
        at two temperatures: at the higher one the log-probabilities of two tokens are closer to each other, in the
        proportion of the temperatures, or just as far apart.
        """
        async with self._checking:
            if self._is_checked:
                return
            cool, warm = [await self._top_logprobs(prompt_ids, each) for each in (1.0, _WARM)]
            if tokens := sorted(cool.keys() & warm.keys(), key=lambda token: cool[token]):
                first, last = tokens[0], tokens[-1]
                distance = cool[last] - cool[first]
                if distance > _MIN_DISTANCE and warm[last] - warm[first] > distance * (1 + 1 / _WARM) / 2:
                    raise ModelError(
                        f"{self._url} returns the model's log-probabilities, not those of the distribution that it "
                        "samples. Start vLLM with --logprobs-mode processed_logprobs."
                    )
            self._is_checked = True

    async def _top_logprobs(self, prompt_ids: list[int], temperature: float) -> dict[str, float]:
        body = {
            "model": await self.served_model(),
            "prompt": prompt_ids,
            "max_tokens": 1,
            "temperature": temperature,
            # A token that top-p or top-k leaves out has the same log-probability, -9999, at both temperatures, which
            # would look like the model's.
            "top_p": 1.0,
            "top_k": -1,
            **UNCHANGED,
            "logprobs": _PROBED_TOKENS,
            "return_tokens_as_token_ids": True,
        }
        match await self._request("POST", "/completions", body):
            case {"choices": [{"logprobs": {"top_logprobs": [dict() as logprobs, *_]}}, *_]}:
                return {token: value for token, value in logprobs.items() if isinstance(value, float)}
        return {}

    def _read(self, choice: dict[str, Any], max_tokens: int | None) -> TokenOutput:
        tokens = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if tokens is None or logprobs is None or len(tokens) != len(logprobs) or None in logprobs:
            raise ModelError(
                f"{self._url} does not return the tokens that it sampled, and their text must not be tokenised again. "
                "Use a server with `return_token_ids`: vLLM 0.10.2 or later, which needs no flag for it."
            )
        if max_tokens is not None and choice.get("finish_reason") == "length" and len(tokens) < max_tokens:
            # A turn that is shorter than its limit counts as one that the model has ended.
            raise ModelError(
                f"{self._url} cut a turn off after {len(tokens)} of {max_tokens} tokens: the server has a limit of its "
                "own. Start vLLM with --generation-config vllm and with no max_new_tokens in "
                "--override-generation-config."
            )
        return TokenOutput(token_ids=tokens, log_probs=logprobs, stop_reason="completed")

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        outage = Outage(MAX_RETRY_SECONDS, _MAX_PAUSE)
        while True:
            try:
                answer = await request_json(
                    await _HTTP.get(),
                    method,
                    self._url + path,
                    key=self._key,
                    body=body,
                    time_limits=_TIME_LIMITS,
                )
            except RequestFailed as error:
                if not self._may_pass(error):
                    raise ModelError(f"{self._url}{path}: {error}{_remedy(error, path)}") from error
                failure, retry_after = str(error), error.retry_after
            except ValueError as error:
                raise ModelError(
                    f"{self._url}{path} sent no JSON: is this the address of a vLLM server?"
                ) from error
            else:
                self._has_answered = True
                match answer:
                    # As vLLM answers in the middle of a request when it is ended (``--shutdown-timeout 0``).
                    case {"choices": [{"finish_reason": "abort"}, *_]}:
                        failure, retry_after = "the server gave the request up (finish_reason abort)", 0.0
                    case _:
                        return answer
            pause = outage.pause(retry_after)
            if pause is None:
                wish = f"; it asks for a pause of {retry_after:.0f} seconds" if retry_after else ""
                raise ModelError(f"{self._url}{path}: {failure}, for {outage.seconds:.0f} seconds{wish}")
            await asyncio.sleep(pause)

    def _may_pass(self, error: RequestFailed) -> bool:
        """Whether the same request may succeed later: the server is busy, or one that has answered starts again."""
        if error.status in _PASSING:
            return True
        return self._has_answered and (error.status is None or _DEAD_ENGINE in str(error))


def _is_shaped(sampling_params: dict[str, Any]) -> bool:
    """Whether the distribution that is sampled is another than the model's; greedily there is none."""
    temperature = sampling_params.get("temperature", 1.0)
    changed = sampling_params.get("top_p", 1.0) < 1 or sampling_params.get("top_k", 0) > 0
    return bool(temperature > 0 and (temperature != 1 or changed))


def _remedy(error: RequestFailed, path: str) -> str:
    match error.status:
        case HTTPStatus.BAD_REQUEST if "context length" in str(error):
            return (
                ". Start it with a larger --max-model-len: dataset.max_prompt_tokens plus "
                "rollout.max_response_tokens."
            )
        case HTTPStatus.UNAUTHORIZED:
            return f". Put the server's key into {KEY_VARIABLE}."
        case HTTPStatus.NOT_FOUND if path == "/models":
            return ". The address of a vLLM server ends in /v1."
        case HTTPStatus.NOT_FOUND:
            return ". It had this model when it was asked first: it has been started again with another one."
    return ""
