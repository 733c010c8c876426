"""`aworld-train rollout`: single episodes through the command line, with a real environment and real tokens."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aworld_train.dataset import build
from aworld_train.dataset.check import find_row
from aworld_train.recipe.locate import shipped_folder
from tests import warm
from tests.models import shipped_tokenizer, tiny_qwen3_of
from tests.vllm_stub import VllmStub

TOKENIZER = shipped_tokenizer()
RECIPE = str(shipped_folder() / "quickstart.yaml")
ANSI = re.compile(r"\x1b\[([0-9;]*)m")
BOLD = "1;32"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the quickstart needs, with a model of random weights."""
    made = tmp_path_factory.mktemp("rollout")
    build("arithmetic", made / "data" / "arithmetic", limit=40)
    TOKENIZER.save_pretrained(made / "models" / "tiny")
    tiny_qwen3_of(TOKENIZER).save_pretrained(made / "models" / "tiny")
    return made


def rollout(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(
        *("-m", "aworld_train", "rollout", *arguments),
        cwd=folder,
        env={**os.environ, **environment},
        timeout=240,
        kind=warm.VERL,
    )


def val_task(folder: Path) -> dict[str, Any]:
    return find_row(folder / "data" / "arithmetic" / "val.parquet", None)


def test_json_has_every_token_with_its_logprob_and_whether_it_is_trained_on(folder: Path) -> None:
    done = rollout(folder, RECIPE, "rollout.max_response_tokens=24", "-n", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert "The chat template continues each turn" in done.stderr
    report = json.loads(done.stdout)
    assert report["task"] == val_task(folder)["extra_info"]["index"]
    assert len(report["episodes"]) == 2
    for episode in report["episodes"]:
        [row] = episode["rows"]
        assert len(row["response_ids"]) == len(row["response_mask"]) == len(row["response_logprobs"])
        assert len(row["response_ids"]) <= 24
        assert episode["prompt_tokens"] == len(row["prompt_ids"])
        assert episode["sampled_tokens"] == sum(row["response_mask"]) > 0
        assert all(
            (p < 0) == bool(m) for p, m in zip(row["response_logprobs"], row["response_mask"], strict=True)
        )
        assert sum(completion["tokens"] for completion in episode["completions"]) == episode["sampled_tokens"]
        assert [completion["agent"] for completion in episode["completions"]] == ["agent"] * episode["turns"]
        assert episode["outcome"] in ("overlong", "answered", "format")
        assert episode["reward"] == episode["scores"]["score"]
        question = val_task(folder)["prompt"][-1]["content"]
        assert f"{question}<|im_end|>" in TOKENIZER.decode(row["prompt_ids"])
    first, second = (episode["rows"][0]["response_ids"] for episode in report["episodes"])
    assert first != second, "two samples of a random model at temperature 1"


class Script:
    """A served model that computes with its tool, and then says what the tool said."""

    def __init__(self, expression: str):
        arguments = json.dumps({"name": "calculator", "arguments": {"expression": expression}})
        self.call = f"<tool_call>\n{arguments}\n</tool_call><|im_end|>"
        self.answer = ""

    def __call__(self, prompt: list[int]) -> list[int]:
        result = re.search(r"<tool_response>\n(.*)\n</tool_response>", TOKENIZER.decode(prompt))
        if result is None:
            return list(TOKENIZER.encode(self.call))
        self.answer = f"<answer>{result[1]}</answer><|im_end|>"
        return list(TOKENIZER.encode(self.answer))


def test_an_episode_with_a_served_model_is_shown_and_bold_is_exactly_what_it_sampled(folder: Path) -> None:
    task = val_task(folder)
    question = task["prompt"][-1]["content"]
    script = Script(question.removeprefix("What is ").removesuffix("?"))
    rules = "\\n".join(f"Rule {number}." for number in range(40))
    with VllmStub(script, key="the-key") as server:
        done = rollout(
            folder,
            RECIPE,
            f'agent.system_prompt="{rules}"',
            "dataset.max_prompt_tokens=600",
            *("--task", str(task["extra_info"]["index"]), "--model-url", server.url),
            FORCE_COLOR="1",
            COLUMNS="200",
            OPENAI_API_KEY="the-key",
        )
    assert done.returncode == 0, done.stderr
    assert "the-key" not in done.stdout + done.stderr
    first, second = (body["prompt"] for body in server.bodies)
    assert second[: len(first)] == first
    assert second[len(first) :][: len(TOKENIZER.encode(script.call))] == TOKENIZER.encode(script.call)

    plain = ANSI.sub("", done.stdout)
    assert "episode 1 of 1 · agent" in plain
    assert "outcome answered (trained) · reward 1 by number · " in plain
    assert "1 tool call, 0 errors" in plain
    assert "Rule 1." in plain
    assert "Rule 20." not in plain
    assert question in plain
    assert re.search(r"\[… \d+ lines, --full shows them …\]", plain)
    assert _bold(done.stdout) == [*script.call.split("\n"), script.answer]


def _bold(shown: str) -> list[str]:
    """The bold parts, line by line."""
    return [part.strip() for part in re.findall(rf"\x1b\[{BOLD}m(.*?)\x1b\[0m", shown)]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--task", "999999"], 2, r"val\.parquet has no task 999999: its tasks are \d+ to \d+\."),
        (["--dataset", "none.parquet"], 2, r"none\.parquet"),
        (["model.path=no-model"], 1, "No such model directory: no-model"),
        (
            ["dataset.train=null", "dataset.val=null"],
            2,
            "has no dataset: set dataset.val, or name one with --dataset",
        ),
        (["--task", "first"], 2, "--task"),
        (["-n", "0"], 2, "--n"),
        (["agent.max_turns=0"], 2, "`agent.max_turns` must be at least 1"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_is_started(
    folder: Path, arguments: list[str], code: int, sentence: str
) -> None:
    done = rollout(folder, RECIPE, *arguments, "--json")
    assert done.returncode == code
    assert re.search(sentence, json.loads(done.stdout)["error"]["message"])
    assert "Traceback" not in done.stderr
    assert "Starting" not in done.stderr


def test_an_answer_that_takes_for_ever_to_compute_has_the_reward_0_and_keeps_its_place(folder: Path) -> None:
    agent = Path(__file__).parents[1] / "bombing_agent.py"
    options = [f"agent.builder={agent}:bombing", "reward.scorer=math", "rollout.max_response_tokens=24"]
    done = rollout(folder, RECIPE, *options, "-n", "8", "--json")
    assert done.returncode == 0, done.stderr
    episodes = json.loads(done.stdout)["episodes"]
    bombed = [episode for episode in episodes if episode["scoring"] == "too_hard"]
    assert len(bombed) == 4
    for episode in bombed:
        assert (episode["reward"], episode["scores"]["acc"]) == (0.0, 0.0)
        assert (episode["treatment"], episode["cause"]) == ("trained", None)
        # It is trained on like any other: its tokens are in the loss, and its 0 is in its group's advantage.
        assert all(sum(row["response_mask"]) > 0 for row in episode["rows"])
        assert len(episode["completions"]) == 1, "it was played once"
