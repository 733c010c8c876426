"""The Python API: any framework can be registered, what is given wins over the configuration, checks come first."""

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train.adapter import base
from aworld_train.dataset import build
from aworld_train.errors import AworldTrainError, RecipeError, RewardError, UsageError
from aworld_train.recipe.schema import AgentSection, Recipe
from aworld_train.training import AgentTrainer, TrainerProcessor
from aworld_train.training.framework_processor import FrameworkProcessor
from tests.second_framework import Counting


class Recording(TrainerProcessor):
    """Takes down what it is asked, in order."""

    calls: ClassVar[list[tuple[str, Any]]] = []

    def check_agent(self, agent: Any = None) -> None:
        self.calls.append(("agent", agent))

    def check_dataset(self, dataset: Any = None, test_dataset: Any = None) -> None:
        self.calls.append(("dataset", (dataset, test_dataset)))

    def check_reward(self, reward_func: Any = None) -> None:
        self.calls.append(("reward", reward_func))

    def check_config(self, config: Any = None) -> None:
        self.calls.append(("config", config))

    def train(self) -> str:
        self.calls.append(("train", self.run_path))
        return "trained"


class Refusing(Recording):
    def check_reward(self, reward_func: Any = None) -> None:
        raise RewardError("no")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dataset and what looks like a model from its files."""
    monkeypatch.chdir(tmp_path)
    build("arithmetic", "data", limit=60, splits={"train": 0.5, "val": 0.5})
    model = tmp_path / "model"
    model.mkdir()
    for name in (
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "chat_template.jinja",
    ):
        (model / name).write_text("{}")
    return tmp_path


def config(**sections: Any) -> dict[str, Any]:
    return {
        "name": "t",
        "model": {"path": "model"},
        "env": {"docker_dir": "calculator-mcp-server"},
        "dataset": {"train": "data/train.parquet", "val": "data/val.parquet"},
        **sections,
    }


def processor(trainer: AgentTrainer) -> FrameworkProcessor:
    assert isinstance(trainer.train_processor, FrameworkProcessor)
    return trainer.train_processor


def recipe_of(trainer: AgentTrainer) -> Recipe:
    loaded = processor(trainer).loaded
    assert loaded is not None
    return loaded.recipe


def test_a_registered_framework_is_checked_in_order_and_then_trained_with() -> None:
    AgentTrainer.register_processor("recording", Recording)
    Recording.calls.clear()
    try:
        trainer = AgentTrainer(
            agent="a",
            config={"x": 1},
            reward_func="r",
            train_dataset="d",
            test_dataset="t",
            run_path="out",
            train_engine_name="recording",
        )
        assert [name for name, _ in Recording.calls] == ["agent", "dataset", "reward", "config"]
        assert Recording.calls[1] == ("dataset", ("d", "t"))
        assert trainer.train_processor.initialized
        assert trainer.train() == "trained"
        assert Recording.calls[-1] == ("train", "out")
    finally:
        AgentTrainer.unregister_processor("recording")
    with pytest.raises(UsageError, match="Unknown training framework 'recording'"):
        AgentTrainer(train_engine_name="recording")


def test_a_check_that_fails_comes_before_any_training() -> None:
    AgentTrainer.register_processor("refusing", Refusing)
    Recording.calls.clear()
    try:
        with pytest.raises(RewardError):
            AgentTrainer(train_engine_name="refusing")
        assert [name for name, _ in Recording.calls] == ["agent", "dataset"]
    finally:
        AgentTrainer.unregister_processor("refusing")


def test_only_processors_can_be_registered_and_only_known_ones_forgotten() -> None:
    with pytest.raises(TypeError, match="TrainerProcessor"):
        AgentTrainer.register_processor("x", dict)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Did you mean 'verl'"):
        AgentTrainer.unregister_processor("verll")


def test_a_plain_dict_is_a_valid_config(workspace: Path) -> None:
    trainer = AgentTrainer(config=config())
    assert recipe_of(trainer).model.path == "model"
    assert processor(trainer).data["train"].rows == 30


def test_what_is_given_wins_over_the_config(workspace: Path) -> None:
    build("arithmetic", "other", limit=40, splits={"train": 0.5, "val": 0.5}, seed=5)
    trainer = AgentTrainer(
        agent={"max_turns": 3},
        config=config(
            agent={"max_turns": 7, "tool_timeout": 5}, dataset={"train": "nowhere", "val": "data/val.parquet"}
        ),
        reward_func="gaia",
        train_dataset="other/train.parquet",
        test_dataset=Path("other/val.parquet"),
    )
    recipe = recipe_of(trainer)
    assert (recipe.agent.max_turns, recipe.agent.tool_timeout) == (3, 5)
    assert (recipe.dataset.train, recipe.dataset.val) == ("other/train.parquet", "other/val.parquet")
    assert (recipe.reward.scorer, recipe.reward.function) == ("gaia", None)


def test_an_agent_may_be_an_object_or_a_file(workspace: Path) -> None:
    assert recipe_of(AgentTrainer(agent=AgentSection(max_turns=2), config=config())).agent.max_turns == 2
    Path("agent.yaml").write_text("agent: {max_turns: 4}\n")
    assert recipe_of(AgentTrainer(agent="agent.yaml", config=config())).agent.max_turns == 4
    with pytest.raises(UsageError, match="An agent of the type int"):
        AgentTrainer(agent=3, config=config())


@pytest.mark.parametrize("form", ["table", "rows", "to_parquet"])
def test_data_may_be_given_as_an_object(workspace: Path, form: str) -> None:
    table = pq.read_table("data/train.parquet").slice(0, 20)

    class Frame:
        def to_parquet(self, path: str) -> None:
            pq.write_table(table, path)

    given: Any = {"table": table, "rows": table.to_pylist(), "to_parquet": Frame()}[form]
    trainer = AgentTrainer(train_dataset=given, config=config())
    assert processor(trainer).data["train"].rows == 20
    assert processor(trainer).data["val"].rows == 30


def test_data_that_cannot_be_trained_on_is_refused(workspace: Path) -> None:
    with pytest.raises(UsageError, match="no column"):
        AgentTrainer(train_dataset=pa.table({"a": [1]}), config=config())
    with pytest.raises(RecipeError, match="fewer than one step"):
        AgentTrainer(config=config(trainer={"batch_size": 32, "microbatch_size": 32}))


def score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return 0.0


def test_a_reward_function_is_named_so_that_workers_can_load_it(workspace: Path) -> None:
    trainer = AgentTrainer(reward_func=score, config=config())
    assert recipe_of(trainer).reward.function.endswith(":score")
    with pytest.raises(RewardError, match="top level"):
        AgentTrainer(reward_func=lambda **_: 0.0, config=config())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": {"path": "nowhere"}}, "No such model directory: nowhere"),
        ({"dataset": {"train": None, "val": "data/val.parquet"}}, "dataset.train is not set"),
        ({"dataset": {"train": "data/train.parquet"}}, "dataset.val is not set"),
        ({"reward": {"function": "aworld_train.reward.answer:nope"}}, "nope"),
        ({"verl": {"trainer": {"nnodess": 1}}}, "nnodes"),
        ({"agent": {"name": "other"}}, "mcp_agent"),
        (
            {"model": {"path": "model", "lora": {"rank": 8}}},
            "the engine transformers has no LoRA",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(
    workspace: Path, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AworldTrainError, match=expected):
        AgentTrainer(config=config(**change))
    assert not Path("runs").exists()


def own_scorer(answer: str, ground_truth: str) -> bool:
    return answer == ground_truth


def test_a_function_is_a_scorer_unless_it_has_verls_signature(workspace: Path) -> None:
    scorer = recipe_of(AgentTrainer(config=config(), reward_func=own_scorer)).reward
    assert (scorer.scorer, scorer.function) == (f"{__name__}:own_scorer", None)
    with pytest.raises(RewardError, match="Did you mean 'gaia'"):
        AgentTrainer(config=config(), reward_func="gaja")


def test_tasks_that_a_judge_scores_need_one(workspace: Path) -> None:
    with pytest.raises(RewardError, match=r"reward\.judge\.models"):
        AgentTrainer(config=config(reward={"scorer": "llm_judge"}))


def test_a_framework_may_be_named_in_the_recipe_or_by_the_caller(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_registered", {"counting": Counting})
    in_recipe = AgentTrainer(config=config(trainer={"framework": "counting"}))
    by_caller = AgentTrainer(config=config(), train_engine_name="counting")
    for trainer in (in_recipe, by_caller):
        assert recipe_of(trainer).trainer.framework == "counting"
        plan = processor(trainer).plan_in(workspace)
        assert plan.config == "counting.yaml" and "counting.yaml" in plan.files
    with pytest.raises(UsageError, match=r"Unknown training framework 'countin'\. Did you mean 'counting'"):
        AgentTrainer(config=config(), train_engine_name="countin")
    with pytest.raises(UsageError, match=r"The recipe names the framework counting .*'other'"):
        monkeypatch.setattr(base, "_registered", {"counting": Counting, "other": Counting})
        AgentTrainer(config=config(trainer={"framework": "counting"}), train_engine_name="other")
