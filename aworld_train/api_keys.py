"""API keys of language models: read from the environment, sent as bearer tokens, and never shown."""

import os


def key_in(variable: str) -> str:
    """The key in an environment variable, without the line break of a key file; empty if it is not set."""
    return os.environ.get(variable, "").strip()


def can_be_sent(key: str) -> bool:
    """Whether a key has only characters that are allowed in an HTTP header."""
    return key.isascii() and key.isprintable()


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_key(key: str | None, text: str) -> str:
    """The text with the key replaced; a server may have repeated it."""
    return text.replace(key, "***") if key else text
