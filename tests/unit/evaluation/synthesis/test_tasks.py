"""Seeds, and what a model proposes about them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from aworld_train.errors import UsageError
from aworld_train.evaluation.synthesis.prompts import CHANGES, change_prompt, explore_prompt
from aworld_train.evaluation.synthesis.tasks import (
    Seed,
    SynthesizedTask,
    change_for,
    proposal_id,
    read_change,
    read_proposal,
    read_seeds,
)

TASK = SynthesizedTask("one", "How many?", "12", ("/attachments/a.csv",))


def written(**fields: Any) -> str:
    return f"I looked. <answer>{json.dumps(fields)}</answer>"


def test_files_of_a_folder_are_seeds_where_the_tools_find_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.csv", "deep/a.pdf"):
        (tmp_path / name).write_text("x")
    assert [seed.attachments for seed in read_seeds(tmp_path, "/attachments/")] == [
        ("/attachments/b.csv",),
        ("/attachments/deep/a.pdf",),
    ]


def test_lines_of_a_text_are_seeds_once_each(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("rivers\n\n lakes \nrivers\n")
    assert read_seeds(tmp_path / "topics.txt", "") == [Seed("rivers"), Seed("lakes")]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\xff"])
def test_seeds_that_cannot_be_read_are_an_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "seeds").write_bytes(content)
    with pytest.raises(UsageError, match="seeds"):
        read_seeds(tmp_path / "seeds", "")


@pytest.mark.parametrize(
    ("answer", "text"), [("Paris", "Paris"), (7, "7"), (1.5, "1.5"), (["a", 2], "a, 2"), (" x ", "x")]
)
def test_a_proposal_is_read_with_its_answer_as_text(answer: Any, text: str) -> None:
    task = read_proposal(written(question="Where?", answer=answer), "one", ["/a"])
    assert task == SynthesizedTask("one", "Where?", text, ("/a",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer>none</answer>",
        "<answer>[1]</answer>",
        "<answer>" + "[" * 100_000,
        "<answer>" + "[" * 100_000 + "</answer>",
        written(question="Where?"),
        written(question="", answer="x"),
        written(question="Where?", answer=None),
        written(question="Where?", answer=True),
        written(question={"a": 1}, answer="x"),
        written(question="x" * 5000, answer="x"),
    ],
)
def test_what_is_no_proposal_gives_none(text: str) -> None:
    assert read_proposal(text, "one", ()) is None


def test_a_change_keeps_what_the_task_is_about_and_names_what_it_added() -> None:
    text = written(question="How many now?", answer=13, added_question="Which?", added_answer="b")
    changed = read_change(text, TASK, "widen")
    assert changed is not None
    assert (changed.id, changed.attachments) == (TASK.id, TASK.attachments)
    assert (changed.question, changed.answer, changed.added) == ("How many now?", "13", ("Which?", "b"))
    row = changed.row("gaia", "Be brief.")
    assert (row["level"], row["tags"], row["system"]) == ("2", ["widen"], "Be brief.")
    assert read_change(written(question="How many now?", answer=13), TASK, "widen") is None


def test_changes_are_the_same_for_a_task_and_all_of_them_are_made() -> None:
    tasks = [SynthesizedTask(str(number), "q", "a") for number in range(300)]
    made = Counter(change_for(task, 1) for task in tasks)
    assert set(made) == set(CHANGES) and min(made.values()) > 60
    assert made == Counter(change_for(task, 1) for task in tasks)


def test_proposals_about_a_seed_have_ids_of_their_own() -> None:
    assert len({proposal_id(Seed(text), number) for text in ("a", "b") for number in (1, 2)}) == 4


def test_prompts_have_their_texts_and_no_braces_left() -> None:
    prompt = explore_prompt("rivers {x}", 2, 3)
    assert prompt.endswith("Material: rivers {x}") and "question 2 of 3" in prompt
    assert "question 1 of 1" not in explore_prompt("rivers", 1, 1)
    for change, words in CHANGES.items():
        prompt = change_prompt(change, "Where {is}?", "Paris")
        assert words in prompt and prompt.endswith("Question: Where {is}?\nAnswer: Paris")
