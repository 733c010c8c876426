"""A language model behind an OpenAI-compatible endpoint, for tools that ask one.

Each tool server has variables of its own, by prefix: ``CODE_LLM_BASE_URL``, ``CODE_LLM_API_KEY``,
``CODE_LLM_MODEL_NAME``. A busy or failing endpoint is asked again within the time limit. The key is in no error.
"""

import asyncio
import contextlib
import email.utils
import json
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from mcp.server.fastmcp.exceptions import ToolError
from yarl import URL

from gaia_tools import upstream
from gaia_tools.addresses import Refused

SECONDS = 180.0
_TRIES = 5
_FIRST_PAUSE = 0.5
_MAX_BYTES = 32 << 20
# RFC 9110, and what providers use for "overloaded" (529) and their proxies for "the origin did not answer" (520-524).
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_WHAT_TO_DO = {
    400: "the request was not understood",
    401: "the key is not accepted: check {prefix}_API_KEY",
    403: "the key may not use this: check {prefix}_API_KEY and {prefix}_MODEL_NAME",
    404: "it is not there: check {prefix}_BASE_URL (it ends in /v1 as a rule) and {prefix}_MODEL_NAME",
    413: "the request is too large for it",
    429: "it is asked too often, or what was paid for is used up",
}

_Body = Callable[[], dict[str, Any]]
"""The arguments of a request that say what is sent; called anew for each try."""


@dataclass(frozen=True)
class Reply:
    """What a model answered; ``text`` is without its ``reasoning``."""

    text: str
    reasoning: str
    model: str
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""

    def described(self) -> dict[str, Any]:
        return {"model": self.model, "usage": self.usage, "finish_reason": self.finish_reason}


async def chat(
    prefix: str,
    messages: list[dict[str, Any]],
    *,
    temperature: float | None = None,
    seconds: float = SECONDS,
    **more: Any,
) -> dict[str, Any]:
    """The message that the model answers with, as the endpoint gave it (``content``, maybe ``tool_calls``).

    ``temperature`` is left out where the model takes none but its own.
    """
    return _message(await _completion(prefix, messages, temperature, seconds, more), prefix)


async def reply(
    prefix: str,
    messages: list[dict[str, Any]],
    *,
    temperature: float | None = None,
    seconds: float = SECONDS,
    **more: Any,
) -> Reply:
    """What the model answers, its reasoning apart; arguments and errors as for `chat`."""
    answer = await _completion(prefix, messages, temperature, seconds, more)
    message = _message(answer, prefix)
    text, reasoning = without_reasoning(_text(message.get("content")))
    stated = message.get("reasoning_content") or message.get("reasoning")
    finish_reason = str(answer["choices"][0].get("finish_reason") or "")
    if not text:
        cause = "its limit of tokens was reached before" if finish_reason == "length" else "ask again"
        raise ToolError(
            f"The model of {prefix}_MODEL_NAME gave an empty answer: {cause}, or ask another way."
        )
    usage = answer.get("usage")
    return Reply(
        text,
        reasoning or (stated.strip() if isinstance(stated, str) else ""),
        str(answer.get("model") or _variable(f"{prefix}_MODEL_NAME")),
        usage if isinstance(usage, dict) else {},
        finish_reason,
    )


async def ask(prefix: str, messages: list[dict[str, Any]], **more: Any) -> str:
    return (await reply(prefix, messages, **more)).text


async def transcribe(prefix: str, path: Path, *, seconds: float = SECONDS) -> dict[str, Any]:
    model = _variable(f"{prefix}_MODEL_NAME")
    content = await asyncio.to_thread(path.read_bytes)

    def form() -> dict[str, Any]:
        data = aiohttp.FormData({"model": model, "response_format": "json"})
        data.add_field("file", content, filename=path.name, content_type="application/octet-stream")
        return {"data": data}

    answer = await _request(prefix, "audio/transcriptions", form, seconds)
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        raise ToolError(f"The model {model} ({prefix}_BASE_URL) gave an answer without a text.")
    return answer


def is_configured(prefix: str) -> bool:
    return all(
        os.environ.get(f"{prefix}_{name}", "").strip() for name in ("BASE_URL", "API_KEY", "MODEL_NAME")
    )


def check_configured(prefix: str) -> None:
    for name in ("BASE_URL", "API_KEY", "MODEL_NAME"):
        _variable(f"{prefix}_{name}")


