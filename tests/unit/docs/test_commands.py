"""Every command of the README and the pages is executed: here, or by the test that stands beside it in a table.

What needs no engine, network, GPU, large model or training runs here, in a folder that has what the pages name. The
rest is in ``ELSEWHERE``, so a new command fails until it runs, or says where it does.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from aworld_train import module_process
from aworld_train.cli.main import main
from aworld_train.model.tiny import SHIPPED
from tests import warm
from tests.code_blocks import CodeBlock, code_blocks
from tests.evaluations import make_evaluation
from tests.locations import REPOSITORY
from tests.run_folders import make_run
from tests.stored_runs import make_stored_run, open_store
from tests.unit.docs.test_code_blocks import commands_in

pytest.importorskip("verl", reason="needs the extra cpu or gpu")

ELSEWHERE = (
    # What whole commands match, what they need, and the test that executes such a command (or checks what it names).
    (r"scripts/quickstart\.sh.*", "a training", "tests/integration/test_scripts.py"),
    (r"scripts/gaia-mini\.sh.*", "a training", "tests/e2e/test_gaia_mini.py"),
    (r"scripts/test\.sh.*", "all tests, this one too", "tests/integration/test_scripts.py"),
    (r"scripts/gpu-proof\.sh", "a GPU", "tests/e2e/test_gpu_proof.py"),
    (r"(\S*pip|uv|python3\.11|source) .*", "a package index", "tests/integration/test_scripts.py"),
    (r"hf download .*", "GAIA's terms", "tests/unit/dataset/sources/test_gaia.py"),
    (r"inspect view .*", "a program of others", "tests/integration/test_exports.py"),
    (r"train .*loggers=.*", "a training", "tests/e2e/test_trackers.py"),
    (r"train .*--launcher ray.*", "a Ray cluster", "tests/e2e/test_ray.py"),
    (r"train .*--launcher slurm.*", "SLURM", "tests/e2e/test_slurm.py"),
    (r"train .*--launcher kubernetes.*", "a Kubernetes cluster", "tests/unit/launch/test_kubectl.py"),
    (r"train .*(gpu|multinode|code-tests)\.yaml", "GPUs", "tests/e2e/test_gpu_proof.py"),
    (r"train .*store\.url=.*", "PostgreSQL", "tests/e2e/test_store.py"),
    (r"dataset rows .*", "episodes of a model", "tests/e2e/test_sft.py"),
    (r"train .*--resume", "a training", "tests/e2e/test_interruptions.py"),
    (r"train .*distill.*", "a training", "tests/e2e/test_distill.py"),
    (r"train (?!.*--dry-run).*", "a training", "tests/e2e/test_training.py"),
    (r"rollout .*", "a model", "tests/integration/test_rollout_command.py"),
    (r"eval (?!compare|report)(?!.*--agent).*", "a model", "tests/integration/test_eval.py"),
    (r"eval compare .*--min-n 200.*", "200 tasks", "tests/unit/evaluation/test_comparing.py"),
    (r"dataset build hf .*", "the hub", "tests/unit/dataset/sources/test_hf.py"),
    (r"dataset synthesize .*", "a language model", "tests/integration/test_synthesize.py"),
    (r"dataset check .*Qwen3-4B.*", "a large model", "tests/unit/dataset/test_check.py"),
    (r"recipe check .*--online", "the hub", "tests/unit/cli/test_recipe.py"),
    (r"doctor.* --engine", "a model", "tests/integration/test_doctor_engine.py"),
    (r"doctor.*", "an answer that depends on the machine", "tests/unit/doctor/test_planted_faults.py"),
    (r"runs checkpoint .*", "a trained model", "tests/unit/cli/test_runs_checkpoint.py"),
    (r"runs watch .*", "a run under way", "tests/unit/training/test_screen.py"),
    (r"runs samplers .*", "a run under way", "tests/e2e/test_chaos_asynchronous.py"),
    (r"runs prune .*step<5", "an answer to a question", "tests/unit/cli/test_runs_episodes.py"),
    (r"runs trace-token .*", "a row of that length", "tests/unit/cli/test_runs_episodes.py"),
    (r"runs compare .*/other/place/b.*", "a folder of the reader's", "tests/unit/cli/test_runs.py"),
    (r"view.*", "a browser", "tests/integration/test_view.py"),
    (r"env (up|down|status|test) .*", "an environment", "tests/integration/test_env_process.py"),
    (r"env (build|config|logs|token) .*", "an environment", "tests/unit/cli/test_env.py"),
    (r"env init .*", "registries of packages", "tests/integration/test_registry_servers.py"),
    (r"reward judge-eval .*", "a judge", "tests/unit/evaluation/test_judge_agreement.py"),
)
EPISODES = {"878e975b", "07d7fb93"}
"""Episodes of the pages, in whose place a command gets one that is there."""
RUNS = ("a", "b", "c", "lr-1e-5", "lr-3e-5")
EVALUATIONS = ("after", "base", "before", "long", "new", "quickstart", "step-100", "step-200", "step-50")


def shown() -> Iterator[tuple[CodeBlock, list[str]]]:
    """Each command that is shown, once, as words without the program's folder."""
    seen = set()
    for block in code_blocks():
        for words in commands_in(block.text) if block.language == "bash" else ():
            words[0] = words[0].removeprefix(".venv/bin/")
            if words[0] not in ("eval", "export") and text_of(words) not in seen:
                seen.add(text_of(words))
                yield block, words


def text_of(words: Sequence[str]) -> str:
    return " ".join(words).removeprefix("aworld-train ")


