"""Finds the errors in VeRL's log."""

import re

from aworld_train.errors import NO_SPACE

_ERROR_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Died)\b.*")
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=[^)]*\)\s?", re.MULTILINE)
_MAX_CHARS = 500


def errors_in(log: str) -> list[str]:
    """Lines that name an error, in order, without colours and Ray's prefixes."""
    lines = [_DECORATION.sub("", line).strip() for line in log.splitlines()]
    return [line[:_MAX_CHARS] for line in lines if _ERROR_LINE.match(line) or NO_SPACE in line]
