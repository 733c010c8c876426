"""Values of the input as the texts of tasks.

A number is written as the input writes it, never rounded; a value that has no exact text makes its record unusable,
with a reason. A conversation becomes the one question that it asks, in which a mark stands for each image.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

from aworld_train.episode.images import Image, NoImage
from aworld_train.errors import DependencyMissing

NO_ANSWER = "no answer"
HIDDEN_ANSWER = "answer is hidden"
NOT_UNICODE = "not valid Unicode"

ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"}
_IGNORED_ROLES = ("assistant", "tool")
_IMAGE_PARTS = ("image_url", "input_image", "image")
_FRACTION = re.compile(r"\.(\d*?)0*(?!\d)")


class UnusableRecord(Exception):
    """A record that cannot become a task; the message is one of a few fixed reasons."""


class Query(NamedTuple):
    """What a record asks; ``images`` are the ``data:`` URIs of the images whose marks are in the user's messages.

    ``earlier`` are the messages between the system prompt and the question, as JSON; empty for none.
    """

    question: str
    system: str = ""
    images: tuple[str, ...] = ()
    earlier: str = ""

    def after_earlier(self, question: str) -> str:
        if not self.earlier:
            return question
        return "\n\n".join([*(message["content"] for message in json.loads(self.earlier)), question])


class WrittenNumber(str):
    __slots__ = ()


read_json: Callable[[str | bytes | msgspec.Raw], Any] = msgspec.json.Decoder(float_hook=WrittenNumber).decode
"""What a JSON text stands for, with the digits of its numbers; raises `ValueError` or `RecursionError`."""


def parsed_json(text: str, fault: str) -> Any:
    try:
        return json.loads(text, parse_float=WrittenNumber)
    except (ValueError, RecursionError):
        raise UnusableRecord(fault) from None


def answer_text(value: object, *, structured: bool = False) -> str:
    """The ground truth as text; where the scorer reads JSON (``structured``), lists and mappings as such."""
    text = value if type(value) is str else _scalar(value)
    if text is None and structured and isinstance(value, Mapping | list | tuple):
        try:
            text = json.dumps(value, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError):
            text = None
    if text is None:
        raise UnusableRecord(NO_ANSWER if value is None else "answer is not text or a number")
    text = text.strip()
    if not text:
        raise UnusableRecord(NO_ANSWER)
    # Leaderboards write "?" or "-" where they hide the answer.
    if not (text[0].isalnum() or any(map(str.isalnum, text))):
        raise UnusableRecord(HIDDEN_ANSWER)
    return text


def label_text(value: object, name: str) -> str:
    if value is None:
        return ""
    text = value if type(value) is str else _scalar(value)
    if text is None:
        raise UnusableRecord(f"{name} is not text or a number")
    return text.strip()


def read_query(value: object) -> Query:
    query = Query(value) if isinstance(value, str) else _conversation(value)
    if isinstance(query.question, WrittenNumber):
        raise UnusableRecord("query is not text")
    question = query.question.strip()
    if not question:
        raise UnusableRecord("no query")
    return query._replace(question=question)


def name_list(value: object, field: str) -> list[str]:
    if not value:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise UnusableRecord(f"{field} are not a list of texts")
    return [str(name) for name in names]


def without_padding(time_text: str) -> str:
    """A time of ISO 8601 without the zeros that only pad its fraction of a second to a fixed length."""
    return _FRACTION.sub(lambda match: f".{match[1]}" if match[1] else "", time_text)


def check_encodable(values: Iterable[object]) -> None:
    """Raises `UnusableRecord` where a text has half of a surrogate pair; texts from JSON and Arrow never have."""
    for value in values:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UnusableRecord(NOT_UNICODE) from None


def _conversation(value: object) -> Query:
    """The system prompt and the user's last message; with a second message of the user, also what comes before it."""
    if isinstance(value, Mapping) and {"role", "content"} <= value.keys():
        roles, contents = value["role"], value["content"]
        if isinstance(roles, list) and isinstance(contents, list) and len(roles) == len(contents):
            # `datasets` represents a list of messages as a mapping of lists.
            value = [
                {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
            ]
    if value is None:
        raise UnusableRecord("no query")
    if isinstance(value, bytes):
        raise UnusableRecord(NOT_UNICODE)
    if not isinstance(value, Sequence):
        raise UnusableRecord("query is not text")
    texts: dict[str, list[str]] = {"system": [], "user": []}
    images: dict[str, None] = {}
    for message in value:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in _IGNORED_ROLES:
            continue
        if not isinstance(role, str) or role not in ROLES:
            raise UnusableRecord("a message of the query has no known role")
        texts[ROLES[role]].append(_content(message.get("content"), images if ROLES[role] == "user" else None))
    if not texts["user"]:
        raise UnusableRecord("query has no user message")
    earlier = _earlier(value, texts["user"]) if len(texts["user"]) > 1 else ""
    return Query(texts["user"][-1], "\n\n".join(texts["system"]).strip(), tuple(images), earlier)


def _earlier(messages: Sequence[Mapping[str, object]], user_texts: Sequence[str]) -> str:
    remaining = iter(user_texts)
    earlier = []
    for message in messages:
        role = ROLES.get(str(message["role"]), str(message["role"]))
        if role == "tool":
            raise UnusableRecord("query has more than one user message, and a tool's")
        if role != "system":
            content = next(remaining) if role == "user" else _content(message.get("content"), None)
            earlier.append({"role": role, "content": content})
    if earlier.pop()["role"] != "user":
        raise UnusableRecord("query has more than one user message, and does not end with one")
    return json.dumps(earlier, ensure_ascii=False)


def _content(content: object, images: dict[str, None] | None) -> str:
    if isinstance(content, str):
        return content
    text = ""
    for part in content if isinstance(content, list) else [None]:
        if isinstance(part, Mapping) and part.get("type") in _IMAGE_PARTS:
            text += _image_mark(part, images)
            continue
        part_text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(part_text, str):
            raise UnusableRecord("a message of the query is not text")
        text += part_text
    return text


def _image_mark(part: Mapping[str, object], images: dict[str, None] | None) -> str:
    if images is None:
        raise UnusableRecord("an image of the query is not in the user's message")
    if find_spec("PIL") is None:
        raise DependencyMissing("Pillow is not installed, and a query has an image: pip install pillow")
    url = part.get("image_url")
    uri = url.get("url") if isinstance(url, Mapping) else url
    try:
        image = Image.read_uri(uri if isinstance(uri, str) else "", 0)
    except NoImage:
        raise UnusableRecord(
            "an image of the query is not a data: URI of a PNG, JPEG, WebP or GIF file, or is too large"
        ) from None
    images[str(uri)] = None
    return image.mark


def _scalar(value: object) -> str | None:
    if type(value) is int:
        return str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnusableRecord("a number is NaN or infinite")
        return repr(value).removesuffix(".0")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UnusableRecord(NOT_UNICODE) from None
    if isinstance(value, Decimal):
        # `str` writes small ones with an exponent.
        return format(value, "f") if value.is_finite() else str(value)
    if isinstance(value, date | time):
        text = value.isoformat()
        return without_padding(text) if isinstance(value, datetime | time) else text
    return str(value) if isinstance(value, int) else None


def _plain(value: object) -> str:
    text = _scalar(value)
    if text is None:
        raise TypeError
    return text
