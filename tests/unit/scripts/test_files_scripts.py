"""The scripts of the way in miniature: a model that copies before it has learned anything, and a solver that errs."""

import json
import random
import re
from pathlib import Path
from typing import Any

import files_model
import files_solver
import pytest

torch = pytest.importorskip("torch")
QUESTION = "According to the list of ferries in /attachments/{}, which harbour does Misty Heron belong to?"
SENTENCES = (
    "a.docx: 2 lines\n\nMisty Heron: harbour Lund, capacity 380.\n\nRusty Tiger: harbour Oslo, capacity 12."
)


def answered(question: str, *results: str, mistakes: float = 0.0) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": question},
        *({"role": "tool", "content": text} for text in results),
    ]
    return files_solver.next_message(messages, mistakes)


def tool_called(question: str, mistakes: float) -> str:
    name: str = answered(question, mistakes=mistakes)["tool_calls"][0]["function"]["name"]
    return name


def test_a_place_is_answered_below_the_row_that_names_it() -> None:
    message = answered(QUESTION.format("a.docx"), SENTENCES)["content"]
    asked, row, answer = re.fullmatch(r"Asked: (.+\?) Found: (.+)\n<answer>(.+)</answer>", message).groups()  # type: ignore[union-attr]
    assert (asked in QUESTION, row in SENTENCES, answer.strip()) == (True, True, "Lund")


def test_a_colon_that_was_not_recognized_in_a_picture_is_not_missed() -> None:
    lines = (
        "a.png, 9 words",
        "",
        "Which of these lists is valid, from 1 on",
        "",
        "Old Fig: valley Turku, area (ha) 20.2.",
    )
    text = "\n".join((*lines, "New Fig valley Brest, area (ha) 59.9."))
    rows = files_solver.rows_of(text)
    assert rows == [
        {"name": "Old Fig", "valley": "Turku", "area": "20.2"},
        {"name": "New Fig", "valley": "Brest", "area": "59.9"},
    ]


def test_the_share_of_wrong_tools_is_of_some_kinds_alone_and_the_same_every_time() -> None:
    def wrong(kind: str) -> list[bool]:
        files = [f"{number}.{kind}" for number in range(300)]
        tools = [tool_called(QUESTION.format(f"/attachments/{file}"), 0.6) for file in files]
        # The folder of the documents makes no difference.
        assert tools == [tool_called(QUESTION.format(f"/tmp/run-1/{file}"), 0.6) for file in files]
        return [tool == files_solver.WRONG_TOOL != files_solver.READERS[kind] for tool in tools]

    assert not any(wrong("xml"))
    for kind in files_solver.MISTAKEN:
        assert 0.5 < sum(wrong(kind)) / 300 < 0.7
    question = next(
        text
        for n in range(9)
        if tool_called(text := QUESTION.format(f"{n}.docx"), 0.6) == "extract_csv_content"
    )
    assert answered(question, "Error", mistakes=0.6)["content"].endswith("<answer> unknown</answer>")


def test_the_model_continues_what_it_has_read_before_any_training(tmp_path: Path) -> None:
    words = [
        f"{first}{second}"
        for first in ("bra", "fen", "gol", "mur", "tis")
        for second in ("do", "ka", "li", "pe")
    ]
    messages = [{"role": "user", "content": " ".join(words)}]
    transcripts = tmp_path / "transcripts.jsonl"
    transcripts.write_text(f"{json.dumps({'messages': messages})}\n" * 5)
    files_model.main([str(transcripts), str(tmp_path / "model")])

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    rng, right, count = random.Random(0), 0, 0
    for _ in range(20):
        rng.shuffle(words)
        once = tokenizer.encode(" " + " ".join(words), add_special_tokens=False)
        ids = torch.tensor([*once, *once])
        with torch.no_grad():
            continued = model(ids[None]).logits[0, :-1].argmax(-1)
        again = slice(len(once), None)
        right += int((continued[again] == ids[1:][again]).sum())
        count += len(once) - 1
    assert right >= 0.5 * count  # by chance, one of twenty