def here() -> dict[str, list[list[str]]]:
    """By their block's place, the commands that run here."""
    by_block: dict[str, list[list[str]]] = {}
    for block, words in shown():
        if not any(re.fullmatch(pattern, text_of(words)) for pattern, *_ in ELSEWHERE):
            by_block.setdefault(block.place, []).append(words)
    return by_block


HERE = here()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs that the pages name."""
    warm.start(warm.TOKENIZERS)
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "recipes").symlink_to(REPOSITORY / "recipes")
    shutil.copytree(SHIPPED, folder / "models/tiny")
    shutil.copy(REPOSITORY / "recipes/datasets/mix.yaml", folder / "mix.yaml")
    shutil.copy(REPOSITORY / "recipes/quickstart.yaml", folder / "my-recipe.yaml")
    (taskset,) = [block for block in code_blocks() if block.title.startswith("my_tasks.py")]
    (folder / "my_tasks.py").write_text(taskset.text)
    make_inputs(folder)
    build = ["dataset", "build", "jsonl", "--file", f"{folder}/mine.jsonl", "--out", f"{folder}/data"]
    execute([*build, "--split", "train=0.2,val=0.4,test=0.4"])
    parts = list((folder / "data").iterdir())
    for name in ("arithmetic", "gaia", "gaia-validation", "gsm8k", "gsm8k-problems-test"):
        for part in parts:
            (folder / "data" / name).mkdir(exist_ok=True)
            shutil.copy(part, folder / "data" / name)
    runs = folder / "runs"
    runs.mkdir()
    for name in RUNS:
        make_run(runs, name)
    for name in ("quickstart", "long", "gaia"):
        traces = make_stored_run(runs, name) / "traces"
        traces.mkdir()
        write_lines(traces / "episodes.jsonl", [{"step": 1, "validate": False, "outcome": "answered"}])
    for name in EVALUATIONS:
        make_evaluation(runs, f"eval-{name}")
    return folder


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "state"))


def make_inputs(folder: Path) -> None:
    """Files that a reader would bring."""
    tasks = [
        {"id": str(n), "query": f"{n}*7?", "problem": f"{n}*7?", "answer": str(n * 7), "scorer": "number"}
        for n in range(80)
    ]
    for name in ("mine", "programs", "tasks", "hle", "browsecomp", "webwalker", "xbench"):
        write_lines(folder / f"{name}.jsonl", tasks)
    for name, first in (("train", 3), ("test", 50)):
        problems = [
            {"question": f"Ann has {n} bags of 4.", "answer": f"<<{n}*4={n * 4}>>\n#### {n * 4}"}
            for n in range(first, first + 40)
        ]
        write_lines(folder / f"{name}.jsonl", problems)
    (folder / "aufgaben.csv").write_text("Frage;Antwort\n" + "".join(f"{n}*7;{n * 7}\n" for n in range(20)))
    prediction = {"id": "17", "answer": "119", "prediction": "<answer>119</answer>"}
    write_lines(folder / "predictions.jsonl", [prediction])
    (folder / "reply.txt").write_text(str(prediction["prediction"]))
    gaia = folder / "gaia/2023/validation"
    gaia.mkdir(parents=True)
    (folder / "GAIA").symlink_to("gaia")
    rows = [
        {"task_id": str(n), "Question": f"{n}*7?", "Level": 1, "Final answer": str(n * 7), "file_name": ""}
        for n in range(6)
    ]
    write_lines(gaia / "metadata.jsonl", rows)


def write_lines(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def execute(arguments: Sequence[str]) -> None:
    """Run the command line in this folder, in this process if it loads no tokenizer."""
    if "--model" in arguments:
        ended = warm.run("-m", "aworld_train", *arguments, timeout=300, kind=warm.TOKENIZERS)
        assert ended.returncode == 0, f"{shlex.join(arguments)}\n{ended.stderr}"
        return
    with (
        patch.dict(os.environ),  # a command may set variables for what it starts
        pytest.MonkeyPatch.context() as changed,
        pytest.raises(SystemExit) as exited,
    ):
        changed.setattr(sys, "argv", ["aworld-train", *arguments])
        changed.setattr(module_process, "sys", SimpleNamespace(executable=os.environ[warm.STAND_IN_VARIABLE]))
        main()
    assert exited.value.code in (None, 0), shlex.join(arguments)


@pytest.mark.parametrize("place", HERE)
def test_commands_run(place: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(prepared, folder, symlinks=True)
    monkeypatch.chdir(folder)
    for program, *arguments in HERE[place]:
        assert program == "aworld-train", f"{program}: name what runs it in ELSEWHERE"
        if "--out" in arguments:  # what a page makes, another one needs
            shutil.rmtree(arguments[arguments.index("--out") + 1], ignore_errors=True)
        execute([episode_of(folder) if word in EPISODES else word for word in arguments])


def episode_of(folder: Path) -> str:
    """The id of an episode of the run quickstart."""
    store = open_store(folder / "runs/quickstart")
    assert store is not None
    with store:
        return store.ids()[0]


@pytest.mark.parametrize(("pattern", "needs", "test"), ELSEWHERE, ids=[pattern for pattern, *_ in ELSEWHERE])
def test_each_command_that_runs_elsewhere_is_shown_and_has_a_test(
    pattern: str, needs: str, test: str
) -> None:
    assert [words for _, words in shown() if re.fullmatch(pattern, text_of(words))]
    assert needs and (REPOSITORY / test).is_file()
