"""An inference server in place of VeRL's engine: tokens in and tokens out over its completions endpoint.

vLLM's OpenAI-compatible server takes a prompt of token ids and, with ``return_token_ids``, returns the tokens that it
sampled (docs.vllm.ai, OpenAI-compatible server). A server that does not return them cannot be recorded exactly and is
refused.
"""

from typing import Any

import aiohttp
import httpx
from verl.workers.rollout.replica import TokenOutput

from aworld_train.api_keys import can_be_sent, key_in
from aworld_train.errors import ModelError
from aworld_train.network import proxy_for
from aworld_train.rollout.http_client import (
    UVICORN_KEEPALIVE_SECONDS,
    RequestFailed,
    SessionPerLoop,
    request_json,
)

KEY_VARIABLE = "OPENAI_API_KEY"
_SECONDS = 600.0
# For a connection, and then for each part of the answer.
_TIME_LIMITS = aiohttp.ClientTimeout(total=None, connect=_SECONDS, sock_connect=_SECONDS, sock_read=_SECONDS)
_HTTP = SessionPerLoop(UVICORN_KEEPALIVE_SECONDS, max_connections=100)


class CompletionsServer:
    """Samples from a served model.

    Args:
        url: Its base address, ending in ``/v1``.
        key: Its key; by default what is in ``OPENAI_API_KEY``, if it needs one.

    Raises:
        ModelError: The key or the address is not valid.
        UsageError: The environment names a proxy for it that is no HTTP proxy.
    """

    def __init__(self, url: str, key: str | None = None):
        self._url = url.rstrip("/")
        self._key = key or key_in(KEY_VARIABLE)
        if not can_be_sent(self._key):
            raise ModelError(f"What is in {KEY_VARIABLE} cannot be sent as a key.")
        if not self._url.startswith(("http://", "https://")):
            raise ModelError(f"{url} is no address of a server: it begins with http:// or https://.")
        try:
            proxy_for(self._url)
        except httpx.InvalidURL as error:
            raise ModelError(f"{url} is no address of a server: {error}.") from error
        self._model: str | None = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        """Sample tokens after ``prompt_ids``, with the interface of VeRL's servers.

        Raises:
            ModelError: The server cannot be reached, or does not return token ids.
        """
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
                return self._read(choice)
        raise ModelError(f"{self._url}/completions sent no completion.")

    async def served_model(self) -> str:
        """The name of the model that the server has.

        Raises:
            ModelError: The server cannot be reached, or names no model.
        """
        if self._model is None:
            match await self._request("GET", "/models", None):
                case {"data": [{"id": str(name)}, *_]}:
                    self._model = name
                case _:
                    raise ModelError(
                        f"{self._url}/models names no model: is this the address of a vLLM server?"
                    )
        return self._model

    def _read(self, choice: dict[str, Any]) -> TokenOutput:
        tokens = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if tokens is None or logprobs is None or len(tokens) != len(logprobs) or None in logprobs:
            raise ModelError(
                f"{self._url} does not return the tokens that it sampled, and their text must not be tokenised again. "
                "Use a server with `return_token_ids`, such as vLLM's."
            )
        # VeRL calls `aborted` what vLLM calls `abort`.
        aborted = choice.get("finish_reason") == "abort"
        return TokenOutput(
            token_ids=tokens, log_probs=logprobs, stop_reason="aborted" if aborted else "completed"
        )

    async def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            return await request_json(
                await _HTTP.get(),
                method,
                self._url + path,
                key=self._key,
                body=body,
                time_limits=_TIME_LIMITS,
            )
        except RequestFailed as error:
            raise ModelError(f"{self._url}{path}: {error}") from error
        except ValueError as error:
            raise ModelError(
                f"{self._url}{path} sent no JSON: is this the address of a vLLM server?"
            ) from error
