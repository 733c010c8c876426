"""The tools of gaia-mcp-server, used as an agent uses them: over MCP, in a session's workspace."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession

from aworld_train.env import EnvConnection, down, up
from tests.environments import session, text_of
from tests.openai_stub import OpenAIStub, says

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning")


@pytest.fixture(scope="module")
def gaia(state: None) -> Iterator[EnvConnection]:
    yield up("gaia-mcp-server", name="gaia-tools", backend="process", workers=1)
    down("gaia-tools")


async def run(opened: ClientSession, command: str, **more: Any) -> dict[str, Any]:
    arguments = {"command": command, "output_format": "json", **more}
    return dict(json.loads(text_of(await opened.call_tool("execute_command", arguments))))


async def read(opened: ClientSession, path: str, **more: Any) -> dict[str, Any]:
    arguments = {"file_path": path, "output_format": "json", **more}
    return dict(json.loads(text_of(await opened.call_tool("extract_text_content", arguments))))


async def refusal(opened: ClientSession, path: str, **more: Any) -> str:
    result = await opened.call_tool("extract_text_content", {"file_path": path, **more})
    assert result.isError
    return result.content[0].text  # type: ignore[union-attr]


async def test_a_command_gives_what_it_printed_and_its_exit_code(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        result = await opened.call_tool("execute_command", {"command": "echo out; echo err >&2; exit 3"})
        assert "out\nerr" in text_of(result) and "exit code 3" in text_of(result)
        plain = await opened.call_tool("execute_command", {"command": "echo out", "output_format": "text"})
        assert text_of(plain) == "out"
        await run(opened, "mkdir there; echo kept > there/file")
        assert (await run(opened, "cat there/file; pwd"))["output"].startswith("kept\n")
        history = text_of(await opened.call_tool("get_command_history", {"count": 2})).splitlines()
        assert [line.split("\t")[0] for line in history] == ["0", "0"]
        assert history[1].endswith("cat there/file; pwd")


async def test_a_command_ends_with_its_time_and_with_all_it_started(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        began = time.monotonic()
        command = "setsid sleep 777 & bash -c 'sleep 778; true' & echo started; sleep 779"
        ended = await opened.call_tool("execute_command", {"command": command, "timeout": 1})
        assert ended.isError and "its time limit" in ended.content[0].text  # type: ignore[union-attr]
        assert time.monotonic() - began < 600
        assert (await run(opened, "ps -eo args | grep -c '^[s]leep 77[789]'"))["output"] == "0"


async def test_a_command_in_the_background_does_not_hold_the_answer_up(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        assert (await run(opened, "sleep 600 & echo here"))["seconds"] < 60
        assert (await run(opened, "jobs; pgrep -c -x sleep || true"))["exit_code"] == 0


async def test_any_amount_of_output_is_kept_from_both_ends(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        found = await run(opened, "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last")
        assert found["output"].startswith("first\nxxx") and found["output"].endswith("xxx\nlast")
        assert 29_000 < len(found["output"]) < 31_000
        assert found["characters_left_out"] > 199_000_000


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("utf-8", "naïve 漢字 🙂"), ("utf-16", "naïve 漢字"), ("latin-1", "à la carte, déjà vu\n" * 9)],
)
async def test_text_is_read_whatever_its_encoding(gaia: EnvConnection, encoding: str, text: str) -> None:
    async with session(gaia) as opened:
        written = f"python3 -c \"open('f.txt', 'wb').write({text!r}.encode('{encoding}'))\""
        assert (await run(opened, written))["exit_code"] == 0
        assert (await read(opened, "f.txt", encoding=encoding))["content"] == text
        if encoding != "latin-1":  # other encodings of one byte fit it as well
            assert (await read(opened, "f.txt"))["content"] == text


@pytest.mark.parametrize(
    ("tool", "arguments", "facts"),
    [
        ("execute_command", {"command": "cat long.csv"}, {"exit_code": 0, "characters_left_out": 0}),
        ("run_python_code", {"code": "print(open('long.csv').read())"}, {"exit_code": 0, "files": []}),
        ("extract_text_content", {"file_path": "long.csv"}, {"lines": 2000, "next_start": None}),
        ("extract_csv_content", {"file_path": "long.csv"}, {"rows": 2000, "columns": 1}),
    ],
)
async def test_a_long_text_is_in_the_content_and_its_facts_in_the_structured_content(
    gaia: EnvConnection, tool: str, arguments: dict[str, Any], facts: dict[str, Any]
) -> None:
    async with session(gaia) as opened:
        await run(opened, "seq 2000 > long.csv")
        result = await opened.call_tool(tool, arguments)
        assert "1999" in text_of(result)
        assert result.structuredContent is not None
        assert facts.items() <= result.structuredContent.items()
        assert len(json.dumps(result.structuredContent)) < 500
        as_json = await opened.call_tool(tool, {**arguments, "output_format": "json"})
        assert facts.items() <= json.loads(text_of(as_json)).items() and as_json.structuredContent is None


async def test_long_text_is_read_in_parts(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        await run(opened, "seq 100000 > long.txt")
        found = await read(opened, "long.txt", max_content_length=1000)
        assert found["lines"] == 100_000
        assert found["content"].startswith("1\n2\n") and len(found["content"]) < 1200
        assert f"start={found['next_start']}" in found["content"]
        more = await read(opened, "long.txt", start=found["next_start"], max_content_length=1000)
        whole = "\n".join(map(str, range(1, 1000)))
        assert more["content"][:900] == whole[found["next_start"] :][:900]


async def test_what_is_no_text_file_of_the_session_is_refused_with_what_to_do(gaia: EnvConnection) -> None:
    async with session(gaia) as opened:
        await run(opened, "echo x > mine.txt; ln -s /etc/passwd link; head -c 3000 /dev/urandom > noise.bin")
        assert "mine.txt" in await refusal(opened, "other.txt")
        for outside in ("/etc/passwd", "../../../../etc/passwd", "link"):
            assert "is outside" in await refusal(opened, outside)
        assert "not a text file" in await refusal(opened, "noise.bin")
        assert "Use encoding='auto'" in await refusal(opened, "noise.bin", encoding="utf-8")
        assert "Use encoding='auto'" in await refusal(opened, "mine.txt", encoding="no-such")


def texts_below(folder: Path) -> list[str]:
    """The contents of all files in a folder."""
    return [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]


async def test_one_model_serves_all_tools_that_ask_one_and_its_key_shows_nowhere(
    state: None, tmp_path: Path
) -> None:
    secret = "sk-canary-5b1f"
    keys, lines = tmp_path / "keys.env", list[str]()
    with OpenAIStub(lambda request: says("```python\nprint(1)\n```")) as model:
        keys.write_text(
            "CODE_LLM_MODEL_NAME=${MCP_LLM_MODEL_NAME}-coder\n"
            f"MCP_LLM_BASE_URL={model.url()}\nMCP_LLM_API_KEY={secret}\nMCP_LLM_MODEL_NAME=small\n"
            f"IMAGE_LM_API_KEY={secret}\n"
        )
        servers = ("intelligence-code-server", "intelligence-think-server", "terminal-server")
        given = {"workers": 1, "servers": servers, "env_file": keys, "report_progress": lines.append}
        connection = up("gaia-mcp-server", name="gaia-keys", backend="process", **given)
        try:
            async with session(connection) as opened:
                code = await opened.call_tool("generate_python_code", {"task_description": "Print 1."})
                thought = await opened.call_tool("complex_problem_reasoning", {"question": "Why?"})
                variables = (await run(opened, "env"))["output"]
                commands = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
                written = texts_below(Path(os.environ["AWORLD_TRAIN_STATE"]))
        finally:
            down("gaia-keys")
    assert not code.isError and not thought.isError, (code.content, thought.content)
    assert [(one.key, one.body["model"]) for one in model.requests] == [
        (secret, "small-coder"),
        (secret, "small"),
    ]
    assert [line for line in lines if str(keys) in line] == [
        f"{keys}:5: no server of gaia-mcp-server has the key IMAGE_LM_API_KEY. Did you mean 'IMAGE_LLM_API_KEY'?"
    ]
    assert written and secret not in "\n".join([*lines, *written, *commands, variables])
