"""One request to a judge: what it said and what that cost, or why there is no answer and whether to ask again.

Nothing that a server does gets out of here as anything but `Unanswered`, and no key is in what it says. All of a
request, to the last byte of its answer, has one time limit and one limit of size.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx

from aworld_train.api_keys import bearer, can_be_sent, key_in, without_key
from aworld_train.network import is_near
from aworld_train.reward.settings import JudgeModel

_MAX_BYTES = 4 << 20
_MAX_TOKENS = 10**9  # a server that claims more of one request has not counted
_SHOWN = 200  # characters of what a server said
# Too early, too many, or something that went wrong on the server's side (RFC 9110, RFC 8470, RFC 6585).
_WORTH_ASKING_AGAIN = frozenset({408, 409, 425, 429})
_BAD_REQUEST = frozenset({400, 422})
_ABOUT_THE_FORMAT = re.compile(
    r"response_format|json_schema|structured.?output|guided|grammar", re.IGNORECASE
)


class Unanswered(Exception):
    """A judge gave no answer.

    Attributes:
        again: Whether it may answer when it is asked again.
        wait: Seconds that the server asked to wait.
        about_format: Whether it refused to give a structured answer.
    """

    def __init__(self, why: str, *, again: bool, wait: float = 0.0, about_format: bool = False):
        super().__init__(why)
        self.again = again
        self.wait = wait
        self.about_format = about_format


@dataclass(frozen=True)
class Reply:
    """What a judge said.

    Attributes:
        text: Its words.
        cut_off: Why they are not all of them; empty if they are.
        prompt_tokens: Tokens it read, as far as it says.
        completion_tokens: Tokens it wrote, as far as it says.
    """

    text: str
    cut_off: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Client:
    """A judge at its endpoint."""

    model: JudgeModel
    session: aiohttp.ClientSession

    async def ask(self, body: Mapping[str, Any], seconds: float) -> Reply:
        """What it says to a chat completion request.

        Raises:
            Unanswered: Nothing that could be read as a chat completion, in time.
        """
        key = self._key()
        try:
            async with (
                asyncio.timeout(seconds),
                self.session.post(
                    f"{self.model.url.rstrip('/')}/chat/completions",
                    data=json.dumps(body).encode(),
                    headers={"Content-Type": "application/json", **bearer(key)},
                    proxy=_proxy_for(self.model.url),
                    allow_redirects=False,
                ) as response,
            ):
                sent = await _read(response)
        except TimeoutError as error:
            raise Unanswered(f"no answer in {seconds:.3g} s", again=True) from error
        except (aiohttp.InvalidURL, httpx.InvalidURL) as error:
            raise Unanswered(f"{self.model.url!r} is no URL", again=False) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = without_key(key, f"{type(error).__name__} {error}")[:_SHOWN]
            raise Unanswered(said, again=True) from error
        if response.status != 200:
            raise _refusal(response.status, response.headers, without_key(key, _decoded(sent)))
        try:
            return _reply(json.loads(sent))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            beginning = without_key(key, _decoded(sent))[:_SHOWN]
            raise Unanswered(f"it sent no chat completion but {beginning!r}", again=True) from error

    def without_key(self, text: str) -> str:
        """A text of this judge, without the key that it was sent."""
        return without_key(self._key(), text)

    def check_key(self) -> None:
        """See that it has the key it needs.

        Raises:
            Unanswered: It has none, or one that cannot be sent.
        """
        self._key()

    def _key(self) -> str | None:
        variable = self.model.key_variable
        if not variable:
            return None
        key = key_in(variable)
        if not key:
            raise Unanswered(f"it needs its key in the environment variable {variable}", again=False)
        if not can_be_sent(key):
            raise Unanswered(f"what is in {variable} cannot be sent as a key", again=False)
        return key


async def _read(response: aiohttp.ClientResponse) -> bytes:
    sent = bytearray()
    async for chunk in response.content.iter_any():
        sent += chunk
        if len(sent) > _MAX_BYTES:
            raise Unanswered(f"it sent more than {_MAX_BYTES >> 20} MiB", again=False)
    return bytes(sent)


def _refusal(status: int, headers: Mapping[str, str], said: str) -> Unanswered:
    return Unanswered(
        f"HTTP {status} {said[:_SHOWN]!r}",
        again=status in _WORTH_ASKING_AGAIN or status >= 500,
        wait=_seconds_to_wait(headers.get("Retry-After", "")),
        about_format=status in _BAD_REQUEST and _ABOUT_THE_FORMAT.search(said) is not None,
    )


def _seconds_to_wait(said: str) -> float:
    """What ``Retry-After`` means, in seconds or as a date (RFC 9110, 10.2.3); 0 if it means nothing."""
    try:
        seconds = float(said)
    except ValueError:
        try:
            date = parsedate_to_datetime(said)
        except (ValueError, OverflowError):
            return 0.0
        seconds = (date - datetime.now(UTC if date.tzinfo else None)).total_seconds()
    return max(seconds, 0.0) if isfinite(seconds) else 0.0


def _reply(data: Any) -> Reply:
    choice = data["choices"][0]
    text = choice["message"]["content"]
    if not (text is None or isinstance(text, str)):
        raise TypeError("the content is no text")
    finish = choice.get("finish_reason")
    usage = data.get("usage")
    return Reply(
        text=text or "",
        cut_off=finish if finish in ("length", "content_filter") else "",
        prompt_tokens=_tokens(usage, "prompt_tokens"),
        completion_tokens=_tokens(usage, "completion_tokens"),
    )


def _tokens(usage: Any, name: str) -> int:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and 0 < count <= _MAX_TOKENS else 0


def _decoded(sent: bytes) -> str:
    return sent.decode(errors="replace")


@cache
def _proxy_for(url: str) -> str | None:
    """The proxy that the environment has for an address, if it is not this machine or its network."""
    parts = urlsplit(url)
    if is_near(url) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
