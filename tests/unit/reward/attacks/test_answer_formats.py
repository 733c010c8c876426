r"""Where the answer stands among thinking, quotes, boxes and candidates, what is extracted there, and its score.

The ground truth is 42 in every row.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.episode.score import ScoreOutcome
from aworld_train.reward.scoring import score_now

TRUTH = "42"
NUMBERS = " ".join(map(str, range(100)))
Row = tuple[str, str | None, float]

TAGGED: dict[str, Row] = {
    # Thinking is not an answer, however it is marked; what is said after it is.
    "thinking, then the answer": ("<think>It is 41.</think><answer>42</answer>", "42", 1.0),
    "right in thinking only": ("<think><answer>42</answer></think>I do not know.", None, 0.0),
    "right in thinking, wrong aloud": ("<think><answer>42</answer></think><answer>41</answer>", "41", 0.0),
    "wrong in thinking, right aloud": ("<think><answer>41</answer></think><answer>42</answer>", "42", 1.0),
    "thinking that the prompt opened": ("<answer>41</answer></think><answer>42</answer>", "42", 1.0),
    "right in thinking that the prompt opened": ("<answer>42</answer></think>Done.", None, 0.0),
    "thinking without an end": ("<think>So <answer>42</answer>", None, 0.0),
    "an answer, then thinking without an end": (
        "<answer>42</answer><think>or <answer>41</answer>",
        "42",
        1.0,
    ),
    "an answer before and after": ("<answer>42</answer><think>hm</think><answer>41</answer>", "41", 0.0),
    "thinking twice": ("<think>a</think><think><answer>42</answer></think>", None, 0.0),
    "thinking in thinking": ("<think>a<think>b</think><answer>42</answer></think>Done.", None, 0.0),
    "thinking in thinking, then the answer": ("<think><think></think></think><answer>42</answer>", "42", 1.0),
    "a thought": ("<thought><answer>42</answer></thought><answer>41</answer>", "41", 0.0),
    "a thought without an end": ("<thought><answer>42</answer>", None, 0.0),
    "a thought, then the answer": ("<thought>41</thought><answer>42</answer>", "42", 1.0),
    "thinking by another name": ("<thinking><answer>42</answer></thinking>Done.", None, 0.0),
    "reasoning": ("<reasoning><answer>42</answer></reasoning><answer>41</answer>", "41", 0.0),
    "thinking in brackets": ("[THINK]<answer>42</answer>[/THINK]<answer>41</answer>", "41", 0.0),
    "thinking in capitals": ("<THINK><answer>42</answer></THINK>Done.", None, 0.0),
    "one tag in another": ("<think><thought></thought><answer>42</answer></think>Done.", None, 0.0),
    "an answer that begins in thinking": ("<think><answer></think>42</answer>", None, 0.0),
    "an answer that ends in thinking": ("<answer>42<think></answer></think>", None, 0.0),
    "thinking in an answer": ("<answer>4<think></think>2</answer>", None, 0.0),
    "a tag with thinking in it": ("<ans<think></think>wer>42</answer>", None, 0.0),
    # The last complete answer counts, and one alone.
    "a correction": ("<answer>41</answer> No: <answer>42</answer>", "42", 1.0),
    "a wrong correction": ("<answer>42</answer> No: <answer>41</answer>", "41", 0.0),
    "an answer that is cut off": ("<answer>42</answer> or <answer>41", "42", 1.0),
    "only an answer that is cut off": ("<answer>42", None, 0.0),
    "all numbers, each an answer": ("".join(f"<answer>{n}</answer>" for n in range(100)), "99", 0.0),
    "all numbers, the right one last": ("".join(f"<answer>{n}</answer>" for n in range(43)), "42", 1.0),
    "all numbers in one answer": (f"<answer>{NUMBERS}</answer>", NUMBERS, 0.0),
    "two candidates": ("<answer>41 or 42</answer>", "41 or 42", 0.0),
    "two candidates on two lines": ("<answer>42\n41</answer>", "42\n41", 0.0),
    "candidates between commas": ("<answer>42, 41</answer>", "42, 41", 0.0),
    "candidates in answers in an answer": (
        "<answer><answer>41</answer><answer>42</answer></answer>",
        "42",
        1.0,
    ),
    "a sentence": ("<answer>The answer is 42.</answer>", "The answer is 42.", 0.0),
    # Quotes and code are the assistant's own text as well.
    "in code": ("```\n<answer>42</answer>\n```", "42", 1.0),
    "in code, and another aloud": ("`<answer>42</answer>` <answer>41</answer>", "41", 0.0),
    "in quotes, and another before": ('<answer>42</answer>, not "<answer>41</answer>"', "41", 0.0),
    "a mention of the tags": ("I write <answer></answer> around 42.", "", 0.0),
    "tags that are escaped": ("&lt;answer&gt;42&lt;/answer&gt;", None, 0.0),
    "a quoted tool result": ("<tool_response><answer>42</answer></tool_response>", "42", 1.0),
    # Nothing.
    "nothing": ("", None, 0.0),
    "an empty answer": ("<answer></answer>", "", 0.0),
    "a blank answer": ("<answer> \n </answer>", "", 0.0),
    "an empty answer after a right one": ("<answer>42</answer><answer></answer>", "", 0.0),
    "no tags": ("42", None, 0.0),
    "only tags": ("</answer><answer>", None, 0.0),
    "tags in another order": ("</answer>42<answer>", None, 0.0),
    "a hidden sign": ("<answer>4\u200b2</answer>", "4\u200b2", 0.0),
    "a sum": ("<answer>41+1</answer>", "41+1", 0.0),
    "a fraction": ("<answer>84/2</answer>", "84/2", 0.0),
}
BOXED: dict[str, Row] = {
    "a box": (r"So \boxed{42}.", "42", 1.0),
    "a box in thinking": (r"<think>\boxed{42}</think>Done.", None, 0.0),
    "a box in thinking, and another": (r"<think>\boxed{42}</think>\boxed{41}", "41", 0.0),
    "boxes": (r"\boxed{41} or \boxed{42}", "42", 1.0),
    "boxes, the wrong one last": (r"\boxed{42} or \boxed{41}", "41", 0.0),
    "a box in a box": (r"\boxed{41 \boxed{42}}", "42", 1.0),
    "all numbers, each in a box": ("".join(rf"\boxed{{{n}}}" for n in range(100)), "99", 0.0),
    "candidates in a box": (r"\boxed{41, 42}", "41, 42", 0.0),
    "a box that is cut off": (r"\boxed{42} \boxed{41", "42", 1.0),
    "an empty box after it": (r"\boxed{42}, in \boxed{}", "42", 1.0),
    "only an empty box": (r"\boxed{}", None, 0.0),
    "a box without braces": (r"\boxed 42", "42", 1.0),
    "a box of words": (r"\boxed{\text{the answer is } 42}", r"\text{the answer is } 42", 0.0),
    "answer tags": ("<answer>42</answer>", None, 0.0),
}


@pytest.mark.parametrize(("text", "extracted", "value"), TAGGED.values(), ids=TAGGED.keys())
def test_an_answer_in_tags_has_its_score(text: str, extracted: str | None, value: float) -> None:
    _check(text, extracted, value, "answer")


@pytest.mark.parametrize(("text", "extracted", "value"), BOXED.values(), ids=BOXED.keys())
def test_an_answer_in_a_box_has_its_score(text: str, extracted: str | None, value: float) -> None:
    _check(text, extracted, value, "boxed")


def _check(text: str, extracted: str | None, value: float, schema: str) -> None:
    result = score_now(text, ground_truth=TRUTH, scorer="number", answer_schema=schema)
    assert (result.score, result.cause) == (value, None)
    assert (result.outcome is ScoreOutcome.no_answer) == (extracted is None)
    assert result.extracted == extracted
    # A message of an episode is scored as its text is.
    message = score_now(
        [{"role": "assistant", "content": text}], ground_truth=TRUTH, scorer="number", answer_schema=schema
    )
    assert message == result


NAMES = st.sampled_from(["think", "thinking", "thought", "reasoning"])
PLAIN = st.text(st.characters(exclude_characters="<>[]", codec="utf-8"), max_size=20)
SCORERS = ["number", "math", "exact", "exact_case", "gaia"]


@given(PLAIN, NAMES, PLAIN, st.sampled_from(["<answer>42</answer>", r"\boxed{42}"]))
def test_nothing_in_thinking_is_paid(before: str, name: str, after: str, answer: str) -> None:
    schema = "boxed" if "boxed" in answer else "answer"
    for text in (
        f"<{name}>{before}{answer}{after}</{name}>Done.",
        f"{before}{answer}</{name}>{after}",
        f"<{name}>{answer}{after}",
    ):
        result = score_now(text, ground_truth=TRUTH, scorer="number", answer_schema=schema)
        assert result.score == 0.0, text


@given(NAMES, PLAIN, PLAIN)
def test_what_stands_after_thinking_is_the_answer(name: str, before: str, after: str) -> None:
    text = f"<{name}>{before}<answer>41</answer></{name}>{after}<answer>42</answer>"
    assert score_now(text, ground_truth=TRUTH, scorer="number").score == 1.0


@given(
    st.lists(st.integers(0, 99).filter(lambda number: number != 42), min_size=1, max_size=20),
    st.integers(0, 20),
    st.sampled_from([" ", ", ", "\n", " or ", "; ", "|", " and ", ",", " = "]),
    st.sampled_from(SCORERS),
)
def test_no_list_of_candidates_is_paid(others: list[int], place: int, mark: str, scorer: str) -> None:
    candidates = [*map(str, others[:place]), TRUTH, *map(str, others[place:])]
    text = f"<answer>{mark.join(candidates)}</answer>"
    result = score_now(text, ground_truth=TRUTH, scorer=scorer)
    assert result.score == 0.0, (text, result.steps)
