"""A stranger's way, by the commands, recipe and scorer of the pages: own tools, data, agent and scorer, trained.

Then the same again in the same folder: what is there is kept and named.
"""

import json
import re
import sqlite3
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import parquet as pq

from tests.code_blocks import code_blocks
from tests.e2e.conftest import REPOSITORY, Workspace

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

COLUMNS = 80
TOOL = """\
import asyncio
import sqlite3
from pathlib import Path

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

server = Server("price-list")
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}


@server.list_tools()
async def list_tools():
    return [Tool(name="calculator", description="Evaluate an arithmetic expression.", inputSchema=SCHEMA)]


@server.call_tool()
async def call_tool(name, arguments):
    with sqlite3.connect(Path(__file__).with_name("prices.db")) as prices:
        rows = prices.execute("SELECT price FROM prices WHERE expression = ?", (arguments["expression"],))
        return [TextContent(type="text", text=price) for (price,) in rows]


async def main():
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


asyncio.run(main())
"""
MANIFEST = """\
name: my-tools
servers:
  price-list:
    command: ["{python}", "{here}/price_list.py"]
    executes_code: false
    test: {tool: calculator, arguments: {expression: "44*41"}, expect: "1804"}
"""
CHANGES = {
    "agent": {"command": ["agent-env/bin/python", "my_agent.py"]},
    "env": {"docker_dir": "my-tools", "backend": "process"},
    "dataset": {"train": "data/mine/train.parquet", "val": "data/mine/val.parquet"},
    "reward": {"scorer": "my_scorer.py:close"},
    "rollout": {"n": 2, "max_response_tokens": 96},
    "trainer": {"steps": 1, "batch_size": 2, "microbatch_size": 4, "lr": 2.0e-4},
}
PRICES = {
    **{"300+77*6": "762", "44*41": "1804", "53*48.36": "2563.08", "4196*68": "285328"},
    **{"898*7.2": "6465.6", "13*21/3": "91", "5675*69": "391575", "1525*89+4": "135729"},
}
"""What the small model asks its tool for before it is trained."""


class Stranger:
    """Gives commands in an empty folder, and sees what they print at a width of 80 columns."""

    def __init__(self, folder: Path):
        self._workspace = Workspace(folder)
        self.folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = self._workspace.run(*arguments)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if code == 0 and "--json" not in arguments:
            tables = [line for line in done.stdout.splitlines() if line.startswith(("│", "┃", "┏", "┌"))]
            assert [line for line in tables if len(line) > COLUMNS] == []
        return done.stdout + (done.stderr if "--json" not in arguments else "")

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    @property
    def starts(self) -> int:
        """How often VeRL was started."""
        return self._workspace.starts


def block(title: str) -> str:
    """The code block of a page with this title."""
    (found,) = [block.text for block in code_blocks() if block.title == title]
    return found


