"""What the recipes for GPUs compose to computes what a plain model does, on ranks that talk over gloo."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from actor_update import rows_of
from transformers import AutoConfig, AutoModelForCausalLM

from aworld_train import recipe as recipes
from aworld_train.adapter.verl.attention import TRIE, VARLEN_FAMILIES
from tests import warm
from tests.locations import REPOSITORY
from tests.unit.adapter.verl.test_attention import SIZES

SHIPPED = REPOSITORY / "aworld_train" / "model" / "shipped"
ROWS, TOKENS, SHARED, VOCABULARY, RATE = 4, 48, 20, 1200, 1e-3
KINDS = {
    "packed": ["trainer.max_batch_tokens=100", "model.attention=sdpa"],
    "varlen": ["trainer.max_batch_tokens=100", "model.attention=torch_varlen"],
    "trie": ["trainer.max_batch_tokens=100", "trainer.shared_prefix=true"],
    "shared": ["trainer.max_batch_tokens=25", "model.attention=torch_varlen", "trainer.sequence_parallel=2"],
}
"""Two ranks have two rows each, in one pass; or share each row, half of it each, in four passes.

With a trie the rows of one rank begin alike, and those of the other do not.
"""
REFUSED_FAMILY = "qwen3"
REFUSED = {"refused": ["trainer.max_batch_tokens=25", "model.attention=sdpa", "trainer.sequence_parallel=2"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model of each family; of two of them the head is the embedding, which VeRL's fused head needs."""
    folders = {}
    for number, family in enumerate(VARLEN_FAMILIES):
        torch.manual_seed(number)
        config = AutoConfig.for_model(
            family,
            **SIZES | {"vocab_size": VOCABULARY},
            tie_word_embeddings=number % 2 == 0,
            eos_token_id=0,
            sliding_window=None,
        )
        folders[family] = tmp_path_factory.mktemp(family)
        AutoModelForCausalLM.from_config(config).float().save_pretrained(folders[family])
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(SHIPPED / file, folders[family])
    return folders


@pytest.fixture(scope="module")
def found(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What two ranks computed for each family and kind."""
    folder = tmp_path_factory.mktemp("gloo")
    cases = [
        {
            "name": f"{family}-{kind}",
            "rows": ROWS,
            "tokens": TOKENS,
            "shared": SHARED,
            "overrides": overrides(models[family], *more),
        }
        for family in models
        for kind, more in (KINDS if family != REFUSED_FAMILY else KINDS | REFUSED).items()
    ]
    # VeRL's fused heads replace what a family's class computes for the rest of the process, and hand no trie on.
    cases.sort(key=lambda case: not str(case["name"]).endswith(TRIE))
    (folder / "cases.json").write_text(json.dumps(cases))
    scripts = str(REPOSITORY / "scripts")
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": scripts}
    errors = [folder / f"{rank}.log" for rank in (0, 1)]
    ranks = []
    try:
        for rank, log in enumerate(errors):
            arguments = ("-m", "tests.gloo_actor", str(folder / "cases.json"), str(rank), "2", str(folder))
            with log.open("wb") as file:
                ranks.append(
                    warm.popen(*arguments, stderr=file, cwd=REPOSITORY, env=environment, kind=warm.LIBRARIES)
                )
        for rank, log in zip(ranks, errors, strict=True):
            assert rank.wait(timeout=560) == 0, log.read_text()[-3000:]
    finally:
        for rank in ranks:
            rank.kill()
    return {
        case["name"]: [json.loads((folder / f"{case['name']}-{rank}.json").read_text()) for rank in (0, 1)]
        for case in cases
    }


def overrides(model: Path, *more: str) -> list[str]:
    return [
        f"model.path={model}",
        "cluster.gpus_per_node=2",
        f"trainer.batch_size={ROWS}",
        f"trainer.lr={RATE}",
        "dataset.max_prompt_tokens=32",
        "rollout.max_response_tokens=16",
        *more,
    ]


def plain(model: Path) -> tuple[torch.Tensor, float, torch.Tensor]:
    """Of one model, row by row: log-probabilities, the gradient's norm, and log-probabilities after a step."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    data = rows_of(ROWS, TOKENS, VOCABULARY, shared=SHARED)
    answers = data["responses"].to_padded_tensor(0)
    ids = data["input_ids"].to_padded_tensor(0)
    advantages = data["advantages"].to_padded_tensor(0)
    count = answers.shape[1]

    def logprobs() -> torch.Tensor:
        logits = torch.cat([network(input_ids=row[None]).logits[:, -count - 1 : -1] for row in ids])
        return logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]

    trainer = recipes.load("base/gpu-1").trainer
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=trainer.weight_decay)
    before = logprobs()
    loss = -(advantages * (before - before.detach()).exp()).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), trainer.grad_clip)
    optimizer.step()
    return before.detach(), float(norm), logprobs().detach()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", VARLEN_FAMILIES)
def test_two_ranks_compute_what_one_plain_model_does(
    family: str, kind: str, models: dict[str, Path], found: dict[str, list[dict[str, Any]]]
) -> None:
    before, norm, after = plain(models[family])
    moved = (after - before).abs().max()
    assert moved > 0.02, "else the update proves nothing"
    ranks = found[f"{family}-{kind}"]
    seen = set()
    for rank in ranks:
        assert f"model.attention={rank['attention']}" in KINDS[kind] or rank["attention"] == kind == TRIE
        start, step = rank["part"]
        seen |= set(range(ROWS)[start::step])
        assert torch.allclose(torch.tensor(rank["before"]), before[start::step], atol=1e-5)
        assert torch.allclose(torch.tensor(rank["after"]), after[start::step], atol=float(0.05 * moved))
    assert seen == set(range(ROWS))
    assert ranks[0]["grad_norm"] == pytest.approx(norm, rel=1e-3)


@pytest.mark.timeout(600)
def test_what_recipe_check_refuses_is_wrong(
    models: dict[str, Path], found: dict[str, list[dict[str, Any]]]
) -> None:
    """With a version of VeRL in which ranks share rows with sdpa too, the refusal can go."""
    before, _, _ = plain(models[REFUSED_FAMILY])
    rank = found[f"{REFUSED_FAMILY}-refused"][0]
    assert (torch.tensor(rank["before"]) - before).abs().max() > 0.1
