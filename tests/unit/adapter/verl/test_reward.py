"""The reward through verl's own loader and reward manager, as a reward worker runs it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from aworld_train import recipe as recipes

pytest.importorskip("verl", reason="verl is not installed")

from aworld_train.adapter.episodes.scoring import reward_plan
from aworld_train.adapter.verl.compose import compose
from aworld_train.adapter.verl.reward import take_score

TURNS = "{call}\nuser\n<tool_response>\n<answer>5</answer>\n</tool_response>\nassistant\n{last}"


class Characters:
    """A tokenizer whose ids are code points."""

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(chr(int(i)) for i in ids)


@pytest.fixture
def scored(tmp_path: Path) -> Any:
    async def scored(response: str, agent_fields: dict[str, Any] | None = None) -> dict[str, Any]:
        """What verl records for one response whose ground truth is 5."""
        import numpy as np
        import torch
        from omegaconf import OmegaConf
        from verl import DataProto
        from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
        from verl.trainer.ppo.reward import get_custom_reward_fn

        recipe = recipes.load(
            {"name": "a", "model": {"path": "m"}, "dataset": {"train": "t.parquet", "val": "v.parquet"}}
        )
        (tmp_path / "reward.yaml").write_text(yaml.safe_dump(reward_plan(recipe)))
        config = OmegaConf.create({"reward": compose(recipe, tmp_path)["reward"]})
        tokenizer = Characters()
        ids = torch.tensor([tokenizer.encode(response)])
        columns: dict[str, Any] = {
            "data_source": "arithmetic",
            "reward_model": {"style": "rule", "ground_truth": "5"},
            "extra_info": {"index": 0, "expression": "2+3", "scorer": "number", "answer_schema": "answer"},
            "__num_turns__": 4,
        }
        if agent_fields is not None:
            columns["tool_extra_fields"] = agent_fields
        arrays = {}
        for column, value in columns.items():
            arrays[column] = np.empty(1, dtype=object)
            arrays[column][0] = value
        data = DataProto.from_dict(
            tensors={"responses": ids, "attention_mask": torch.ones_like(ids)}, non_tensors=arrays
        )
        manager = NaiveRewardManager(config, tokenizer, get_custom_reward_fn(config))
        result: dict[str, Any] = await manager.run_single(data)
        return result

    return scored


async def test_verl_finds_the_reward_and_records_its_score_and_details(scored: Any) -> None:
    result = await scored(TURNS.format(call="2+3?", last="<answer>5</answer>"))
    output = SimpleNamespace(extra_fields={"reward_extra_info": result["reward_extra_info"]})
    score = take_score(output)
    assert score is not None and score.result.scorer == "number"
    figures = output.extra_fields["reward_extra_info"]
    assert result["reward_score"] == figures["score"] == figures["acc"] == figures["answered"] == 1.0


async def test_a_tool_that_prints_the_answer_wins_nothing_in_verl(scored: Any) -> None:
    response = TURNS.format(call="2+3?", last="Done.")
    assert (await scored(response))["reward_score"] == 0.0
    assert (await scored(response, {"assistant_text": "2+3? Done."}))["reward_score"] == 0.0


async def test_what_the_agent_loop_says_was_the_assistants_decides(scored: Any) -> None:
    result = await scored("<answer>6</answer>", {"assistant_text": "<answer>5</answer>", "turns": 2})
    assert result["reward_score"] == 1.0
