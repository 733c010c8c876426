"""Keeps secrets out of the store: values of environment variables, and what ``store.redact`` describes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aworld_train.masking import mask

REDACTED = "[redacted]"


class Redactor:
    """Replaces secrets in texts; raises ValueError for a pattern that cannot be read.

    Patterns are RE2's, whose time is linear in the text: texts are written by models and tools.
    """

    def __init__(self, patterns: Sequence[str] = ()):
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def text(self, text: str) -> str:
        """A text without secrets, and without what UTF-8 and PostgreSQL cannot hold."""
        if not text:
            return text
        text = mask(storable(text))
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return str(text)

    def tree(self, value: Any) -> Any:
        """Plain data with every text redacted, except keys, and None for numbers that JSON lacks."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, dict):
            return {storable(str(key)): self.tree(item) for key, item in value.items()}
        return [self.tree(item) for item in value] if isinstance(value, list | tuple) else value


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A struct, or a tuple or dict of them, with every text in it changed, except roles and digests."""
    if type(value) is str:
        return change(value)
    if isinstance(value, tuple):
        return tuple([map_texts(item, change) for item in value])
    if isinstance(value, dict):
        return {change(name): map_texts(item, change) for name, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    names = [name for name in value.__struct_fields__ if name not in ("role", "digest")]
    return msgspec.structs.replace(value, **{name: map_texts(getattr(value, name), change) for name in names})


def storable(text: str) -> str:
    """A text in which halves of surrogate pairs are `?` and NUL is U+FFFD: databases and UTF-8 hold neither."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\ufffd")


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression of RE2: {error}") from None
