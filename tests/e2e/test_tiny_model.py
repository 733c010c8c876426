"""A tiny model, really made: inside its gate, in time, loadable by anyone, and a start that GRPO can raise."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn.functional import cross_entropy

from aworld_train import dataset
from aworld_train.model import attempt, measurement, tasks
from aworld_train.model.sampling import play
from aworld_train.model.transcripts import Task, TranscriptEncoder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = 1
GROUPS, GROUP, STEPS, LR = 16, 8, 10, 2e-4


def make(folder: Path) -> dict[str, Any]:
    """What the command reports; Hugging Face's hub is switched off for it."""
    command = [sys.executable, "-m", "aworld_train", "model", "tiny", "--json", "--seed", str(SEED)]
    files = ["--train", str(folder / "data" / "train.parquet"), "--val", str(folder / "data" / "val.parquet")]
    done = subprocess.run(
        [*command, "--out", str(folder / "model"), *files],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tiny")
    dataset.build("arithmetic", folder / "data", seed=7)
    return folder, make(folder)


def load(folder: Path) -> tuple[Any, TranscriptEncoder]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return model, TranscriptEncoder(AutoTokenizer.from_pretrained(folder, local_files_only=True))


def test_it_is_made_inside_the_gate_and_the_time(made: tuple[Path, dict[str, Any]]) -> None:
    _, report = made
    assert attempt.LOWEST_ACCURACY <= report["accuracy"] <= attempt.HIGHEST_ACCURACY
    assert report["mixed_groups"] >= attempt.FEWEST_MIXED_GROUPS
    assert 0.1 < report["sampled_tool_use"] < 0.9
    assert report["cpu_seconds"] < 170
    assert report["parameters"] < 3_000_000
    assert report["prompt_tokens"] <= 45
    assert report["episode_tokens"] <= 100
    tool = [entry["accuracy"] for entry in report["history"] if entry["phase"] == "tool"]
    assert max(tool) >= 0.95


def test_it_loads_as_qwen3_and_measures_what_was_reported(made: tuple[Path, dict[str, Any]]) -> None:
    folder, report = made
    model, encoder = load(folder / "model")
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype == torch.float32
    assert model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == encoder.tokenizer.eos_token_id
    _, measured = tasks.gather(folder / "data" / "train.parquet", folder / "data" / "val.parquet", SEED)
    assert measurement.greedy(model, encoder, measured).accuracy == pytest.approx(
        report["accuracy"], abs=0.01
    )


def test_making_it_again_does_nothing(made: tuple[Path, dict[str, Any]]) -> None:
    folder, report = made
    weights = (folder / "model" / "model.safetensors").stat()
    assert make(folder) == {**report, "reused": True}
    assert (folder / "model" / "model.safetensors").stat() == weights


def test_ten_grpo_steps_raise_greedy_accuracy_by_20_points(made: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = made
    model, encoder = load(folder / "model")
    shown = tasks.read(folder / "data" / "train.parquet")
    held_out = tasks.read(folder / "data" / "val.parquet")[:256]
    before = measurement.greedy(model, encoder, held_out).accuracy
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    for _ in range(STEPS):
        loss = grpo_loss(model, encoder, rng.sample(shown, GROUPS), generator)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    after = measurement.greedy(model, encoder, held_out).accuracy
    assert after - before >= 0.2, (before, after)


def grpo_loss(
    model: Any, encoder: TranscriptEncoder, asked: list[Task], generator: torch.Generator
) -> torch.Tensor:
    """GRPO's policy gradient for one batch of groups sampled by the model itself, averaged over tokens."""
    repeated = [task for task in asked for _ in range(GROUP)]
    episodes = play(
        model, encoder, [task.expression for task in repeated], temperature=1.0, generator=generator
    )
    right = [float(e.answer == task.value) for e, task in zip(episodes, repeated, strict=True)]
    rewards = torch.tensor(right).view(-1, GROUP)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
    longest = max(len(episode.transcript.ids) for episode in episodes)

    def padded(rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    ids = padded([episode.transcript.ids for episode in episodes])
    written = padded([episode.transcript.mask for episode in episodes])[:, 1:].bool()
    logits = model(input_ids=ids).logits[:, :-1]
    losses = cross_entropy(logits[written], ids[:, 1:][written], reduction="none")
    return (losses * advantages.view(-1, 1).expand_as(written)[written]).mean()
