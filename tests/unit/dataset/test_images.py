"""Images in the user's message, from the input to the message that the model is shown."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import build, check_file
from aworld_train.dataset.schema import IMAGES
from aworld_train.episode.message import Message
from aworld_train.errors import DatasetError
from tests.vision import data_url, png

RED, BLUE = data_url(png(color="red")), data_url(png(color="blue"))


def image_part(uri: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def record(*parts: dict[str, Any], answer: str = "red") -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": list(parts)}], "answer": answer}


TWO_IMAGES = record(
    text_part("Is "), image_part(RED), text_part(" or "), image_part(BLUE), text_part(" warm?")
)


def built(folder: Path, *records: Any, source: str = "jsonl", **options: Any) -> list[dict[str, Any]]:
    file = folder / "input.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    build(source, folder / "out", files=[file], splits={"train": 1}, **options)
    return pq.read_table(folder / "out/train.parquet").to_pylist()  # type: ignore[no-any-return]


def message_of(row: dict[str, Any]) -> Message:
    return Message.read(row["prompt"][-1], row["extra_info"][IMAGES])


def test_images_stand_where_their_parts_stood(tmp_path: Path) -> None:
    (row,) = built(tmp_path, TWO_IMAGES)
    message = message_of(row)
    assert message.for_chat(with_images=True)["content"] == TWO_IMAGES["prompt"][0]["content"]
    assert message.content == "Is  or  warm?"
    assert check_file(tmp_path / "out/train.parquet").rows == 1


def test_the_same_question_about_other_images_is_another_task(tmp_path: Path) -> None:
    question = text_part("Which colour does most of the picture have, in one plain English word?")
    tasks = [record(image_part(RED), question), record(image_part(BLUE), question, answer="blue")]
    rows = built(tmp_path, *tasks, tasks[0], dedupe=True)
    assert sorted(row["reward_model"]["ground_truth"] for row in rows) == ["blue", "red"]
    for row in rows:
        (shown,) = message_of(row).images
        expected = png(color=row["reward_model"]["ground_truth"])
        assert shown.file == expected and shown.position == 0


def test_rows_without_images_stand_beside_those_with_some(tmp_path: Path) -> None:
    rows = built(tmp_path, TWO_IMAGES, {"query": "Is it [image 7]?", "answer": "no"})
    (plain,) = [row for row in rows if row["extra_info"][IMAGES] is None]
    assert Message.read(plain["prompt"][-1], ()) == Message("user", "Is it [image 7]?")


def test_built_rows_are_a_source_with_their_images(tmp_path: Path) -> None:
    built(tmp_path, TWO_IMAGES)
    build("parquet", tmp_path / "again", files=[tmp_path / "out/train.parquet"], splits={"train": 1})
    (row,) = pq.read_table(tmp_path / "again/train.parquet").to_pylist()
    assert message_of(row).for_chat(with_images=True)["content"] == TWO_IMAGES["prompt"][0]["content"]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (image_part("https://example.org/a.png"), "not a data: URI"),
        (image_part("data:image/png;base64,bm8gaW1hZ2U="), "not a data: URI"),
        ({"type": "image"}, "not a data: URI"),
    ],
)
def test_what_is_no_image_in_the_record_is_dropped(tmp_path: Path, part: Any, reason: str) -> None:
    built(tmp_path, record(part, text_part("What?")), TWO_IMAGES)
    (dropped,) = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert reason in dropped["reason"]


def test_images_of_the_system_prompt_are_dropped(tmp_path: Path) -> None:
    system = {"role": "system", "content": [image_part(RED)]}
    faulty = {"prompt": [system, {"role": "user", "content": "What?"}], "answer": "red"}
    built(tmp_path, faulty, TWO_IMAGES)
    assert "not in the user's message" in (tmp_path / "out/dropped.jsonl").read_text()


def test_a_column_of_images_is_refused(tmp_path: Path) -> None:
    built(tmp_path, TWO_IMAGES)
    table = pq.read_table(tmp_path / "out/train.parquet")
    pq.write_table(table.append_column(IMAGES, [[[RED]]]), tmp_path / "verl.parquet")
    with pytest.raises(DatasetError, match="in a column of their own"):
        check_file(tmp_path / "verl.parquet")
