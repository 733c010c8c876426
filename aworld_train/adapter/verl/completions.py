"""An inference server in place of VeRL's engine: tokens in and tokens out over its completions endpoint.

vLLM's OpenAI-compatible server takes a prompt of token ids and, asked for ``return_token_ids``, says which tokens it
sampled (docs.vllm.ai, OpenAI-compatible server). A server that does not cannot be recorded exactly and is refused.
"""

import os
from typing import Any

import httpx
from verl.workers.rollout.replica import TokenOutput

from aworld_train.env.address import is_near
from aworld_train.errors import ModelError

_SECONDS = 600.0


class CompletionsServer:
    """Samples from a served model.

    Args:
        url: Its base address, ending in ``/v1``; the key, if it needs one, is in ``OPENAI_API_KEY``.
    """

    def __init__(self, url: str):
        self._url = url.rstrip("/")
        key = os.environ.get("OPENAI_API_KEY")
        self._client = httpx.AsyncClient(
            timeout=_SECONDS,
            trust_env=not is_near(url),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        self._model: str | None = None

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        """As VeRL's servers do.

        Raises:
            ModelError: the server cannot be reached, or does not tell tokens.
        """
        model = await self._served_model()
        choice = (
            await self._ask(
                "POST",
                "/completions",
                {
                    **sampling_params,
                    "model": model,
                    "prompt": prompt_ids,
                    "logprobs": 0,
                    "return_token_ids": True,
                    "skip_special_tokens": False,
                },
            )
        )["choices"][0]
        tokens = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if tokens is None or logprobs is None or len(tokens) != len(logprobs):
            raise ModelError(
                f"{self._url} does not tell which tokens it sampled, and nothing here is ever tokenised again. Use a "
                "server with `return_token_ids`, such as vLLM's."
            )
        return TokenOutput(token_ids=tokens, log_probs=logprobs, stop_reason="completed")

    async def _served_model(self) -> str:
        if self._model is None:
            served = (await self._ask("GET", "/models", None))["data"]
            self._model = str(served[0]["id"])
        return self._model

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            response = await self._client.request(method, self._url + path, json=body)
            response.raise_for_status()
            return response.json()
        except httpx.HTTPStatusError as error:
            said = error.response.text[:300]
            raise ModelError(f"{self._url}{path} answered {error.response.status_code}: {said}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise ModelError(f"{self._url}{path}: {type(error).__name__} {error}") from error
