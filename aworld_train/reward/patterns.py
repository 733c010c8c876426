"""The last match of a regular expression, in linear time: RE2 knows no pattern that a text can make slow.

Looking for *all* matches can still take quadratic time, each of them reading on to the end. So only the last
``MAX_SEARCHED`` characters of a piece of text are searched, where final answers stand.
"""

from typing import Any

from aworld_train.errors import RewardError

MAX_SEARCHED = 20_000


def compile_pattern(pattern: str) -> Any:
    """An RE2 pattern.

    Raises:
        RewardError: RE2 cannot read it, as it cannot read backreferences and looking ahead or behind.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0] if error.args else error
        cause = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(error)
        raise RewardError(
            f"The pattern of the answer schema {'regex:' + pattern!r} cannot be read: {cause}. It is an RE2 pattern, "
            "which has no backreferences and no looking ahead or behind; see https://github.com/google/re2/wiki/Syntax."
        ) from error


def last_match(text: str, pattern: Any) -> str | None:
    """The group ``answer``, else the first group, else all of the last match whose group took part; else None."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate is no text for RE2
    group = pattern.groupindex.get("answer", min(1, pattern.groups))
    answer: str | None = None
    for match in pattern.finditer(text, max(0, len(text) - MAX_SEARCHED)):
        found = match.group(group)
        answer = answer if found is None else found
    return answer
