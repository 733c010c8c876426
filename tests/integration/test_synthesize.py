"""`aworld-train dataset synthesize` with a scripted model over a real socket and the real calculator environment."""

import json
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from aworld_train.dataset import check_file
from tests import warm
from tests.openai_stub import Message, OpenAIStub, RecordedRequest, calls, says, text_of
from tests.synthesis import CASES, CONCURRENCY, SEEDS, SynthesisModel, finish, make_folder, start

DROPPED = {
    "no_proposal": 1,
    "no_tool": 1,
    "left_out": 2,
    "inconsistent": 1,
    "too_hard": 1,
    "too_easy": 1,
    "no_tools_needed": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("synthesis"))


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """The report of a synthesis that nothing interrupts, and the requests that it took."""
    model = SynthesisModel()
    with OpenAIStub(model) as stub:
        report = finish(start(folder, stub, "whole"))
        return {"report": report, "requests": len(stub.requests), "stages": model.requests}


def test_what_is_kept_and_what_is_dropped_and_why(folder: Path, whole: dict[str, Any]) -> None:
    report = whole["report"]
    assert (report["kept"], report["dropped"]) == (2, DROPPED)
    assert report["proposals"] == len(CASES) == 2 + sum(DROPPED.values())
    assert report["changes"] == {"proposed": 8, "verified": 1}
    assert sum(report["dataset"]["rows"].values()) == 2
    rows = [
        row
        for file in sorted((folder / "data" / "whole").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert all(check_file(file).rows for file in (folder / "data" / "whole").glob("*.parquet"))
    by_question = {row["extra_info"]["question"].split()[6]: row for row in rows}
    assert set(by_question) == {"kept", "fine"}
    assert by_question["kept"]["extra_info"]["level"] == "1"
    assert by_question["kept"]["reward_model"]["ground_truth"] == str(11 * 16)
    # What its change added was found again.
    assert by_question["fine"]["extra_info"]["level"] == "2"
    assert by_question["fine"]["extra_info"]["question"].endswith("Count the whole year.")


def test_each_stage_asks_what_it_needs(whole: dict[str, Any]) -> None:
    stages = whole["stages"]
    assert stages["explore"] == 2 * len(CASES) - 1  # one calls no tool
    assert stages["change"] == 2 * 8
    assert stages["verify"] == 7  # what was added to both twins is the same
    assert stages["solve"] == 2 * 4 * 6
    assert stages["without"] == 4 * 4  # those that were solved at all, whatever the bounds
    assert sum(stages.values()) == whole["requests"]


def test_the_solvers_episodes_are_in_the_store(folder: Path, whole: dict[str, Any]) -> None:
    solver = Path(whole["report"]["solver_episodes"])
    command = ["runs", "episodes", str(solver), "--where", "reward=1", "--json"]
    listed = warm.run("-m", "aworld_train", *command, cwd=folder, timeout=300, check=True)
    episodes = json.loads(listed.stdout)["episodes"]
    assert len(episodes) == 2 + 3 + 4 + 2  # kept, fine, easy, known
    assert all(episode["tool_calls"] == 1 for episode in episodes)


def test_a_killed_synthesis_asks_nothing_again_that_was_answered(folder: Path, whole: dict[str, Any]) -> None:
    model = SynthesisModel()
    with OpenAIStub(model, delay=0.05) as stub:
        lost = 0
        for stage, count in (("explore", 7), ("solve", 15)):
            process = start(folder, stub, "killed", *(["--resume"] if lost else []))
            deadline = time.monotonic() + 400
            while model.requests[stage] < count:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            lost += CONCURRENCY
        report = finish(start(folder, stub, "killed", "--resume"))
        requests = Counter(json.dumps(request.body, sort_keys=True) for request in stub.requests)
    assert (report["kept"], report["dropped"]) == (2, DROPPED)
    repeated = sum(requests.values()) - len(requests)
    assert repeated <= lost  # at most what was under way
    assert len(requests) == whole["requests"]


def test_other_settings_and_an_existing_name_are_refused(folder: Path, whole: dict[str, Any]) -> None:
    with OpenAIStub(SynthesisModel()) as stub:
        refused = finish(start(folder, stub, "whole"), code=2)
        assert "continue with --resume" in refused["error"]["message"]
        refused = finish(start(folder, stub, "whole", "--resume", "--k", "3"), code=2)
        assert "synth-whole-solve was begun with something else (recipe)" in refused["error"]["message"]
        refused = finish(start(folder, stub, "new", "--min-solved", "0.9"), code=2)
        assert "--min-solved is 0.9 and --max-solved 0.75" in refused["error"]["message"]
        refused = finish(start(folder, stub, "new", "--scorer", "gaja"), code=2)
        assert "Did you mean 'gaia'?" in refused["error"]["message"]
        refused = finish(start(folder, stub, "new", "--against", "nothing.parquet"), code=2)
        assert "nothing.parquet" in refused["error"]["message"]
        assert stub.requests == []


def test_other_seeds_are_not_mixed_with_what_is_there(folder: Path, whole: dict[str, Any]) -> None:
    (folder / "seeds.txt").write_text(SEEDS + "more: 5 crates of 6 pears\n")
    try:
        with OpenAIStub(SynthesisModel()) as stub:
            refused = finish(start(folder, stub, "whole", "--resume"), code=2)
            assert "synth-whole-explore was begun with something else (tasks)" in refused["error"]["message"]
    finally:
        (folder / "seeds.txt").write_text(SEEDS)


def test_other_bounds_are_applied_without_asking(folder: Path, whole: dict[str, Any]) -> None:
    with OpenAIStub(SynthesisModel()) as stub:
        for largest, kept in (("0.5", 1), ("1", 3)):
            report = finish(start(folder, stub, "whole", "--resume", "--max-solved", largest))
            assert report["kept"] == kept
        assert stub.requests == []


READER = """
import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("reader", log_level="WARNING")
@server.tool()
def read_note(path: str) -> str:
    \"\"\"Read a note. It has to be one of the attached files.\"\"\"
    if not path.startswith(os.environ["ATTACHMENTS"]):
        raise ValueError("not attached")
    return open(path).read()
@server.tool()
def delete_note(path: str) -> str:
    return "no"
@server.tool()
def here() -> str:
    return "here"
server.run()
"""
READER_MANIFEST = """
name: reader
servers:
  reader:
    command: ["{python}", "{here}/reader.py"]
    executes_code: false
    test: {tool: here, arguments: {}, expect: here}
"""


def reads(request: RecordedRequest, solved: "Counter[str]") -> Message:
    """Proposes what is in an attached note, and finds it with the tool in the first attempt."""
    user, result = text_of(request.messages[-1]), None
    if request.messages[-1]["role"] == "tool":
        user, result = text_of(request.messages[-3]), user.strip()
    path = next(word for word in user.split() if word.endswith(".txt"))
    if request.tools and result is None:
        return calls("read_note", path=path)
    if "Material: " in user:
        question = f"Which word is in the note about {Path(path).stem} that nobody has read for many years?"
        return says(f"<answer>{json.dumps({'question': question, 'answer': result})}</answer>")
    solved[path] += 1
    return says(f"<answer>{result if solved[path] == 1 else 'unknown'}</answer>")


def test_documents_are_read_by_the_tools_that_the_recipe_shows(tmp_path: Path) -> None:
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader" / "reader.py").write_text(READER)
    (tmp_path / "reader" / "servers.yaml").write_text(READER_MANIFEST)
    (tmp_path / "notes").mkdir()
    for name, word in (("boats", "keel"), ("birds", "quill")):
        (tmp_path / "notes" / f"{name}.txt").write_text(word)
    recipe = {
        "name": "notes",
        "env": {"docker_dir": str(tmp_path / "reader"), "backend": "process", "workers": 2},
        "agent": {"tools": {"exclude": ["delete_*", "here"], "short_descriptions": True}},
        "eval": {"concurrency": 2},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    with OpenAIStub(partial(reads, solved=Counter())) as stub:
        report = finish(
            start(tmp_path, stub, "notes", "--rounds", "0", "--k", "2", seeds="notes", against=None)
        )
        tools = [request.body["tools"] for request in stub.requests if request.tools]
    assert (report["kept"], report["dropped"]) == (2, {})
    assert {tool["function"]["name"] for shown in tools for tool in shown} == {"read_note"}
    assert {tool["function"]["description"] for shown in tools for tool in shown} == {"Read a note."}
    (row, *_) = pq.read_table(tmp_path / "data" / "notes" / "train.parquet").to_pylist()
    (attachment,) = row["extra_info"]["attachments"]
    assert Path(attachment).read_text() == row["reward_model"]["ground_truth"]
    assert attachment in row["prompt"][-1]["content"]


def test_a_tool_that_does_not_exist_is_refused_before_the_model_is_asked(folder: Path) -> None:
    with OpenAIStub(SynthesisModel()) as stub:
        refused = finish(start(folder, stub, "misspelt", "agent.tools.include=[calculater]"), code=2)
        assert "Did you mean 'calculator'?" in refused["error"]["message"]
        assert stub.requests == []
