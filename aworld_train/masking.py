"""Keeps values of environment variables out of what people and files get to see.

A recipe may refer to an environment variable (``${oc.env:NAME}``) because its value is nobody else's business. Whoever
looks such a value up hands it to ``remember``; errors, records and logs go through ``mask``, which puts the reference
where the value stands. What is remembered belongs to this process.
"""

import json
from typing import Any
from urllib.parse import urlsplit

MIN_LENGTH = 6
"""Shorter values are not looked for: they are no secrets, and stand in words where they do not belong."""

_references: dict[str, str] = {}


def remember(value: str, reference: str) -> None:
    """Have ``mask`` put ``reference`` where ``value`` stands, also where it stands quoted or as part of an address."""
    for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1], _authority(value)):
        if len(form) >= MIN_LENGTH:
            _references[form] = reference


def mask(text: str) -> str:
    """``text`` with references in place of the values that are remembered."""
    # A value may hold another one: the longer one goes first.
    for value in sorted(_references, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _references[value])
    return text


def masked(tree: Any) -> Any:
    """Plain data with every text masked; keys stay."""
    if isinstance(tree, str):
        return mask(tree)
    if isinstance(tree, dict):
        return {key: masked(value) for key, value in tree.items()}
    return [masked(value) for value in tree] if isinstance(tree, list) else tree


def _authority(value: str) -> str:
    """Host and port of an address, which messages name without the rest; empty for anything else."""
    if not value.startswith(("http://", "https://")):
        return ""
    try:
        return urlsplit(value).netloc
    except ValueError:
        return ""
