"""Reads what a tool server sends within limits, since the session that it serves may have taken it over."""

from typing import Any

import aiohttp

from aworld_train.whole_text import load_whole

MAX_BYTES = 32 << 20  # after decompression; room for one image of the most bytes, in Base64
MAX_VALUES = 2 << 20  # in one answer: an empty array is 3 bytes of JSON and 64 of memory
MAX_DEPTH = 100  # nesting of arguments and answers; parsers fail at some hundreds of levels


class AnswerExceeds(Exception):
    """An answer is beyond a limit; the text says which, and a model can read it."""


def too_large() -> AnswerExceeds:
    return AnswerExceeds(f"the answer is larger than {MAX_BYTES >> 20} MB, ask for less at once")


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """A response's body; raises ``AnswerExceeds`` and reads no more beyond ``MAX_BYTES``."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise too_large()
    return bytes(body)


def parse(data: bytes) -> Any:
    """The JSON value in ``data``, with U+FFFD for each half of a surrogate pair.

    Raises ``AnswerExceeds``, and ``ValueError`` for what is not JSON.
    """
    if len(data) > MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise AnswerExceeds(f"the answer has more than {MAX_VALUES:,} values, ask for less at once")
    try:
        value = load_whole(data.decode("utf-8-sig", "surrogatepass"))
        if depth(value) <= MAX_DEPTH:
            return value
    except RecursionError:
        pass
    raise AnswerExceeds(f"the answer is nested more than {MAX_DEPTH} deep")


def depth(value: Any) -> int:
    """How deep arrays and objects are nested; ``RecursionError`` beyond what can be counted."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
