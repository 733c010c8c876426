"""verl itself reads a built dataset, and finds prompts, answers and indices in it."""

from pathlib import Path

import pytest

from aworld_train.dataset import build
from tests.locations import GSM8K_ODD

omegaconf = pytest.importorskip("omegaconf")
pytest.importorskip("verl", reason="verl is not installed")


def test_rows_of_expressions_and_of_questions_are_read_together(tmp_path: Path) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    expressions = build("arithmetic", tmp_path / "a", limit=20)
    questions = build("gsm8k", tmp_path / "q", files=[GSM8K_ODD], tasks="questions")
    files = [str(report.out / "train.parquet") for report in (expressions, questions)]
    config = omegaconf.OmegaConf.create({"filter_overlong_prompts": False, "cache_dir": str(tmp_path / "c")})
    dataset = RLHFDataset(files, tokenizer=None, config=config)

    assert len(dataset) == expressions.rows["train"] + questions.rows["train"]
    first, last = dataset[0], dataset[len(dataset) - 1]
    assert first["raw_prompt"] == [
        {"role": "user", "content": f"What is {first['extra_info']['expression']}?"}
    ]
    assert first["index"] == first["extra_info"]["index"] == 0
    assert first["agent_name"] == "mcp_agent"
    assert last["raw_prompt"][0]["content"] == last["extra_info"]["question"]
    assert last["index"] == questions.rows["train"] - 1
    assert isinstance(last["reward_model"]["ground_truth"], str)
    assert set(first["extra_info"]) == set(last["extra_info"])

    batch = collate_fn([dataset[i] for i in range(4)])
    assert list(batch["index"]) == [0, 1, 2, 3]
    assert len(batch["reward_model"]) == 4
