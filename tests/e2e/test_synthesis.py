"""Training on tasks that `dataset synthesize` kept; `pytest -m slow tests/e2e/test_synthesis.py`."""

import json
import re
from pathlib import Path

import pytest

from aworld_train.model.tiny import SHIPPED
from tests import warm
from tests.e2e.conftest import CLI, REPOSITORY
from tests.openai_stub import Message, OpenAIStub, RecordedRequest, calls, says, text_of
from tests.synthesis import SynthesisModel, finish, make_folder, start

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_run_trains_on_what_a_synthesis_kept_with_the_tools_that_it_shows(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with OpenAIStub(SynthesisModel()) as stub:
        report = finish(start(folder, stub, "kept"))
    assert report["kept"] == 2
    overrides = [
        f"model.path={SHIPPED}",
        "dataset.train=data/kept/train.parquet",
        "dataset.val=data/kept/train.parquet",
        "dataset.max_prompt_tokens=1200",
        "agent.tools.include=[calc*]",
        "agent.tools.short_descriptions=true",
        "trainer.steps=1",
        "trainer.batch_size=2",
        "trainer.microbatch_size=4",
        "trainer.val_every=0",
        "trainer.val_ends=false",
        "trainer.save_every=0",
        "rollout.n=2",
    ]
    command = [*CLI[1:], "train", str(REPOSITORY / "recipes" / "quickstart.yaml"), "--json", *overrides]
    done = warm.run(*command, cwd=folder, timeout=1200)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["steps_done"], summary["episodes"]) == ("completed", 1, 4)


PROPOSED = [f"{a}{operator}{b}" for a in (12, 47, 103) for operator in "*+-/" for b in (4, 23)]


def propose(request: RecordedRequest) -> Message:
    """The expression of the seed, as a question that the small model knows."""
    (expression,) = re.findall(r"Material: (\S+)", " ".join(map(text_of, request.messages)))
    if request.messages[-1]["role"] != "tool":
        return calls("calculator", expression=expression)
    proposal = {"question": f"What is {expression}?", "answer": text_of(request.messages[-1]).strip()}
    return says(f"<answer>{json.dumps(proposal)}</answer>")


def test_a_trained_model_solves_and_a_run_trains_on_what_it_finds_neither_easy_nor_hard(
    tmp_path: Path,
) -> None:
    recipe = {"extends": str(REPOSITORY / "recipes/quickstart.yaml"), "model": {"path": str(SHIPPED)}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    (tmp_path / "no_prompt.txt").touch()
    (tmp_path / "seeds.txt").write_text("".join(f"{expression}\n" for expression in PROPOSED))
    options = ("--solver", str(SHIPPED), "--k", "8", "--rounds", "0", "--scorer", "number")
    options += ("--system-prompt", "no_prompt.txt")
    with OpenAIStub(propose) as stub:
        report = finish(start(tmp_path, stub, "arithmetic", *options, against=None))
    assert sum(report["dropped"].values()) + report["kept"] == len(PROPOSED)
    assert report["kept"] >= len(PROPOSED) / 3
    overrides = ["dataset.train=data/arithmetic/train.parquet", "dataset.val=data/arithmetic/train.parquet"]
    overrides += ["trainer.steps=4", "trainer.batch_size=8", "trainer.save_every=4"]
    done = warm.run(*CLI[1:], "train", "recipe.yaml", "--json", *overrides, cwd=tmp_path, timeout=1200)
    assert done.returncode == 0, done.stderr
    before, after = (json.loads(done.stdout)["val"][when]["accuracy"] for when in ("before", "after"))
    assert after >= before + 0.2
