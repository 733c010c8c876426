"""What `aworld-train rollout` shows of an episode: all that is trained on, and of the rest what fits a screen."""

from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.cli.rollout import _coloured, _shortened
from tests.models import shipped_tokenizer

TOKENIZER = shipped_tokenizer()


def row(prompt: str, parts: list[str]) -> SimpleNamespace:
    """A row, in parts of text: those at odd places are trained on."""
    tokens = [TOKENIZER.encode(part) for part in parts]
    return SimpleNamespace(
        prompt=TOKENIZER.encode(prompt),
        response=[token for part in tokens for token in part],
        mask=[1 - place % 2 for place, part in enumerate(tokens) for _ in part],
    )


def styles(shown_row: Any, max_lines: int | None = 16) -> list[tuple[str, str]]:
    text = _coloured(shown_row, TOKENIZER, max_lines)
    return [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]


def test_what_is_trained_on_is_bold_and_what_was_given_is_dim_in_their_order() -> None:
    episode_row = row("<|im_start|>user\nWhat is 6*7?<|im_end|>", ["calling", " it is 42 ", "the answer"])
    assert styles(episode_row) == [
        ("<|im_start|>user\nWhat is 6*7?<|im_end|>", "dim"),
        ("calling", "bold green"),
        (" it is 42 ", "dim"),
        ("the answer", "bold green"),
    ]


def test_a_row_that_is_masked_has_nothing_bold() -> None:
    masked = row("What?", ["calling"])
    masked.mask = [0] * len(masked.response)
    assert [style for _, style in styles(masked)] == ["dim"]


def test_a_long_prompt_and_a_long_result_lose_their_middle_and_what_is_trained_on_never_does() -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    [prompt, trained, result] = [text for text, _ in styles(row(lines, [lines, lines]), max_lines=10)]
    assert trained == lines
    for text in (prompt, result):
        assert text.split("\n")[:5] == [f"line {number}" for number in range(5)]
        assert text.split("\n")[-5:] == [f"line {number}" for number in range(95, 100)]
        assert text.split("\n")[5:-5] == ["[… 90 lines, --full shows them …]"]
    assert [text for text, _ in styles(row(lines, [lines]), max_lines=None)] == [lines, lines]


@pytest.mark.parametrize("count", range(1, 12))
def test_a_text_of_about_as_many_lines_is_whole(count: int) -> None:
    text = "\n".join("x" * count)
    assert _shortened(text, 10) == text


def test_a_line_without_end_is_cut_too() -> None:
    shortened = _shortened("begin" + "x" * 10_000 + "end", 10)
    assert shortened.startswith("beginx")
    assert "[… 9208 characters …]" in shortened
    assert shortened.endswith("xend")
    assert len(shortened) < 900


def test_an_escape_sequence_is_shown_and_not_obeyed() -> None:
    shown = "".join(text for text, _ in styles(row("\x1b[31mred", ["\x1b]0;title\x07"])))
    assert "\x1b" not in shown
    assert shown.startswith("␛[31mred␛]0;title")
