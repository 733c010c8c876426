"""Values of the input as the texts that tasks are made of.

A number is written as the input writes it, never rounded; what cannot be said exactly as text is unusable, with a
reason. Conversations become the one question they ask.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal

NO_ANSWER = "no answer"
HIDDEN_ANSWER = "answer is hidden"
NOT_UNICODE = "not valid Unicode"

ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user"}
_OTHERS = ("assistant", "tool")


class UnusableRow(Exception):
    """A row that does not become a task; the message is the reason, one of few."""


class WrittenNumber(str):
    """A number of a JSON text, as it is written there."""

    __slots__ = ()


def answer_text(value: object, *, structured: bool = False) -> str:
    """The ground truth as text.

    Args:
        value: What the input has.
        structured: Whether the scorer reads JSON, so that lists and mappings are written as such.

    Raises:
        Unusable: There is none, or it is neither text nor a number.
    """
    text = value if type(value) is str else _scalar(value)
    if text is None and structured and isinstance(value, Mapping | list | tuple):
        try:
            text = json.dumps(value, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError):
            text = None
    if text is None:
        raise UnusableRow(NO_ANSWER if value is None else "answer is not text or a number")
    text = text.strip()
    if not text:
        raise UnusableRow(NO_ANSWER)
    # What leaderboards put where the answer is kept back: "?", "-".
    if not (text[0].isalnum() or any(map(str.isalnum, text))):
        raise UnusableRow(HIDDEN_ANSWER)
    return text


def label_text(value: object, name: str) -> str:
    """A short text such as an id, a level or a scorer's name; empty where there is none.

    Raises:
        Unusable: It is neither text nor a number.
    """
    if value is None:
        return ""
    text = value if type(value) is str else _scalar(value)
    if text is None:
        raise UnusableRow(f"{name} is not text or a number")
    return text.strip()


def question_text(value: object) -> tuple[str, str]:
    """What the user asks, and the system prompt that comes before it; the latter is empty where there is none.

    Args:
        value: A text, or a list of messages with roles.

    Raises:
        Unusable: There is none, or it is not one question.
    """
    system, asked = ("", value) if isinstance(value, str) else _conversation(value)
    if isinstance(asked, WrittenNumber):
        raise UnusableRow("query is not text")
    asked = asked.strip()
    if not asked:
        raise UnusableRow("no query")
    return asked, system


def file_names(value: object) -> list[str]:
    """Names of a row's files.

    Raises:
        Unusable: They are no names.
    """
    if not value:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise UnusableRow("attachments are not names of files")
    return [str(name) for name in names]


def check_encodable(values: Iterable[object]) -> None:
    """See that texts can be written as UTF-8; those that JSON and Arrow give can.

    Raises:
        Unusable: One holds half of a surrogate pair.
    """
    for value in values:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UnusableRow(NOT_UNICODE) from None


def _conversation(value: object) -> tuple[str, str]:
    """The system prompt and the one user message of a conversation; answers in it are not shown to the agent."""
    if isinstance(value, Mapping) and {"role", "content"} <= value.keys():
        roles, contents = value["role"], value["content"]
        if isinstance(roles, list) and isinstance(contents, list) and len(roles) == len(contents):
            # How `datasets` keeps a list of messages: a mapping of lists.
            value = [
                {"role": role, "content": content} for role, content in zip(roles, contents, strict=True)
            ]
    if value is None:
        raise UnusableRow("no query")
    if isinstance(value, bytes):
        raise UnusableRow(NOT_UNICODE)
    if not isinstance(value, Sequence):
        raise UnusableRow("query is not text")
    said: dict[str, list[str]] = {"system": [], "user": []}
    for message in value:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role in _OTHERS:
            continue
        if not isinstance(role, str) or role not in ROLES:
            raise UnusableRow("a message of the query has no known role")
        said[ROLES[role]].append(_content(message.get("content")))
    if len(said["user"]) != 1:
        raise UnusableRow(
            "query has no user message" if not said["user"] else "query has more than one user message"
        )
    return "\n\n".join(said["system"]).strip(), said["user"][0]


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableRow("a message of the query is not text")
    return "".join(str(text) for text in texts)


def _scalar(value: object) -> str | None:
    if type(value) is int:
        return str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnusableRow("a number is NaN or infinite")
        return repr(value).removesuffix(".0")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UnusableRow(NOT_UNICODE) from None
    return str(value) if isinstance(value, int | Decimal | date | time) else None


def _plain(value: object) -> str:
    text = _scalar(value)
    if text is None:
        raise TypeError
    return text