def without_reasoning(text: str) -> tuple[str, str]:
    """A model's text without its reasoning, and the reasoning, which ends at ``</think>``.

    ``<think>`` may be missing, since templates put it into the prompt, and ``</think>`` if the answer was cut off.
    """
    before, marked, after = text.rpartition("</think>")
    if not marked:
        before, marked, cut_off = text.partition("<think>")
        if not marked or before.strip():
            return text.strip(), ""
        return "", cut_off.strip()
    return after.strip(), re.sub(r"</?think>", "", before).strip()


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _message(answer: Any, prefix: str) -> dict[str, Any]:
    with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
        return dict(answer["choices"][0]["message"])
    raise ToolError(f"The model of {prefix}_MODEL_NAME ({prefix}_BASE_URL) gave an answer without a message.")


async def _completion(
    prefix: str,
    messages: list[dict[str, Any]],
    temperature: float | None,
    seconds: float,
    more: dict[str, Any],
) -> Any:
    body = {"model": _variable(f"{prefix}_MODEL_NAME"), "messages": messages, **more}
    if temperature is not None:
        body["temperature"] = temperature
    return await _request(prefix, "chat/completions", lambda: {"json": body}, seconds)


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ToolError(f"{name} is not set: this environment has no model for this tool. Go on without it.")
    return value


async def _request(prefix: str, path: str, body: _Body, seconds: float) -> Any:
    base, key, model = (_variable(f"{prefix}_{name}") for name in ("BASE_URL", "API_KEY", "MODEL_NAME"))
    try:
        async with (
            asyncio.timeout(seconds) as limit,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http,
        ):
            return await _post(http, f"{base.rstrip('/')}/{path}", prefix, key, body, limit)
    except TimeoutError:
        raise ToolError(
            f"The model {model} ({prefix}_BASE_URL) did not answer within {seconds:g} seconds."
        ) from None


async def _post(
    http: aiohttp.ClientSession, url: str, prefix: str, key: str, body: _Body, limit: asyncio.Timeout
) -> Any:
    authorised = {"Authorization": f"Bearer {key}"}
    for attempt in range(_TRIES):
        last = attempt == _TRIES - 1
        pause = _FIRST_PAUSE * 2**attempt * random.uniform(0.75, 1.25)
        sent = body()
        try:
            async with await upstream.request(http, "POST", URL(url), headers=authorised, **sent) as response:
                status, wait = response.status, response.headers.get("Retry-After")
                content = await _read_all(response)
        except Refused as error:
            raise ToolError(f"The model's endpoint cannot be used ({prefix}_BASE_URL): {error}") from None
        except (aiohttp.ClientError, ValueError) as error:
            if last or not isinstance(error, aiohttp.ClientError) or isinstance(error, aiohttp.InvalidURL):
                shown = (str(error) or type(error).__name__).replace(key, "***")
                raise ToolError(
                    f"The model's endpoint cannot be used ({prefix}_BASE_URL): {shown}."
                ) from None
        else:
            if status == 200:
                return _decoded(content, prefix, key)
            shown = content[:300].decode(errors="replace").replace(key, "***")
            if status == 400 and "temperature" in shown and "temperature" in sent.get("json", {}):
                del sent["json"]["temperature"]  # some models take no other than their own
                continue
            hint = _WHAT_TO_DO.get(status, "it failed").format(prefix=prefix)
            refused = ToolError(f"The model's endpoint answered {status}, {hint}. It says: {shown}")
            if last or status not in _AGAIN:
                raise refused
            if (seconds := _retry_after(wait)) is not None:
                pause = max(seconds, pause)
                if asyncio.get_running_loop().time() + pause >= (limit.when() or float("inf")):
                    raise ToolError(f"{refused} It wants to be asked again in {seconds:g} seconds only.")
        await asyncio.sleep(pause)
    raise ToolError(f"The model's endpoint ({prefix}_BASE_URL) did not answer in {_TRIES} tries.")


async def _read_all(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        content += chunk
        if len(content) > _MAX_BYTES:
            raise ValueError(f"its answer has more than {_MAX_BYTES >> 20} MB")
    return bytes(content)


def _decoded(content: bytes, prefix: str, key: str) -> Any:
    try:
        answer = json.loads(content)
    except ValueError:
        shown = content[:200].decode(errors="replace").replace(key, "***")
        raise ToolError(
            f"The model's endpoint ({prefix}_BASE_URL) gave an answer that is not valid JSON: {shown}"
        ) from None
    if isinstance(answer, dict) and answer.get("error") and not answer.get("choices"):
        shown = json.dumps(answer["error"])[:300].replace(key, "***")
        raise ToolError(f"The model's endpoint ({prefix}_BASE_URL) gave an error: {shown}")
    return answer


def _retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header (RFC 9110: seconds, or a date) asks for."""
    if not value:
        return None
    with contextlib.suppress(ValueError):
        return max(float(value), 0.0)
    with contextlib.suppress(ValueError, TypeError):
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    return None
