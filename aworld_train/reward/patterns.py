"""The last match of a regular expression: RE2 has no patterns that a text can make slow.

Finding *all* matches can take quadratic time, so only the last ``MAX_SEARCHED`` characters are searched.
"""

from typing import Any

from aworld_train.errors import RewardError

MAX_SEARCHED = 20_000


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
