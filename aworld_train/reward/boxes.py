r"""The last box that TeX draws around an answer: ``\boxed{...}``, ``\fbox{...}``, or ``\boxed 5``.

Braces are counted once from left to right. Escaped ones (``\{``) are text, a box is complete when its own brace is
closed, and the complete one that begins last wins: a box that is cut off erases nothing, and of boxes inside a box
the last counts. An empty box is a mention ("put it into \boxed{}"), and no answer.
"""

import re

# A box with its brace; a box without one, whose content must look like an answer (a number or a capital letter) as
# prose speaks of "the \boxed command" too; an escaped character; a brace. Two backslashes before the name are what
# is left where a backslash was escaped once too often.
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
    begins = -1
    braces: list[int] = []  # where a box's content begins, or -1 for a brace that is none's
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "box":
                braces.append(token.end())
            case "open":
                braces.append(-1)
            case "close" if braces:
                start = braces.pop()
                content = text[start : token.start()].strip() if start > begins else ""
                if content:
                    answer, begins = content, start
            case "bare":
                answer, begins = token["bare"].rstrip(".,;:!?)"), token.start("bare")
    return answer
