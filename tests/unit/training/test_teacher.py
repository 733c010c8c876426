"""A teacher is found where a recipe says, in a run or elsewhere, and only one with the student's tokens is taken."""

import json
import shutil
from pathlib import Path

import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.errors import RecipeError
from aworld_train.model.tiny import SHIPPED
from aworld_train.recipe.output import written
from aworld_train.recipe.schema import Recipe
from aworld_train.training.teacher import teacher_faults, with_teacher
from tests.unit.adapter.verl.test_checkpoints import checkpoint


def taught_by(teacher: str, student: str = str(SHIPPED)) -> Recipe:
    return recipes.load(
        {
            "model": {"path": student},
            "trainer": {"method": "distill"},
            "distill": {"teacher": teacher},
        }
    )


def found(teacher: str) -> str | None:
    return with_teacher(taught_by(teacher), VerlFramework()).teacher


def refusal(teacher: str) -> str:
    with pytest.raises(RecipeError) as caught:
        found(teacher)
    assert [fault for _, fault in teacher_faults(taught_by(teacher))] == [caught.value.message]
    return caught.value.message


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run with whole checkpoints of its steps 2 and 3, as runs/teacher in the current folder."""
    monkeypatch.chdir(tmp_path)
    for step in (2, 3):
        saved = checkpoint(tmp_path / "runs" / "teacher" / "checkpoints", step)
        model = saved / "actor" / "huggingface"
        shutil.rmtree(model)
        shutil.copytree(SHIPPED, model)
    return tmp_path / "runs" / "teacher"


def test_a_run_stands_for_its_last_whole_checkpoint(run: Path) -> None:
    inside = "runs/teacher/checkpoints/global_step_{}/actor/huggingface"
    assert found("runs/teacher") == inside.format(3)
    assert found("runs/teacher/checkpoints/global_step_2") == inside.format(2)
    assert found(inside.format(2)) == inside.format(2)
    (run / "checkpoints" / "global_step_3" / "data.pt").unlink()
    assert found("runs/teacher") == inside.format(2)


def test_a_student_may_be_named_by_its_run_too(run: Path) -> None:
    (run / "recipe.yaml").write_text("name: teacher\n")
    assert list(teacher_faults(taught_by("runs/teacher", student="runs/teacher"))) == []
    # A run that does not exist is reported by the check of `model.path`.
    assert list(teacher_faults(taught_by("runs/teacher", student="runs/student"))) == []


def test_a_model_of_the_hub_keeps_its_name() -> None:
    assert found("org/teacher") == "org/teacher"


def test_a_teacher_from_the_environment_stays_a_reference(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER", "runs/teacher")
    teacher = found("${oc.env:TEACHER}")
    assert teacher == "runs/teacher/checkpoints/global_step_3/actor/huggingface"
    assert written(teacher) == "${oc.env:TEACHER}/checkpoints/global_step_3/actor/huggingface"


def test_without_the_method_there_is_nothing_to_find() -> None:
    recipe = recipes.load({})
    assert with_teacher(recipe, VerlFramework()) == recipe


def test_what_is_not_there_or_not_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no such directory: /none/such." in refusal("/none/such")
    assert "no such directory: runs/teacher." in refusal("runs/teacher"), "a run, not a model of the hub"
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    assert "no such directory: runs/emty. Did you mean 'runs/empty'?" in refusal("runs/emty")
    assert "nor the folder of a run that has a whole checkpoint" in refusal("runs/empty")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{}")
    assert "has no weights" in refusal("half")


def test_a_teacher_with_other_tokens_is_refused_and_one_with_more_is_not(tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(SHIPPED, teacher)
    file = teacher / "tokenizer.json"
    content = json.loads(file.read_text())
    last = max(token["id"] for token in content["added_tokens"])
    content["added_tokens"].append({**content["added_tokens"][0], "id": last + 1, "content": "<more>"})
    file.write_text(json.dumps(content))
    assert found(str(teacher)) == str(teacher)
    answer = next(token for token in content["added_tokens"] if token["content"] == "<answer>")
    answer["id"] = last + 2
    file.write_text(json.dumps(content))
    message = refusal(str(teacher))
    assert f"1 of {last + 1} differ ('<answer>' is {last - 1} to one and {last + 2} to the other)" in message
    file.unlink()
    (teacher / "vocab.json").write_text("{}")
    assert "cannot be read, for it has no tokenizer.json" in refusal(str(teacher))
