"""The tiny model that comes with the package is what its code makes: inside its gate, loadable, and it learns."""

import json

import pytest

pytest.importorskip("torch")

import torch

from aworld_train.model import attempt, tasks, tiny
from aworld_train.model.transcripts import TranscriptEncoder
from tests.e2e.conftest import Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SHORT = ["trainer.steps=3", "trainer.val_every=3", "trainer.save_every=3", "dataset.val_limit=128"]


def test_the_shipped_model_loads_as_qwen3_and_measures_what_it_says(workspace: Workspace) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert workspace.model_report["shipped"]
    folder = workspace.path / "models" / "tiny"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    encoder = TranscriptEncoder(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype == torch.float32
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == encoder.tokenizer.eos_token_id
    _, measured = tasks.gather(None, None, tiny.SHIPPED_SEED)
    assert attempt.greedy(model, encoder, measured).accuracy == pytest.approx(
        workspace.model_report["accuracy"], abs=0.01
    )


@pytest.mark.slow
def test_a_model_that_is_made_is_inside_the_same_gate_and_learns(workspace: Workspace) -> None:
    made = workspace.model("models/made", "--anew")
    shipped = workspace.model_report
    assert not made["shipped"]
    for report in (made, shipped):
        assert attempt.MIN_ACCURACY <= report["accuracy"] <= attempt.MAX_ACCURACY
        assert report["mixed_groups"] >= attempt.MIN_MIXED_GROUPS
        assert 0.1 < report["sampled_tool_use"] < 0.9
        tool = [entry["accuracy"] for entry in report["history"] if entry["phase"] == "tool"]
        assert max(tool) >= 0.95
    same = ("seed", "val_tasks", "parameters", "vocab_size", "prompt_tokens", "episode_tokens")
    assert [made[name] for name in same] == [shipped[name] for name in same]
    if made["history"] == shipped["history"]:
        return  # it is the shipped one, which the quickstart trains
    # Another processor rounds otherwise. By this step count the shipped one has learned as much.
    done = workspace.run(
        "train", "recipes/quickstart.yaml", "name=made", "model.path=models/made", *SHORT, "--json"
    )
    assert done.returncode == 0, done.stderr
    before, after = (json.loads(done.stdout)["val"][when]["accuracy"] for when in ("before", "after"))
    assert after - before >= 0.15
