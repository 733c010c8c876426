"""A tiny model, really made: inside its gate, and loadable by anyone."""

import pytest

pytest.importorskip("torch")

import torch

from aworld_train.model import attempt, measurement, tasks
from aworld_train.model.transcripts import TranscriptEncoder
from tests.e2e.conftest import MODEL_SEED, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_it_is_made_inside_the_gate(workspace: Workspace) -> None:
    report = workspace.model_report
    assert attempt.MIN_ACCURACY <= report["accuracy"] <= attempt.MAX_ACCURACY
    assert report["mixed_groups"] >= attempt.MIN_MIXED_GROUPS
    assert 0.1 < report["sampled_tool_use"] < 0.9
    assert report["parameters"] < 3_000_000
    assert report["prompt_tokens"] <= 45
    assert report["episode_tokens"] <= 100
    tool = [entry["accuracy"] for entry in report["history"] if entry["phase"] == "tool"]
    assert max(tool) >= 0.95


def test_it_loads_as_qwen3_and_measures_what_was_reported(workspace: Workspace) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, data = workspace.path / "models" / "tiny", workspace.path / "data" / "arithmetic"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    encoder = TranscriptEncoder(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype == torch.float32
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == encoder.tokenizer.eos_token_id
    _, measured = tasks.gather(data / "train.parquet", data / "val.parquet", MODEL_SEED)
    assert measurement.greedy(model, encoder, measured).accuracy == pytest.approx(
        workspace.model_report["accuracy"], abs=0.01
    )


def test_making_it_again_does_nothing(workspace: Workspace) -> None:
    weights = workspace.path / "models" / "tiny" / "model.safetensors"
    before = weights.stat()
    assert workspace.make_model() == {**workspace.model_report, "reused": True}
    assert weights.stat() == before
