"""Models are given the question with what belongs to it; code is taken out of what they say, checked and saved."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestServer
from gaia_tools import intelligence_code, intelligence_guard, intelligence_think
from gaia_tools.intelligence_code import extract_code
from mcp.server.fastmcp import FastMCP

from tests.conftest import call, content, refusal, text


class Model:
    """A model that says what it was told to; the requests that it had are kept."""

    def __init__(self) -> None:
        self.says = "Conclusion: 42"
        self.finish_reason = "stop"
        self.requests: list[dict[str, Any]] = []

    async def handle(self, request: http.Request) -> http.Response:
        self.requests.append(await request.json())
        choice = {"message": {"content": self.says}, "finish_reason": self.finish_reason}
        return http.json_response({"model": "m-1", "choices": [choice], "usage": {"total_tokens": 7}})


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Model]:
    made = Model()
    app = http.Application()
    app.router.add_post("/v1/chat/completions", made.handle)
    server = TestServer(app)
    await server.start_server()
    for prefix in ("CODE_LLM", "THINK_LLM", "GUARD_LLM"):
        monkeypatch.setenv(f"{prefix}_BASE_URL", f"http://127.0.0.1:{server.port}/v1")
        monkeypatch.setenv(f"{prefix}_API_KEY", "secret-key")
        monkeypatch.setenv(f"{prefix}_MODEL_NAME", prefix.lower())
    yield made
    await server.close()


async def code(**arguments: Any) -> dict[str, Any]:
    return await content(
        intelligence_code.server, "generate_python_code", task_description="Print 42.", **arguments
    )


async def test_code_is_taken_out_checked_and_saved(model: Model, workspace: Path) -> None:
    model.says = "<think>Easy.</think>Here it is:\n```python\nprint(42)\n```\nIt prints 42."
    found = await code(
        requirements="No imports.", context="A test.", code_style="minimal", save_to_file_path="out/answer.py"
    )
    assert found["code"] == "print(42)\n" and found["syntax_error"] is None
    assert found["explanation"] == "Here it is:\n\nIt prints 42."
    assert (workspace / "out" / "answer.py").read_text() == "print(42)\n"
    assert (found["saved_to"], found["model"], found["usage"]) == (
        "out/answer.py",
        "m-1",
        {"total_tokens": 7},
    )
    system, asked = (message["content"] for message in model.requests[0]["messages"])
    assert system.endswith("Style: minimal")
    assert asked == "Task:\nPrint 42.\n\nRequirements:\nNo imports.\n\nContext:\nA test."
    assert (model.requests[0]["temperature"], model.requests[0]["model"]) == (0.1, "code_llm")


async def test_code_that_is_none_is_said(model: Model) -> None:
    model.says, model.finish_reason = "```python\nprint(42\n", "length"
    result = await call(intelligence_code.server, "generate_python_code", task_description="Print 42.")
    assert "not valid Python: '(' was never closed (line 1)" in text(result)
    assert "cut off at its limit of tokens" in text(result)
    model.says = f"```python\nx = {'(' * 5000}{')' * 5000}\n```"
    assert (await code())["syntax_error"] is not None
    model.says = "```python\nx = '\0'\n```"
    assert "null" in (await code())["syntax_error"]


async def test_code_is_saved_in_the_workspace_only_and_refused_before_it_is_paid_for(model: Model) -> None:
    said = await refusal(
        intelligence_code.server, "generate_python_code", task_description="x", save_to_file_path="/etc/x.py"
    )
    assert "is outside" in said and model.requests == []


@pytest.mark.parametrize(
    ("said", "program", "around"),
    [
        ("print(1)", "print(1)\n", ""),
        ("```\nprint(1)\n```", "print(1)\n", ""),
        ("```bash\npip install x\n```\n```py\nprint(1)\n```", "print(1)\n", "```bash\npip install x\n```"),
        ("~~~python\nprint(1)\n~~~", "print(1)\n", ""),
        ("```python\na = 1\n```\n```python\nb = 1\nc = 2\n```", "b = 1\nc = 2\n", "```python\na = 1\n```"),
        ('```python title="x.py"\nt = """\n  ```\n"""\n```\nDone.', 't = """\n  ```\n"""\n', "Done."),
        ("````python\nt = '''\n```\n'''\n````", "t = '''\n```\n'''\n", ""),
    ],
)
def test_the_program_in_an_answer(said: str, program: str, around: str) -> None:
    assert extract_code(said) == (program, around)


@pytest.mark.parametrize(
    ("server", "tool", "style", "prefix"),
    [
        (intelligence_think.server, "complex_problem_reasoning", "reasoning_style", "think_llm"),
        (intelligence_guard.server, "guarding_reasoning_process", "guarding_style", "guard_llm"),
    ],
)
async def test_a_question_is_put_with_its_task_and_style(
    model: Model, server: FastMCP, tool: str, style: str, prefix: str
) -> None:
    arguments = {"question": "Why 6 * 7?", "original_task": "Find it.", "temperature": 0.9, style: "concise"}
    found = await content(server, tool, **arguments)
    assert (found["answer"], found["model"], found["usage"]) == ("Conclusion: 42", "m-1", {"total_tokens": 7})
    request = model.requests[0]
    system, asked = (message["content"] for message in request["messages"])
    assert "Why 6 * 7?" in asked and "Find it." in asked and system.endswith("Style: concise")
    assert (request["temperature"], request["model"]) == (0.9, prefix)
    model.finish_reason = "length"
    assert "cut off" in text(await call(server, tool, question="Why?"))
    assert "Find it." not in model.requests[1]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("server", "tool", "argument", "variable"),
    [
        (intelligence_code.server, "generate_python_code", "task_description", "CODE_LLM_MODEL_NAME"),
        (intelligence_think.server, "complex_problem_reasoning", "question", "THINK_LLM_MODEL_NAME"),
        (intelligence_guard.server, "guarding_reasoning_process", "question", "GUARD_LLM_MODEL_NAME"),
    ],
)
async def test_without_a_model_the_missing_variable_is_named(
    server: FastMCP, tool: str, argument: str, variable: str
) -> None:
    assert f"{variable} is not set" in await refusal(server, tool, **{argument: "x"})
