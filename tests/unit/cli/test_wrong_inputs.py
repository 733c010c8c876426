"""Wrong inputs over all commands: each gets one paragraph that names the fault, an exit code, and changes no file."""

import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aworld_train.cli.main import COMMANDS, main
from aworld_train.model.tiny import SHIPPED
from tests.stored_runs import make_stored_run

pytest.importorskip("verl", reason="needs the extra cpu or gpu")

RECIPE = """\
name: mine
model: {path: model}
env: {docker_dir: calculator-mcp-server, backend: process}
dataset: {train: data/train.parquet, val: data/val.parquet}
trainer: {steps: 2}
"""
LONG = "x" * 300
WITHOUT_INPUT = ("runs clean", "env list", "recipe list", "recipe schema")

INPUTS = [
    # The line, its exit code, and what the error names.
    ("", 2, ""),
    ("trian recipe.yaml", 2, "Did you mean 'train'?"),
    ("env upp", 2, "Did you mean 'up'?"),
    ("train", 2, "Missing argument 'RECIPE'"),
    ("train recip.yaml", 2, "Did you mean 'recipe.yaml'?"),
    ("train full", 2, "unknown recipe full"),
    ("train binary.parquet", 2, "binary.parquet"),
    ("train loop", 2, "loop"),
    (f"train {LONG}", 2, "File name too long"),
    ("train recipe.yaml trainer.stepz=3", 2, "trainer.steps"),
    ("train recipe.yaml trainer.steps=many", 2, "many"),
    ("train recipe.yaml trainer.steps", 2, "trainer.steps"),
    ("train recipe.yaml --runs table.csv", 2, "Nothing can be written below table.csv"),
    ("train recipe.yaml --runs /proc/nowhere", 2, "Nothing can be written below /proc/nowhere"),
    ("train recipe.yaml --out plan", 2, "--dry-run"),
    ("train recipe.yaml --launcher slrum", 2, "slurm"),
    ("train recipe.yaml --resume", 2, "No run to resume"),
    ("train recipe.yaml name=one", 2, "--resume"),
    ("train recipe.yaml --resum", 2, "--resume"),
    ("eval recipe.yaml --checkpoint nowhere", 2, "nowhere"),
    ("eval recipe.yaml --checkpoint full", 2, "full"),
    ("eval recipe.yaml --dataset nowhere.parquet", 2, "nowhere.parquet"),
    ("eval recipe.yaml --dataset binary.parquet", 2, "binary.parquet is not a parquet file"),
    ("eval recipe.yaml --model-url gpu:8000", 2, "gpu:8000"),
    ("eval recipe.yaml --model m", 2, "--model-url"),
    ("eval recipe.yaml --model-url http://127.0.0.1:1 --checkpoint model", 2, "give one of them"),
    ("eval recipe.yaml --agent oracel", 2, "Did you mean 'oracle'?"),
    ("eval recipe.yaml --limit 0", 2, "--limit"),
    ("eval recipe.yaml --k many", 2, "valid integer"),
    ("eval recipe.yaml --agent null --runs table.csv", 2, "table.csv"),
    ("eval recipe.yaml --resume --runs nowhere", 2, "nowhere"),
    ("eval compare one", 2, "one"),
    ("eval compare one two", 2, "one"),
    ("eval compare one one --fail-if-worse 2", 2, "--fail-if-worse"),
    ("eval report one", 2, "one"),
    ("eval report oen", 2, "one"),
    ("rollout recipe.yaml --dataset nowhere.parquet", 2, "nowhere.parquet"),
    ("rollout recipe.yaml --task 9999", 2, "9999"),
    ("rollout recipe.yaml --n 0", 2, "greater than or equal to 1"),
    ("runs list --runs rusn", 2, "Did you mean 'runs'?"),
    ("runs show oen", 2, "Did you mean 'one'?"),
    (f"runs show {LONG}", 2, "File name too long"),
    ("runs compare one", 2, "two runs or more"),
    ("runs compare one two", 2, "'two'"),
    ("runs plot one -f losss", 2, "loss"),
    ("runs plot one -o full", 2, "full"),
    ("runs plot one -o nowhere/x.png", 2, "nowhere"),
    ("runs attach oen", 2, "Did you mean 'one'?"),
    ("runs logs one", 2, "no log"),
    ("runs logs one --follow --lines 3", 2, "give one of them"),
    ("runs stop one", 2, "No process works"),
    ("runs samplers one 2", 2, "trainer.mode: sync"),
    ("runs watch oen", 2, "Did you mean 'one'?"),
    ("runs watch one", 2, "one is completed, so no training can be watched"),
    ("runs reproduce one --out recipe.yaml", 2, "recipe.yaml exists"),
    ("runs reproduce one --out nowhere/x.yaml", 2, "nowhere"),
    ("runs report one --out full", 2, "full"),
    ("runs report one --out nowhere/x.html", 2, "nowhere"),
    ("runs export one --format messages --out table.csv", 2, "table.csv exists"),
    ("runs export one --format messages --out full", 2, "full is a folder"),
    ("runs export one --format messages --out nowhere/x", 2, "nowhere"),
    ("runs export one --format messages --out /proc/x", 2, "/proc"),
    ("runs export one --format mesages --out x", 2, "mesages"),
    ("runs export one --format inspect --out x", 2, ".eval"),
    ("runs export one --format messages --out x --where outcome=agent", 1, "outcome=agent"),
    ("runs export one --format messages --out x --where phase=trian", 2, "Did you mean 'train'?"),
    ("runs checkpoint one", 2, "checkpoint"),
    ("runs checkpoint one --step 7 --to x", 2, "checkpoint"),
    ("runs checkpoint one --to full --dtype int8", 2, "int8"),
    ("runs episodes one --where rewrad=0", 2, "Did you mean 'reward'?"),
    ("runs episodes one --where 'reward='", 2, "a value is missing"),
    ("runs episodes one --sort rewrad", 2, "rewrad"),
    ("runs episodes one -n 0", 2, "greater than or equal to 1"),
    ("runs episode one nothing", 2, "nothing"),
    ("runs trace-token one --step 99 --row 0 --token 0", 2, "99"),
    ("runs trace-token one --step 1 --row 0 --token 99999", 2, "99999"),
    ("runs prune one", 2, "--where"),
    ("view rusn", 2, "rusn"),
    ("view runs --port 99999", 2, "less than or equal to 65535"),
    ("env up", 2, "--docker-dir"),
    ("env up --docker-dir calculator-mcp-sever", 2, "calculator-mcp-server"),
    ("env up --docker-dir full", 2, "full"),
    ("env up --docker-dir calculator-mcp-server --backend podman", 2, "podman"),
    ("env up --docker-dir calculator-mcp-server --memory lots", 2, "lots"),
    ("env up --docker-dir calculator-mcp-server --cpus 0", 2, "--cpus"),
    ("env up --docker-dir calculator-mcp-server --ttl soon", 2, "soon"),
    ("env up --docker-dir calculator-mcp-server --env-file nowhere.env", 2, "nowhere.env"),
    ("env up --docker-dir calculator-mcp-server --backend process --data nowhere", 2, "nowhere"),
    ("env up --docker-dir calculator-mcp-server --backend process --servers calc", 2, "calc"),
    ("env up --docker-dir calculator-mcp-server --backend process --port 99999", 2, "99999"),
    ("env up --docker-dir calculator-mcp-server --backend process --workers 0", 2, "workers"),
    ("env up --mcp-servers nowhere.json", 2, "nowhere.json"),
    ("env init tools", 2, "--from"),
    ("env init tools --from nowhere.json", 2, "nowhere.json"),
    ("env build --docker-dir nowhere", 2, "nowhere"),
    ("env down one --all", 2, "only one of them"),
    ("env status nowhere", 1, "nowhere"),
    ("env test nowhere", 1, "nowhere"),
    ("env logs nowhere", 1, "nowhere"),
    ("env config nowhere --format mpc", 1, "nowhere"),
    ("env token nowhere", 1, "nowhere"),
    ("dataset build csvv --file table.csv --out d", 2, "csv"),
    ("dataset build csv --out d", 2, "--file"),
    ("dataset build csv --file nowhere.csv --out d", 2, "nowhere.csv"),
    ("dataset build csv --file full --out d", 2, "full"),
    ("dataset build csv --file latin.csv --out d", 1, "--encoding"),
    ("dataset build csv --file latin.csv --encoding klingon --out d", 2, "klingon"),
    ("dataset build csv --file table.csv --map query --out d", 2, "query"),
    ("dataset build csv --file table.csv --map query=nothing --out d", 2, "nothing"),
    ("dataset build csv --file table.csv --scorer nmber --out d", 2, "number"),
    ("dataset build csv --file table.csv --split train=2 --out d", 2, "at most 1"),
    ("dataset build csv --file table.csv --out full", 2, "full"),
    ("dataset build csv --file table.csv --out table.csv", 2, "table.csv"),
    ("dataset build csv --file table.csv --out /proc/d", 2, "/proc"),
    ("dataset build jsonl --file odd.jsonl --strict --out d", 1, "odd.jsonl, line 1"),
    ("dataset build own.py:tasks --out d", 2, "own.py"),
    ("dataset build nowhere.yaml --out d", 2, "nowhere.yaml"),
    ("dataset build arithmetic --limit 0 --out d", 2, "limit"),
    ("dataset build arithmetic --against nowhere --out d", 2, "nowhere"),
    ("dataset check nowhere.parquet", 2, "nowhere.parquet"),
    ("dataset check full", 2, "full is a directory"),
    ("dataset check binary.parquet", 2, "binary.parquet"),
    ("dataset check data/train.parquet --max-prompt-tokens 5", 2, "--model DIR"),
    ("dataset check data/train.parquet --model nowhere --max-prompt-tokens 5", 2, "nowhere"),
    ("dataset show nowhere.parquet", 2, "nowhere.parquet"),
    ("dataset show binary.parquet", 2, "binary.parquet"),
    ("dataset stats nowhere.parquet", 2, "nowhere.parquet"),
    ("dataset stats data/train.parquet --model full", 2, "full"),
    ("dataset rows --file nowhere.jsonl --model model --out rows", 2, "nowhere.jsonl"),
    (
        "dataset synthesize recipe.yaml --seeds nowhere --out made --model-url http://127.0.0.1:9/v1",
        2,
        "nowhere",
    ),
    ("model tiny", 2, "--out"),
    ("model tiny --out full", 2, "full"),
    ("model tiny --out table.csv", 2, "table.csv"),
    ("model tiny --out /proc/m", 2, "/proc"),
    ("recipe show recip.yaml", 2, "Did you mean 'recipe.yaml'?"),
    ("recipe show recipe.yaml --diff --composed", 2, "Give one"),
    ("recipe check recipe.yaml dataset.train=nowhere.parquet", 2, "nowhere.parquet"),
    ("recipe check recipe.yaml --for evaluate", 2, "evaluate"),
    ("recipe check latin.csv", 2, "latin.csv"),
    ("recipe check odd.jsonl", 2, "odd.jsonl"),
    ("recipe init recipe.yaml", 2, "recipe.yaml exists already"),
    ("recipe init nowhere/x.yaml", 2, "No such folder: nowhere"),
    ("recipe init x.yaml --from quickstrat", 2, "quickstart"),
    ("recipe init /proc/x.yaml", 2, "/proc"),
    ("doctor recip.yaml", 2, "Did you mean 'recipe.yaml'?"),
    ("doctor --engine", 2, "name the recipe"),
    ("reward score nowhere.jsonl", 2, "nowhere.jsonl"),
    ("reward score full", 2, "full"),
    ("reward score odd.jsonl --dataset nowhere.parquet", 2, "nowhere.parquet"),
    ("reward score empty.jsonl", 2, "has no lines"),
    ("reward score odd.jsonl reward.scorer=math", 2, "--recipe"),
    ("reward explain --prediction 1 --answer 1 --scorer nmber", 2, "nmber"),
    ("reward judge-eval nowhere.jsonl --url http://127.0.0.1:1/v1 --model m", 2, "nowhere.jsonl"),
    ("reward suspects nowhere", 2, "nowhere"),
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from aworld_train.dataset import build

    folder = tmp_path_factory.mktemp("wrong")
    build("arithmetic", folder / "data", limit=200, splits={"train": 0.5, "val": 0.5})
    make_stored_run(folder / "runs", steps=1)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "table.csv").write_text("query,answer\n1 + 1?,2\n2 + 2?,4\n")
    (folder / "latin.csv").write_bytes("query,answer\ncaf\xe9?,2\n".encode("latin-1"))
    (folder / "odd.jsonl").write_text("not json\n")
    (folder / "empty.jsonl").touch()
    (folder / "binary.parquet").write_bytes(b"\xff\x00nonsense" * 10)
    (folder / "loop").symlink_to("loop")
    (folder / "full").mkdir()
    (folder / "full" / "notes").write_text("mine")
    shutil.copytree(SHIPPED, folder / "model")
    return folder


