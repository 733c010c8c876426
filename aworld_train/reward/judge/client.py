"""One request to a judge: its completion and token counts, or why there is none and whether a retry may help.

Whatever a server does, a request raises only `JudgeRequestFailure`, and no API key is in its message. The whole
request, to the last byte of the response, has one time limit and one size limit.

The openai SDK (3.52) was measured and not taken: 1.5 ms of CPU time per request (here 0.2 ms), 0.45 s to import (here
0.25 s), and no size limit for responses. Its own retries, which the rate limit of the panel would not see, and its
following of redirects would have to be turned off.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx

from aworld_train.api_keys import bearer, can_be_sent, key_in, without_key
from aworld_train.errors import UsageError
from aworld_train.network import proxy_for, retry_after_seconds, without_passwords
from aworld_train.reward.settings import JudgeModel

_MAX_BYTES = 4 << 20
_MAX_TOKENS = 10**9  # a larger count in one response is an error of the server
_MAX_QUOTED = 200  # characters of a response in a message
# Too early, too many, or something that went wrong on the server's side (RFC 9110, RFC 8470, RFC 6585).
_RETRYABLE = frozenset({408, 409, 425, 429})
_BAD_REQUEST = frozenset({400, 413, 422})
_ABOUT_THE_FORMAT = re.compile(
    r"response_format|json_schema|structured.?output|guided|grammar", re.IGNORECASE
)


class JudgeRequestFailure(Exception):
    """A request to a judge gave no completion.

    Attributes:
        retryable: Whether another attempt may succeed.
        retry_after: Seconds that the server asked to wait.
        format_refused: Whether the server refused the structured output format.
        content_refused: Whether the server may have refused the texts, as filters and limits of length do.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after: float = 0.0,
        format_refused: bool = False,
        content_refused: bool = False,
    ):
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.format_refused = format_refused
        self.content_refused = content_refused


@dataclass(frozen=True)
class JudgeReply:
    """A judge's chat completion.

    Attributes:
        text: Its text.
        truncated_by: The finish reason that cut the text off; empty if it is complete.
        prompt_tokens: Tokens it read; 0 where the server does not say.
        completion_tokens: Tokens it wrote; 0 where the server does not say.
    """

    text: str
    truncated_by: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class JudgeClient:
    """A client for one judge's endpoint."""

    model: JudgeModel
    session: aiohttp.ClientSession

    async def complete(self, body: Mapping[str, Any], seconds: float) -> JudgeReply:
        """The completion for a chat completion request.

        Raises:
            JudgeRequestFailure: No readable chat completion within so many seconds.
        """
        key = self._key()
        try:
            async with (
                asyncio.timeout(seconds),
                self.session.post(
                    f"{self.model.url.rstrip('/')}/chat/completions",
                    data=json.dumps(body).encode(),
                    headers={"Content-Type": "application/json", **bearer(key)},
                    proxy=proxy_for(self.model.url),
                    allow_redirects=False,
                ) as response,
            ):
                content = await _read(response)
        except TimeoutError as error:
            raise JudgeRequestFailure(f"no answer in {seconds:.3g} s", retryable=True) from error
        except UsageError as error:
            raise JudgeRequestFailure(error.message, retryable=False) from error
        except (aiohttp.InvalidURL, httpx.InvalidURL) as error:
            raise JudgeRequestFailure(f"{self.model.url!r} is no URL", retryable=False) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            message = without_passwords(without_key(key, f"{type(error).__name__} {error}"))
            raise JudgeRequestFailure(message[:_MAX_QUOTED], retryable=True) from error
        if response.status != 200:
            raise _refusal(response.status, response.headers, without_key(key, _decoded(content)))
        try:
            return _completion(json.loads(content))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            beginning = without_key(key, _decoded(content))[:_MAX_QUOTED]
            raise JudgeRequestFailure(
                f"it sent no chat completion but {beginning!r}", retryable=True
            ) from error

    def without_key(self, text: str) -> str:
        """The text without this judge's API key, which a server may have repeated."""
        return without_key(self._key(), text)

    def check_key(self) -> None:
        """Check that the API key which the judge needs is set.

        Raises:
            JudgeRequestFailure: It is missing, or has characters that no header may have.
        """
        self._key()

    def _key(self) -> str | None:
        variable = self.model.key_variable
        if not variable:
            return None
        key = key_in(variable)
        if not key:
            raise JudgeRequestFailure(
                f"it needs its key in the environment variable {variable}", retryable=False
            )
        if not can_be_sent(key):
            raise JudgeRequestFailure(f"what is in {variable} cannot be sent as a key", retryable=False)
        return key


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > _MAX_BYTES:
            raise JudgeRequestFailure(f"it sent more than {_MAX_BYTES >> 20} MiB", retryable=False)
    return bytes(content)


def _refusal(status: int, headers: Mapping[str, str], text: str) -> JudgeRequestFailure:
    return JudgeRequestFailure(
        f"HTTP {status} {text[:_MAX_QUOTED]!r}",
        retryable=status in _RETRYABLE or status >= 500,
        retry_after=retry_after_seconds(headers.get("Retry-After", "")),
        format_refused=status in _BAD_REQUEST and _ABOUT_THE_FORMAT.search(text) is not None,
        content_refused=status in _BAD_REQUEST,
    )


def _completion(data: Any) -> JudgeReply:
    choice = data["choices"][0]
    text = choice["message"]["content"]
    if not (text is None or isinstance(text, str)):
        raise TypeError("the content is no text")
    finish = choice.get("finish_reason")
    usage = data.get("usage")
    return JudgeReply(
        text=text or "",
        truncated_by=finish if finish in ("length", "content_filter") else "",
        prompt_tokens=_tokens(usage, "prompt_tokens"),
        completion_tokens=_tokens(usage, "completion_tokens"),
    )


def _tokens(usage: Any, name: str) -> int:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 < count <= _MAX_TOKENS else 0


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")