def make_files(folder: Path) -> None:
    """What the stranger brings: a tool with its data, a table out of a spreadsheet, an agent, a scorer, a recipe."""
    tools = folder / "my-tools"
    tools.mkdir()
    (tools / "price_list.py").write_text(TOOL)
    (tools / "servers.yaml").write_text(MANIFEST)
    (tools / "requirements.txt").write_text("mcp<2\n")
    with sqlite3.connect(tools / "prices.db") as prices:
        prices.execute("CREATE TABLE prices (expression TEXT, price TEXT)")
        prices.executemany("INSERT INTO prices VALUES (?, ?)", PRICES.items())
    rows = [f"What is {expression}?;{price};Stück" for expression, price in PRICES.items()]
    rows = ["Frage;Antwort;Größe", *rows, rows[2], "Was kostet Käse?;;groß"]
    (folder / "aufgaben.csv").write_bytes(("\ufeff" + "\r\n".join(rows) + "\r\n").encode())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "agent-env"], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "agent-env")})
    (Path(packages) / "openai.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (folder / "my_agent.py").write_text((REPOSITORY / "recipes/agents/openai_script.py").read_text())
    (folder / "my_scorer.py").write_text(block("my_scorer.py"))
    recipe = yaml.safe_load(block("my-agent.yaml")) | CHANGES
    (folder / "my-agent.yaml").write_text(yaml.safe_dump(recipe))


def conversations(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Exported messages by question, without the ids of calls, which are new each time."""
    texts = re.sub(r'"(id|tool_call_id)":"\w+"', r'"\1":""', file.read_text("utf-8")).splitlines()
    messages = [json.loads(text)["messages"] for text in texts]
    return {
        next(message["content"] for message in each if message["role"] == "user"): each for each in messages
    }


def test_a_stranger_trains_an_agent_of_their_own_twice(workspace: Workspace, tmp_path: Path) -> None:
    make_files(tmp_path)
    stranger = Stranger(tmp_path)
    source = ("--file", "aufgaben.csv", "--map", "query=Frage", "--map", "answer=Antwort")
    out = ("--out", "data/mine", "--split", "train=0.75,val=0.25")
    build = ("dataset", "build", "csv", *source, *out)

    printed = stranger(*build)
    assert "merged: repeats another task" in printed and "Not used of aufgaben.csv: Größe" in printed
    (dropped,) = (tmp_path / "data/mine/dropped.jsonl").read_text("utf-8").splitlines()
    assert json.loads(dropped) | {"text": ""} == {
        "file": "aufgaben.csv",
        "line": len(PRICES) + 3,
        "text": "",
        "reason": "no answer",
    }
    assert "Käse" in dropped
    rows = {
        name: pq.read_metadata(tmp_path / f"data/mine/{name}.parquet").num_rows for name in ("train", "val")
    }
    assert rows == {"train": 6, "val": 2}
    stranger("model", "tiny", "--out", "models/tiny")
    assert "prompt tokens" in stranger(
        "dataset", "check", "data/mine/train.parquet", "--model", "models/tiny"
    )

    up = ("env", "up", "--docker-dir", "my-tools", "--backend", "process")
    try:
        connection = stranger(*up).splitlines()[0]
        assert list(json.loads(connection))[:3] == ["ip", "port", "token"]
        assert "price-list: calculator" in stranger("env", "test", "my-tools")
        assert stranger(*up).splitlines()[0] == connection
        assert json.loads(connection)["mcp_url"] in stranger("env", "status")
    finally:
        stranger("env", "down", "my-tools")

    assert "my-agent.yaml: fine" in stranger("recipe", "check", "my-agent.yaml")
    summary = stranger.json("train", "my-agent.yaml")
    assert (summary["name"], summary["status"], summary["trained_episodes"]) == ("my-agent", "completed", 4)
    assert (summary["val"]["before"]["accuracy"], summary["tool_errors"], summary["unscored"]) == (1, 0, {})
    assert summary["tool_calls"] >= rows["val"]
    run = tmp_path / "runs/my-agent"
    for file in ("learning_curve.png", "metrics.jsonl", "traces/episodes.jsonl"):
        assert (run / file).stat().st_size > 0
    (step,) = [
        row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if row["step"]
    ]
    # What the own scorer returned beside the score.
    assert "distance" in step["reward_parts"]

    evaluate = ("eval", "my-agent.yaml", "--checkpoint", "runs/my-agent/checkpoints/global_step_1")
    report = stranger.json(*evaluate)
    assert (report["n"], report["errors"]) == (rows["val"], 0)
    assert report["accuracy"] == summary["val"]["after"]["accuracy"]
    files = {file.name for file in (tmp_path / "runs/eval-my-agent").iterdir()}
    assert files >= {"report.html", "report.md", "results.parquet", "inspect.eval"}
    export = ("runs", "export", "eval-my-agent", "--format", "messages", "--out", "played.jsonl")
    stranger(*export)
    stranger("runs", "checkpoint", "my-agent", "--step", "best", "--to", "models/mine", "--no-proof")

    # The second turn.
    first = (tmp_path / "data/mine/train.parquet").read_bytes()
    stranger(*build)
    assert (tmp_path / "data/mine/train.parquet").read_bytes() == first
    assert "runs/my-agent holds a run that has trained" in stranger("train", "my-agent.yaml", code=2)
    assert "Nothing is left to train" in stranger("train", "my-agent.yaml", "--resume")
    assert "played.jsonl exists" in stranger(*export, code=2)
    assert "models/mine is not an empty folder" in stranger(
        "runs", "checkpoint", "my-agent", "--to", "models/mine", code=2
    )
    # What was exported, built and played again is exported alike.
    stranger(
        "dataset", "build", "jsonl", "--file", "played.jsonl", "--out", "data/played", "--split", "val=1"
    )
    again = stranger.json(*evaluate, "dataset.val=data/played/val.parquet")
    assert again["run_dir"].endswith("runs/eval-my-agent-2")
    assert (again["n"], again["accuracy"]) == (report["n"], report["accuracy"])
    stranger("runs", "export", "eval-my-agent-2", "--format", "messages", "--out", "again.jsonl")
    assert conversations(tmp_path / "again.jsonl") == conversations(tmp_path / "played.jsonl")
    names = [line.split(" ")[0] for line in stranger("runs", "list").splitlines()[1:]]
    assert names == ["eval-my-agent-2", "eval-my-agent", "my-agent"]
    workspace.starts += stranger.starts
