r"""The last box that TeX draws around an answer: ``\boxed{...}``, ``\fbox{...}``, or ``\boxed 5``.

The complete box that begins last wins: a truncated box does not replace a complete one, and of nested boxes the last
counts. An empty box is a mention ("put it into \boxed{}") and not an answer.
"""

import re

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


def last_box(text: str) -> str | None:
    """The content of the last complete box; None if there is none."""
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
