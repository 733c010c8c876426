r"""Extracting the answer from the assistant's text by the row's answer schema.

Only text outside thinking counts. The last complete answer wins; a truncated one after it does not replace it. Each
schema reads any text in linear time.

===================  =====================================================================================
``answer``           The last complete ``<answer>...</answer>``, in letters of any case.
``boxed``            The last complete ``\boxed{...}`` or ``\fbox{...}``, or ``\boxed 5``; of nested boxes the last.
``json:PATH``        The value at ``PATH`` (``answer.value``, ``results[0].x``) of the last JSON value that has it.
``regex:PATTERN``    The last match of an RE2 pattern: its group ``answer``, else its first group, else all of it.
``last_line``        The last line that is not blank.
===================  =====================================================================================
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from aworld_train.errors import RewardError, nearest
from aworld_train.reward.assistant_text import outside_thinking
from aworld_train.reward.json_values import last_at, parse_path

PLAIN_SCHEMAS = ("answer", "boxed", "last_line")
SCHEMAS_WITH_ARGUMENT = {"json": "PATH", "regex": "PATTERN"}

_TAG = re.compile(r"<(?P<closes>/?)answer\s*+>", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n?|\n")

_Finder = Callable[[str], str | None]
# A box with its brace; a box without one, whose content must look like an answer (a number or a capital letter),
# because prose mentions "the \boxed command"; an escaped character; a brace. Two backslashes before the name occur
# where a backslash was escaped twice.
_TOKEN = re.compile(
    r"\\{1,2}(?:boxed|fbox)(?:[ \t\r\n]*+(?P<box>\{)"
    r"|[ \t]*+(?P<bare>[-+−]?\.?[0-9][^\s{}$\\]*+|(?<=[ \t])[A-Z](?![A-Za-z])))"
    r"|\\."
    r"|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)
MAX_SEARCHED = 20_000
"""Last characters that a pattern is searched in: finding all matches can take quadratic time."""


def extract(text: str, answer_schema: str) -> str | None:
    """The answer in the assistant's text, without surrounding space; None if there is none.

    Raises RewardError if the schema does not exist, or its path or pattern is faulty.
    """
    find = _finder(answer_schema)
    for piece in reversed(outside_thinking(text)):
        answer = find(piece)
        if answer is not None:
            return answer.strip()
    return None


def check_schema_name(answer_schema: str) -> None:
    """Check that there is such a schema and that it can be read, before anything is scored."""
    _finder(answer_schema)


@lru_cache(maxsize=256)
def _finder(answer_schema: str) -> _Finder:
    plain = {"answer": _last_tagged, "boxed": last_box, "last_line": _last_line}
    if answer_schema in plain:
        return plain[answer_schema]
    name, colon, argument = answer_schema.partition(":")
    if name == "json" and argument:
        return partial(last_at, path=parse_path(argument))
    if name == "regex" and argument:
        return partial(last_match, pattern=compile_pattern(argument))
    if name in SCHEMAS_WITH_ARGUMENT:
        raise RewardError(
            f"The answer schema {answer_schema!r} lacks what to look for: write {name}:{SCHEMAS_WITH_ARGUMENT[name]}."
        )
    if colon and name in PLAIN_SCHEMAS:
        raise RewardError(
            f"The answer schema {name!r} takes no argument: write {name}, not {answer_schema!r}."
        )
    raise RewardError(_unknown(name, answer_schema))


def _unknown(name: str, answer_schema: str) -> str:
    forms = {plain: plain for plain in PLAIN_SCHEMAS} | {
        key: f"{key}:{argument}" for key, argument in SCHEMAS_WITH_ARGUMENT.items()
    }
    near = nearest(name.lower(), set(forms))
    hint = f" Did you mean {forms[near]!r}?" if near else ""
    return f"Unknown answer schema {answer_schema!r}.{hint} There are {', '.join(forms.values())}."


def _last_tagged(text: str) -> str | None:
    answer: str | None = None
    start: int | None = None
    for tag in _TAG.finditer(text):
        if not tag["closes"]:
            start = tag.end()
        elif start is not None:
            answer, start = text[start : tag.start()], None
    return answer


def _last_line(text: str) -> str | None:
    text = text.rstrip()
    return _LINE_END.split(text)[-1] if text else None


def last_box(text: str) -> str | None:
    """The content of the complete box that begins last; None if there is none.

    A truncated box does not replace a complete one, and of nested boxes the last counts. An empty box is a mention
    ("put it into \\boxed{}") and not an answer.
    """
    answer: str | None = None
    answer_start = -1
    starts: list[int] = []  # where a box's content begins, or -1 for a brace that does not belong to a box
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "box":
                starts.append(token.end())
            case "open":
                starts.append(-1)
            case "close" if starts:
                start = starts.pop()
                content = text[start : token.start()].strip() if start > answer_start else ""
                if content:
                    answer, answer_start = content, start
            case "bare":
                answer, answer_start = token["bare"].rstrip(".,;:!?)"), token.start("bare")
    return answer


def compile_pattern(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        detail = error.args[0] if error.args else error
        cause = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(error)
        raise RewardError(
            f"The pattern of the answer schema {'regex:' + pattern!r} cannot be read: {cause}. It is an RE2 pattern, "
            "which has no backreferences and no looking ahead or behind; see https://github.com/google/re2/wiki/Syntax."
        ) from error


def last_match(text: str, pattern: Any) -> str | None:
    """The group ``answer``, else the first group, else all of the last match whose group is not empty; else None."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # RE2 cannot read a lone surrogate
    group = pattern.groupindex.get("answer", min(1, pattern.groups))
    answer: str | None = None
    for match in pattern.finditer(text, max(0, len(text) - MAX_SEARCHED)):
        text_of_group = match.group(group)
        answer = text_of_group or answer
    return answer
