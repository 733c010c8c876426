"""`math` through the command line on math-verify's own cases (MIT), where they name a single answer.

The cases are read from its source package. Where we differ, the list below says who is right.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.source_packages import source_folder
from tests.suites import Right, Verdict, check_disagreements, score_by_command

pytestmark = pytest.mark.timeout(900)

SUITE = ("math-verify", "0.9.0", "45ac6c61344ba056b9e99a660a4bc8d044ed408f730aed68c60435aa5eec4645")
OF_OPTIONS = {
    "test_set_rel_assymetry", "test_strict_variable_comparison", "test_float_precision", "test_sqrt_precision"
}  # fmt: skip
"""Their tests of options that `math` does not have."""
DIFFERENT = {
    ("1,22", "1.22"): Verdict(Right.scorer, "1,22 as a ground truth may be two numbers."),
    ("9", "9"): Verdict(
        Right.scorer, "Their case is about mathematics over several lines; the answers are the same."
    ),
    ("(1,3)", "{1,3}"): Verdict(Right.scorer, "A pair is no set."),
    (r"1 - \frac{1}{\mathrm{e}}", r"1 + \frac{1}{\mathrm{e}}"): Verdict(
        Right.scorer, "Plus is not minus; theirs records a fault."
    ),
    ("10/9", r"\frac{1}{2} \$ = \frac{10}{9}"): Verdict(
        Right.peer, "It takes the last of several values; no single answer."
    ),
    ("34", "n"): Verdict(Right.peer, "It finds a number elsewhere in the text; no single answer."),
}
"""Cases that we judge otherwise, as (ground truth, answer)."""
_SEGMENT = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)


class Case(NamedTuple):
    """A case of the suite."""

    ground_truth: str
    answer: str
    right: bool


def test_math_agrees_with_math_verify_s_own_cases(tmp_path: Path) -> None:
    cases = list(read_cases(source_folder(*SUITE) / "tests"))
    assert len(cases) > 150
    scores = score_by_command([(case.answer, case.ground_truth) for case in cases], "math", tmp_path)
    disagreements = {
        (case.ground_truth.strip(), case.answer.strip())
        for case, score in zip(cases, scores, strict=True)
        if (score == 1.0) is not case.right
    }
    assert check_disagreements("math-verify, own cases", len(cases), disagreements, DIFFERENT) >= 0.98


def read_cases(folder: Path) -> Iterator[Case]:
    """The cases of the suite that name a single answer."""
    for file in sorted(folder.glob("test_*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef) and function.name not in OF_OPTIONS:
                for decorator in function.decorator_list:
                    yield from _parameters(decorator)


def _parameters(decorator: ast.expr) -> Iterator[Case]:
    if not isinstance(decorator, ast.Call) or getattr(decorator.func, "attr", "") != "parametrize":
        return
    names = [name.strip() for name in str(ast.literal_eval(decorator.args[0])).split(",")]
    if not {"gold", "pred"} <= set(names) or not isinstance(decorator.args[1], ast.List):
        return
    for row in decorator.args[1].elts:
        try:
            values = dict(zip(names, ast.literal_eval(row), strict=True))
        except (ValueError, TypeError):  # a row with names of the suite's own
            continue
        ground_truth, answer = _single(values["gold"]), _single(values["pred"])
        if values.get("precision", 6) == 6 and ground_truth and answer and len(ground_truth) <= 1000:
            yield Case(ground_truth, answer, bool(values.get("expected", values.get("result"))))


def _single(text: str) -> str | None:
    """The one answer that a text names; None where it has none or several."""
    segments = [next(filter(None, match)) for match in _SEGMENT.findall(text)]
    if len(segments) > 1 or text.count(r"\boxed") > 1:
        return None
    if segments and re.search(r"(?:[A-Za-z]{2,} ){4}", segments[0]):
        return None  # prose between two signs
    if segments:
        return segments[0] if r"\boxed" not in text or r"\boxed" in segments[0] else None
    if r"\boxed" in text:
        return text.strip() if re.fullmatch(r"\s*\\boxed\{.*\}\s*", text, re.DOTALL) else None
    return None if re.search("[A-Za-z]{3,} .*[0-9]", text) else text
