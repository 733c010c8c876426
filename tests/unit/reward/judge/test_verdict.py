"""Verdicts: what is exactly one is read, everything else is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.judge.verdict import UnreadableVerdict, Verdict, read_verdict


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ('{"reason": "Same number.", "verdict": "correct"}', "correct", "Same number."),
        ('{"verdict": "incorrect", "reason": "6 is not 7."}', "incorrect", "6 is not 7."),
        ('{"verdict": "INCORRECT"}', "incorrect", ""),
        ('\n {"verdict": " Correct "} \n', "correct", ""),
        ('```json\n{"reason": "r", "verdict": "correct"}\n```', "correct", "r"),
        ('```\n{"verdict": "incorrect"}\n```', "incorrect", ""),
        ('{"verdict": "correct", "reason": null, "confidence": 0.3}', "correct", ""),
        ("VERDICT: CORRECT", "correct", ""),
        ("Both are 42.\nVERDICT: CORRECT", "correct", "Both are 42."),
        ("The answer is not correct.\n\nVERDICT: INCORRECT\n", "incorrect", "The answer is not correct."),
        ("Not incorrect at all.\nverdict: correct", "correct", "Not incorrect at all."),
        ("r\n**VERDICT: INCORRECT**", "incorrect", "r"),
        ("r\n**VERDICT:** CORRECT.", "correct", "r"),
        ("r\n`VERDICT: CORRECT`", "correct", "r"),
        ("<think>Is it? VERDICT: INCORRECT</think>\nVERDICT: CORRECT", "correct", ""),
        ("template opened it</think>VERDICT: INCORRECT", "incorrect", ""),
        ('<think>a</think><think>b</think>{"verdict": "correct"}', "correct", ""),
        ("<thinking>VERDICT: CORRECT</thinking>\nVERDICT: INCORRECT", "incorrect", ""),
    ],
)
def test_a_verdict_is_read_with_its_reason(text: str, verdict: str, reason: str) -> None:
    ruling = read_verdict(text)
    assert ruling.verdict == Verdict(verdict)
    assert ruling.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "correct",
        "incorrect",
        "CORRECT",
        "Correct.",
        "Not correct",
        "correct, not incorrect",
        "incorrect, not correct",
        "The answer is correct? No.",
        "The answer is correct",
        "yes",
        "1",
        "VERDICT: NOT CORRECT",
        "VERDICT: CORRECT?",
        "VERDICT: CORRECT, NOT INCORRECT",
        "VERDICT: CORRECT or INCORRECT",
        "VERDICT: CORRECT\nVERDICT: INCORRECT",
        "VERDICT: INCORRECT\nOn second thought:\nVERDICT: CORRECT",
        "**Verdict**: correct\n\nVERDICT: INCORRECT",
        "VERDICT: not\nVERDICT: CORRECT",
        "VERDICT: CORRECT\nOr is it?",
        "VERDICT:",
        "VERDICT CORRECT",
        "MY VERDICT: CORRECT",
        "VERDICT: COR",
        "VERDICT: CORRECTLY",
        "VERDICT: UNCORRECT",
        "NO VERDICT: CORRECT",
        "<think>VERDICT: CORRECT",
        "VERDICT: INCORRECT</think>",
        "<think>a</think><think>\nVERDICT: CORRECT",
        "true",
        "null",
        '"correct"',
        '["correct"]',
        "[]",
        "{}",
        '{"verdict": true}',
        '{"verdict": 1}',
        '{"verdict": null}',
        '{"verdict": ""}',
        '{"verdict": "maybe"}',
        '{"verdict": "not correct"}',
        '{"verdict": "correct, not incorrect"}',
        '{"verdict": ["correct"]}',
        '{"verdict": {"verdict": "correct"}}',
        '{"Verdict": "correct"}',
        '{"answer": "correct"}',
        '{"verdict": "correct", "verdict": "incorrect"}',
        '{"verdict": "correct", "reason": "VERDICT: INCORRECT"}',
        '{"verdict": "correct", "final_verdict": "Verdict: incorrect"}',
        '{"verdict": "correct"',
        '{"verdict": "correct"} {"verdict": "incorrect"}',
        '{"verdict": "correct"} but no',
        'No: {"verdict": "correct"}',
        '```json\n{"verdict": "correct"}\n```\n```json\n{"verdict": "incorrect"}\n```',
        '```json\n{"verdict": "correct"}',
        "[" * 100_000,
        "<html>VERDICT: CORRECT</html>",
    ],
)
def test_what_is_not_exactly_a_verdict_is_none(text: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_verdict(text)


@given(st.text(), st.sampled_from(["correct", "incorrect"]))
def test_any_reason_in_json_leaves_the_verdict_as_it_is_or_makes_it_unreadable(
    text: str, verdict: str
) -> None:
    try:
        assert read_verdict(json.dumps({"reason": text, "verdict": verdict})).verdict == verdict
    except UnreadableVerdict:
        assert "verdict" in text.lower() or "<think" in text.lower() or "</think" in text.lower()


@given(
    st.lists(
        st.sampled_from(
            ["VERDICT:", "CORRECT", "INCORRECT", "not", "\n", " ", "**", "<think>", "</think>", "?"]
        )
    )
)
def test_no_mixture_of_a_verdict_s_words_is_read_as_one_unless_its_last_line_is_it(words: list[str]) -> None:
    text = "".join(words)
    try:
        ruling = read_verdict(text)
    except UnreadableVerdict:
        return
    last = text.strip().splitlines()[-1].rpartition("</think>")[2].replace("*", "").replace(" ", "").upper()
    assert last == f"VERDICT:{ruling.verdict.upper()}"


@pytest.mark.parametrize(
    "text",
    ["VERDICT:" + "*" * 200_000, "verdict" + ":" * 200_000, "verdict_" * 50_000, "```\n" + "\n " * 100_000],
)
def test_a_long_text_that_is_nearly_a_verdict_is_given_up_soon(text: str) -> None:
    with pytest.raises(UnreadableVerdict):
        read_verdict(text)
