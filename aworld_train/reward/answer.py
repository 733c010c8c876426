"""The default reward: is the assistant's last ``<answer>`` the right one?

Only what the assistant itself said outside its thinking can win. The agent loop hands that text over as
``extra_info["assistant_text"]``; where another loop does not, tool results are cut out of the decoded
response generously enough that nothing a tool prints, not even a closing tag, passes for the assistant's
words.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

MAX_NUMBER_CHARS = 64
RELATIVE_TOLERANCE = Fraction(1, 10**4)
LARGEST_TOLERANCE = Fraction(5, 10**3)  # half a cent: a large amount must still be right to the cent
FLOAT_NOISE = Fraction(1, 10**9)

_TAG = re.compile(r"</?(?:think|answer)>")
# What opens a tool's text in a decoded response, and what comes last before the assistant speaks again:
# ChatML turns, and the tags that Qwen's templates put inside them and that outlive special tokens.
_TOOL_TEXT = (("<|im_start|>", "<|im_start|>assistant"), ("<tool_response>", "</tool_response>"))

_PREFIX = re.compile(r"([+-]?)\s*[$€£]?\s*([+-]?)\s*")
_DECIMAL = re.compile(
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
)
_FRACTION = re.compile(r"([0-9]+)\s*/\s*([0-9]+)")


def score_answer(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, float]:
    """Score one episode; the signature is that of verl's custom reward functions.

    A number is compared by `numeric_match`, any other ground truth as text without case and spacing. In a
    task whose ``extra_info`` holds an ``expression`` a fraction is no answer: ``1/3`` to "What is 1/3?" is
    the question again.

    Args:
        data_source: The row's source; not used.
        solution_str: The decoded response, tool results included.
        ground_truth: The row's ``reward_model.ground_truth``.
        extra_info: The row's ``extra_info`` with the agent loop's extra fields; ``assistant_text`` is read
            instead of ``solution_str`` where it is there.
        **kwargs: Whatever else verl passes; not used.

    Returns:
        ``score`` and ``acc``, 1.0 for a right answer, else 0.0, and ``answered``, 1.0 if an answer was given.
    """
    info = extra_info or {}
    spoken = info.get("assistant_text")
    answer = extract_answer(spoken if isinstance(spoken, str) else without_tool_text(solution_str))
    right = answer is not None and _is_right(answer, str(ground_truth), fractions=not info.get("expression"))
    return {"score": float(right), "acc": float(right), "answered": float(answer is not None)}


def extract_answer(text: str) -> str | None:
    """The inside of the last complete ``<answer>...</answer>`` outside ``<think>...</think>``, stripped.

    A tag that is never closed takes nothing from an earlier answer; thinking that is never closed runs to the
    end; a ``</think>`` that nothing opened closes thinking that the prompt had begun. None if there is no
    answer. One pass over the text.
    """
    answer: str | None = None
    opened: int | None = None
    thinking = False
    for tag in _TAG.finditer(text):
        match tag.group():
            case "<think>":
                thinking, opened = True, None
            case "</think>":
                if not thinking:
                    answer = None
                thinking, opened = False, None
            case "<answer>" if not thinking:
                opened = tag.end()
            case "</answer>" if opened is not None:
                answer, opened = text[opened : tag.start()].strip(), None
    return answer


def without_tool_text(response: str) -> str:
    """A decoded response without what tools returned in it.

    Everything from the first tool result to the last is cut, the assistant's words between them too: inside a
    tool result tags prove nothing, since the tool may have printed them.
    """
    for opening, closing in _TOOL_TEXT:
        start = response.find(opening)
        if start < 0:
            continue
        end = response.rfind(closing, start)
        rest = response[end + len(closing) :] if end >= 0 else ""
        response = response[:start] + "\n" + rest
    return response


def numeric_match(answer: str, truth: str) -> bool:
    """Whether two texts are the same number.

    ``$``, thousands commas, a percent sign and a full stop at the end are only dress. An integer must be met
    exactly but for the noise of floating point; any other number within a relative 1e-4, and never by more
    than half a cent. A fraction counts in lowest terms (``1/2``), so that ``48/2`` is not yet 24. Anything
    that is no single number, such as ``nan``, ``1e999`` or ``12 or 13``, matches nothing.
    """
    return _numbers_match(answer, truth, fractions=True)


def _is_right(answer: str, truth: str, *, fractions: bool) -> bool:
    if _number(truth) is not None:
        return _numbers_match(answer, truth, fractions=fractions)
    # A ground truth without a letter or digit, such as "?", stands for a hidden one: nothing is right there.
    return any(map(str.isalnum, truth)) and _plain(answer) == _plain(truth)


def _numbers_match(answer: str, truth: str, *, fractions: bool) -> bool:
    given, wanted = _number(answer, fractions=fractions), _number(truth)
    if given is None or wanted is None:
        return False
    if wanted.denominator == 1:
        tolerance = FLOAT_NOISE * max(Fraction(1), abs(wanted)) if given.denominator != 1 else Fraction(0)
    else:
        tolerance = min(RELATIVE_TOLERANCE * abs(wanted), LARGEST_TOLERANCE)
    return abs(given - wanted) <= tolerance


def _number(text: str, *, fractions: bool = True) -> Fraction | None:
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS:
        return None
    text = text.replace("−", "-").removesuffix(".").removesuffix("%").rstrip()
    prefix = _PREFIX.match(text)
    if prefix is None or (prefix[1] and prefix[2]):
        return None
    body = text[prefix.end() :]
    if _DECIMAL.fullmatch(body):
        value = Fraction(body.replace(",", ""))
    elif fractions and (parts := _FRACTION.fullmatch(body)):
        above, below = int(parts[1]), int(parts[2])
        if below < 2 or math.gcd(above, below) != 1:
            return None
        value = Fraction(above, below)
    else:
        return None
    return -value if "-" in prefix.groups() else value


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
