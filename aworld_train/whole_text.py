"""Text as tokenizers and UTF-8 can hold it: tools cut emojis in two, and JSON can hold half of a surrogate pair."""

import json
from typing import Any


def whole_text(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair; two halves that follow each other become a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def load_whole(text: str) -> Any:
    """The JSON value in ``text``, with whole text; raises as ``json.loads``."""
    value = json.loads(text)
    if text.isascii() and "\\u" not in text:
        return value
    dumped = json.dumps(value, ensure_ascii=False)
    whole = whole_text(dumped)
    return value if whole is dumped else json.loads(whole)
