"""Training on tasks that `dataset synthesize` kept; `pytest -m slow tests/e2e/test_synthesis.py`."""

import json
from pathlib import Path

import pytest

from aworld_train.model.tiny import SHIPPED
from tests import warm
from tests.e2e.conftest import CLI, REPOSITORY
from tests.openai_stub import OpenAIStub
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
