"""The forms in which a program gives agents, tasks and configurations, and what a run makes of each."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.adapter.verl.framework import VerlFramework
from aworld_train.agent import AWorldAgentLoop
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.training.arguments.agent import agent_argument
from aworld_train.training.arguments.config import config_argument
from aworld_train.training.arguments.dataset import dataset_argument

QUESTIONS = [{"query": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(1, 6)]


# Agents


def build() -> Any:
    return str


class Loop(AWorldAgentLoop):
    def build_agents(self) -> Any:
        return str


FILE = """
from aworld_train.agent import AWorldAgentLoop

def build(context):
    return str

class Loop(AWorldAgentLoop):
    def build_agents(self):
        return str
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(FILE)
    Path("team.yaml").write_text("name: team\ntopology: workflow\nagents: [{name: a}]\n")
    Path("section.yaml").write_text("agent: {max_turns: 4, builder: 'own.py:build'}\n")
    Path("bare.yaml").write_text("max_turns: 4\n")


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (None, {}),
        (build, {"builder": f"{__name__}:build"}),
        (Loop, {"loop": f"{__name__}:Loop"}),
        ("own.py:build", {"builder": "own.py:build"}),
        ("own.py:Loop", {"loop": "own.py:Loop"}),
        (f"{__name__}:build", {"builder": f"{__name__}:build"}),
        ("team.yaml", {"aworld": "team.yaml"}),
        (Path("section.yaml"), {"max_turns": 4, "builder": "own.py:build"}),
        ("bare.yaml", {"max_turns": 4}),
        ({"max_turns": 2}, {"max_turns": 2}),
    ],
    ids=[
        "none",
        "function",
        "class",
        "file",
        "file's class",
        "module",
        "aworld",
        "section file",
        "bare",
        "mapping",
    ],
)
def test_an_agent_becomes_a_section(agent: Any, expected: dict[str, Any]) -> None:
    assert agent_argument(agent).section == expected


def test_an_agent_takes_the_place_of_the_configurations(tmp_path: Path) -> None:
    section = agent_argument(build).section_in(tmp_path, "run")
    assert section == {"builder": f"{__name__}:build", "command": [], "aworld": None, "loop": None}
    assert agent_argument({"max_turns": 2}).section_in(tmp_path, "run") == {"max_turns": 2}


class HasMethod:
    def build(self) -> Any:
        return str


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (lambda: str, "top level of a file"),
        (HasMethod().build, "top level of a file"),
        (7, "An agent of the type int"),
        ("own.py:bild", "Did you mean 'build'"),
        ("nowhere.yaml", "cannot be read"),
        ("no.module:build", "importing no.module failed"),
    ],
    ids=["lambda", "method", "number", "name", "file", "module"],
)
def test_an_agent_that_no_other_process_can_load_is_refused(agent: Any, message: str) -> None:
    with pytest.raises(AworldTrainError, match=message):
        agent_argument(agent)


def test_a_file_that_may_be_a_section_or_an_aworld_agent_is_refused() -> None:
    Path("both.yaml").write_text("name: a\nsystem_prompt: b\n")
    with pytest.raises(UsageError, match="add `tools: true` if it is an AWorld agent"):
        agent_argument("both.yaml")


SCRIPT = """
from pathlib import Path
from aworld_train.training import AgentTrainer
from aworld_train.training.processor import TrainerProcessor
from aworld_train.reward.loading import name_reward
from aworld_train.training.arguments.agent import agent_argument
from aworld_train.user_code import load_user_code

def reward(answer, ground_truth):
    return answer == ground_truth

def build():
    return str

class Prints(TrainerProcessor):
    def check_agent(self, agent=None):
        spec = agent_argument(agent).section["builder"]
        print("agent", load_user_code(spec, "agent")().__name__)
    def check_dataset(self, dataset=None, test_dataset=None): ...
    def check_reward(self, reward_func=None):
        print("reward", load_user_code(name_reward(reward_func), "reward")("1", "1"))
    def check_config(self, config=None): ...
    def train(self):
        return "trained"

AgentTrainer.register_processor("prints", Prints)
print("before")
trainer = AgentTrainer(agent=build, reward_func=reward, train_engine_name="prints")
print(trainer.train())
"""