@pytest.fixture(autouse=True)
def _inside(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path / "state"))
    before = contents(workspace)
    yield
    assert contents(workspace) == before


def contents(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder, and every other name there, but for what SQLite keeps for its readers."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith((".db-shm", ".db-wal"))
    }


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["aworld-train", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("line", "code", "words"), INPUTS, ids=[line[:60] or "nothing" for line, *_ in INPUTS]
)
def test_a_wrong_input_gets_one_paragraph_and_changes_nothing(
    line: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(line)
    ended = run(monkeypatch, *arguments)
    out, err = capsys.readouterr()
    assert ended == code, err
    if not arguments:
        assert "Usage:" in out and not err
        return
    assert out == ""
    assert "Traceback" not in err and "internal" not in err
    paragraph = err[err.index("error: ") :].strip()
    assert "\n" not in paragraph
    assert words in paragraph


def commands() -> dict[str, Any]:
    """Every command of the command line by its words, but for those that take nothing that could be wrong."""
    named: dict[str, Any] = {}
    for command in COMMANDS:
        loaded, name = command.load(), str(command.name)
        below = {below: command.load(below) for below in command.below}
        named |= {
            f"{name} {word}": each for word, each in {**getattr(loaded, "commands", below), **below}.items()
        }
        if not hasattr(loaded, "commands"):
            named[name] = loaded
    return {name: each for name, each in named.items() if name not in WITHOUT_INPUT}


def test_every_command_has_wrong_inputs_and_with_json_answers_with_an_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = commands()
    lines = {}
    for line, *_ in INPUTS:
        names = [name for name in named if f"{line} ".startswith(f"{name} ")]
        lines[max(names, key=len, default="")] = line
    assert set(named) <= set(lines)
    for name, loaded in named.items():
        if not any("--json" in option.opts for option in loaded.params):
            continue
        assert run(monkeypatch, *shlex.split(lines[name]), "--json") != 0
        out, err = capsys.readouterr()
        error = json.loads(out)["error"]
        assert error["kind"] not in ("", "internal") and f"error: {error['message']}\n" in err
