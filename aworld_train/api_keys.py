"""Keys of language models: read from the environment, sent as a bearer, and shown to nobody."""

import os


def key_in(variable: str) -> str:
    """The key in an environment variable, without the line break that a file left there; empty if there is none."""
    return os.environ.get(variable, "").strip()


def can_be_sent(key: str) -> bool:
    """Whether a key has only characters that a header may have."""
    return key.isascii() and key.isprintable()


def bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def without_key(key: str | None, text: str) -> str:
    """A text in which a server may have repeated what it was sent, without the key."""
    return text.replace(key, "***") if key else text