@pytest.mark.parametrize("agent", ["build", "'script:build'", "'script.py:build'"])
def test_a_script_without_a_main_guard_may_define_what_it_trains_with(tmp_path: Path, agent: str) -> None:
    Path("script.py").write_text(SCRIPT.replace("agent=build,", f"agent={agent},"))
    command = [sys.executable, "script.py", "an argument"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # The script runs again for what it defines, each time up to the place where it makes its trainer.
    lines = [line for line in done.stdout.splitlines() if line != "before"]
    assert lines == ["agent str", "reward True", "trained"]


# Tasks


def forms() -> dict[str, Any]:
    lines = "".join(json.dumps(row) + "\n" for row in QUESTIONS)
    Path("q.jsonl").write_text(lines)
    Path("q.csv").write_text("query,answer\n" + "".join(f"{r['query']},{r['answer']}\n" for r in QUESTIONS))
    table = pa.Table.from_pylist(QUESTIONS)
    pq.write_table(table, "q.parquet")
    Path("tasks.py").write_text(
        "import json\ndef source(options):\n    return map(json.loads, open('q.jsonl'))\n"
    )

    class Frame:
        def to_parquet(self, path: str) -> None:
            pq.write_table(table, path)

    return {
        "jsonl": "q.jsonl",
        "csv": Path("q.csv"),
        "parquet": "q.parquet",
        "list": QUESTIONS,
        "table": table,
        "to_parquet": Frame(),
        "source": "tasks.py:source",
    }


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "list", "table", "to_parquet", "source"])
def test_questions_and_answers_are_built_into_rows(tmp_path: Path, form: str) -> None:
    listed: list[str] = []
    path = dataset_argument(forms()[form], tmp_path / "data", "run", "train", listed.append)
    rows = pq.read_table(path).to_pylist()
    assert sorted(row["reward_model"]["ground_truth"] for row in rows) == ["10", "2", "4", "6", "8"]
    assert all(row["prompt"][-1]["content"].startswith("What is") for row in rows)
    assert path == tmp_path / "data/run-train/train.parquet" and not listed
    again = dataset_argument(QUESTIONS[:2], tmp_path / "data", "run", "train", listed.append)
    assert (again, pq.read_metadata(again).num_rows) == (path, 2)


def test_rows_stay_as_they_are_and_what_is_left_out_is_listed(tmp_path: Path) -> None:
    listed: list[str] = []
    questions = [*QUESTIONS, {"query": "", "answer": "1"}, {"query": "What?"}]
    path = dataset_argument(questions, tmp_path / "data", "run", "val", listed.append)
    assert listed and listed[0].startswith("val: 2 of 7 records were left out (")
    assert "dropped.jsonl" in listed[0]
    assert dataset_argument(path, tmp_path / "data", "other", "val", listed.append) == path
    rows = pq.read_table(path)
    for form in (rows, rows.to_pylist()):
        copied = dataset_argument(form, tmp_path / "data", "copy", "val", listed.append)
        assert pq.read_table(copied).num_rows == 5
    assert len(listed) == 1


def test_data_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AworldTrainError, match="A dataset of the type int"):
        dataset_argument(3, tmp_path, "run", "train", print)
    with pytest.raises(AworldTrainError, match="A task is a mapping"):
        dataset_argument([1, 2], tmp_path, "run", "train", print)


# Configurations


RECIPE = {"name": "r", "trainer": {"steps": 2}}
VERL = """
defaults: [ppo_trainer, _self_]
data: {train_files: "", val_files: [val.parquet], train_batch_size: 4, max_prompt_length: 100}
actor_rollout_ref:
  model: {path: some-model}
  actor: {optim: {lr: 1.0e-5}, use_torch_compile: false}
  rollout: {n: 2, agent: {agent_loop_config_path: null}}
custom_reward_function: {path: null, name: null}
trainer: {total_training_steps: 7, experiment_name: gaia}
"""


@pytest.mark.parametrize("config", [RECIPE, json.dumps(RECIPE), "name: r\ntrainer: {steps: 2}\n"], ids=type)
def test_a_configuration_may_be_a_mapping_or_text(config: Any) -> None:
    assert config_argument(config, VerlFramework()) == RECIPE


def test_a_configuration_of_verl_becomes_a_recipe() -> None:
    Path("grpo.yaml").write_text(VERL)
    expected = {
        "name": "gaia",
        "dataset": {"val": ["val.parquet"], "max_prompt_tokens": 100},
        "model": {"path": "some-model"},
        "rollout": {"n": 2},
        "trainer": {"batch_size": 4, "lr": 1.0e-5, "steps": 7},
        "verl": {"actor_rollout_ref": {"actor": {"use_torch_compile": False}}},
    }
    for config in ("grpo.yaml", Path("grpo.yaml"), VERL):
        assert config_argument(config, VerlFramework()) == expected
    assert config_argument("no-such.yaml", VerlFramework()) == "no-such.yaml"
    assert config_argument(None, VerlFramework()) == {}


@pytest.mark.parametrize("text", ["- a\n- b\n", "{", "a: [\n"])
def test_a_text_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="The text of the configuration"):
        config_argument(text, VerlFramework())
