"""A language model behind an OpenAI-compatible endpoint, for tools that ask one.

Each tool server has variables of its own, by prefix: ``CODE_LLM_BASE_URL``, ``CODE_LLM_API_KEY``,
``CODE_LLM_MODEL_NAME``. A busy or failing endpoint is asked again, within the time limit.
"""

import asyncio
import os
import random
from typing import Any

import aiohttp
from mcp.server.fastmcp.exceptions import ToolError

SECONDS = 180.0
_TRIES = 4
_FIRST_PAUSE = 0.5
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


async def chat(
    prefix: str,
    messages: list[dict[str, Any]],
    *,
    temperature: float | None = None,
    seconds: float = SECONDS,
    **more: Any,
) -> dict[str, Any]:
    """The message that the model answers with, as the endpoint gave it (``content``, maybe ``tool_calls``).

    Args:
        prefix: Of the variables: ``CODE_LLM``.
        messages: In OpenAI's form; content may be parts with images.
        more: Other keys of the request, ``tools`` for instance.

    Raises:
        ToolError: A variable is missing, or the endpoint did not answer in time, or refused.
    """
    base, key, model = (_variable(f"{prefix}_{name}") for name in ("BASE_URL", "API_KEY", "MODEL_NAME"))
    body = {"model": model, "messages": messages, **more}
    if temperature is not None:
        body["temperature"] = temperature
    url = f"{base.rstrip('/')}/chat/completions"
    try:
        async with asyncio.timeout(seconds), aiohttp.ClientSession() as http:
            answer = await _post(http, url, key, body)
    except TimeoutError:
        raise ToolError(
            f"The model {model} ({prefix}_BASE_URL) did not answer within {seconds:g} seconds."
        ) from None
    try:
        message = answer["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        raise ToolError(f"The model {model} ({prefix}_BASE_URL) gave an answer without a message.") from None
    return dict(message)


async def ask(prefix: str, messages: list[dict[str, Any]], **more: Any) -> str:
    """The text that the model answers with; arguments and errors as for `chat`."""
    text = (await chat(prefix, messages, **more)).get("content")
    if not isinstance(text, str) or not text.strip():
        raise ToolError(f"The model of {prefix}_MODEL_NAME gave an empty answer; ask again, or another way.")
    return text.strip()


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ToolError(
            f"{name} is not set: this tool needs a language model. Set it in the --env-file of `env up`."
        )
    return value


async def _post(http: aiohttp.ClientSession, url: str, key: str, body: dict[str, Any]) -> Any:
    for attempt in range(_TRIES):
        last = attempt == _TRIES - 1
        try:
            async with http.post(url, json=body, headers={"Authorization": f"Bearer {key}"}) as response:
                if response.status == 200:
                    return await response.json(content_type=None)
                said = (await response.text())[:300].replace(key, "***")
                if response.status not in _AGAIN or last:
                    raise ToolError(f"The model's endpoint answered {response.status}: {said}")
        except (aiohttp.ClientError, ValueError) as error:
            if last:
                raise ToolError(f"The model's endpoint cannot be used: {error}.") from error
        await asyncio.sleep(_FIRST_PAUSE * 2**attempt * random.uniform(0.75, 1.25))
    raise AssertionError("the last attempt returns or raises")
