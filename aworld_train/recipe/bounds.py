"""Types of recipe values with the rules that each value must pass, which ``checks`` applies."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

FUNCTION_NAME = re.compile(r"[^:]+:[A-Za-z_]\w*")
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Rule:
    """``sentence`` continues "`key` ..." in the message about a value that does not pass."""

    sentence: str
    passes: Callable[[Any], bool]


_AT_LEAST_1 = Rule("must be at least 1", lambda value: value >= 1)
_ABOVE_0 = Rule("must be above 0", lambda value: value > 0)
_NOT_NEGATIVE = Rule("must not be negative", lambda value: value >= 0)
# More of anything is a slip of the pen, or does not fit into what counts it.
AT_MOST_1E9 = Rule("must be at most 1,000,000,000", lambda value: value <= 10**9)

PositiveInt = Annotated[int, _AT_LEAST_1]
Count = Annotated[int, _AT_LEAST_1, AT_MOST_1E9]
NonNegativeInt = Annotated[int, _NOT_NEGATIVE]
Interval = Annotated[int, _NOT_NEGATIVE, AT_MOST_1E9]
PositiveFloat = Annotated[float, _ABOVE_0]
NonNegativeFloat = Annotated[float, _NOT_NEGATIVE]
AboveOne = Annotated[float, Rule("must be above 1", lambda value: value > 1)]
Fraction = Annotated[float, Rule("must be above 0 and at most 1", lambda value: 0 < value <= 1)]
Repeats = Annotated[int, Rule("must be 0 (never) or at least 2", lambda value: value == 0 or value >= 2)]
Limit = Annotated[int, Rule("must be -1 (all) or at least 1", lambda value: value == -1 or value >= 1)]
TopK = Annotated[int, Rule("must be -1 (off) or at least 1", lambda value: value == -1 or value >= 1)]
Name = Annotated[str, Rule("must not be empty", lambda value: bool(value.strip()))]
WebAddress = Annotated[
    str, Rule("must begin with http:// or https://", lambda value: value.startswith(("http://", "https://")))
]
Function = Annotated[
    str,
    Rule(
        "must be `module:function` or `file.py:function`", lambda value: bool(FUNCTION_NAME.fullmatch(value))
    ),
]
FolderName = Annotated[
    str,
    Rule(
        "must be letters, digits, `.`, `_` and `-`, begin with a letter or digit, and be at most 100 long",
        lambda value: bool(_FOLDER_NAME.fullmatch(value)),
    ),
]


@cache
def rules_of(section: Any) -> dict[str, list[Rule]]:
    hints = get_type_hints(section, include_extras=True)
    return {name: list(_rules(hint)) for name, hint in hints.items()}


def _rules(hint: Any) -> Iterator[Rule]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    else:
        for option in get_args(hint):
            yield from _rules(option)
