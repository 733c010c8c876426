"""Keeps values of environment variables out of messages, records and logs.

Code that resolves a recipe's reference ``${oc.env:NAME}`` passes the value to ``remember``; ``mask`` replaces the value
by its reference. Remembered values are kept in this process only.
"""

import json
import re
from typing import Any
from urllib.parse import urlsplit

MIN_LENGTH = 6
"""Shorter values are not masked: they are not secrets, and occur in ordinary words by chance."""
# `max_prompt_tokens` counts tokens and `pad_token` names one: neither is a secret.
_SECRET = re.compile(
    r"(?:^|[_-])(?:token|api[_-]?key|access[_-]?key|private[_-]?key|password|passwd|secret)$", re.IGNORECASE
)
_SPECIAL_TOKEN = re.compile(
    r"(?:^|_)(?:pad|eos|bos|unk|mask|sep|cls|stop|image|video|audio)_token$", re.IGNORECASE
)

_references: dict[str, str] = {}


def is_secret_name(name: str) -> bool:
    """Whether a key or an option has a usual name of a secret."""
    return bool(_SECRET.search(name)) and not _SPECIAL_TOKEN.search(name)


def remember(value: str, reference: str) -> None:
    """Have ``mask`` replace ``value`` by ``reference``, also where it is quoted or only its host appears."""
    for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1], _authority(value)):
        if len(form) >= MIN_LENGTH:
            _references[form] = reference


def mask(text: str) -> str:
    # Longer values first, because one value may contain another.
    for value in sorted(_references, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _references[value])
    return text


def masked(tree: Any) -> Any:
    if isinstance(tree, str):
        return mask(tree)
    if isinstance(tree, dict):
        return {key: masked(value) for key, value in tree.items()}
    return [masked(value) for value in tree] if isinstance(tree, list) else tree


def _authority(value: str) -> str:
    """Host and port of an address, which messages may name alone; empty for anything else."""
    if not value.startswith(("http://", "https://")):
        return ""
    try:
        return urlsplit(value).netloc
    except ValueError:
        return ""
