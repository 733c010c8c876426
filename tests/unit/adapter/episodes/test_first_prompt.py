"""The first prompts of a run are measured with their tools, and what is said of those that are too long."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aworld_train import recipe as recipes
from aworld_train.adapter.episodes import first_prompt
from aworld_train.adapter.episodes.files import to_yaml
from aworld_train.adapter.episodes.first_prompt import FirstPrompts
from aworld_train.adapter.episodes.settings import episode_settings, settings_from
from aworld_train.model.turns import turns_line
from tests import templates


def test_prompts_of_some_tasks_that_do_not_fit_are_said_at_the_start() -> None:
    some = FirstPrompts(shortest=40, longest=80, tools=30, tool_count=2, largest={"a": 20, "b": 10})
    assert (some.fault(40), some.remark(80)) == (None, None)
    assert "has 80 tokens, 30 of them for the schemas of 2 tools (the longest: a 20, b 10)" in (
        some.remark(64) or ""
    )


def test_a_run_in_which_no_prompt_fits_is_told_what_to_set() -> None:
    none = FirstPrompts(shortest=90, longest=120, tools=70, tool_count=1, largest={"a": 70})
    assert none.fault(64) == (
        "No first prompt fits into dataset.max_prompt_tokens (64): that of the shortest task has 90 tokens, 70 of them "
        "for the schemas of 1 tool (the longest: a 70). Set dataset.max_prompt_tokens to 120 or more, or show fewer "
        "tools (env.servers, agent.tools)."
    )
    without_tools = FirstPrompts(shortest=90, longest=120, tools=0, tool_count=0, largest={})
    assert (without_tools.fault(64) or "").endswith(
        "has 90 tokens. Set dataset.max_prompt_tokens to 120 or more."
    )


@pytest.fixture
def model(tmp_path: Path) -> str:
    templates.tokenizer("chatml_tools").save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def dataset(file: Path, *questions: str) -> str:
    rows = [{"prompt": [{"role": "user", "content": question}]} for question in questions]
    schema = pa.schema([("prompt", pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})))])
    pq.write_table(pa.Table.from_pylist(rows, schema), file)
    return str(file)


@pytest.mark.parametrize("system", [None, "Use the tools."])
def test_the_shortest_and_the_longest_prompt_are_measured_with_the_longest_tools(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, system: str | None
) -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool{words}", "description": "search " * words}}
        for words in (3, 50, 1, 20)
    ]

    async def schemas(settings: Any) -> list[dict[str, Any]]:
        return tools

    monkeypatch.setattr(first_prompt, "_schemas", schemas)
    files = [
        dataset(tmp_path / "a.parquet", "middle " * 20, "long " * 90),
        dataset(tmp_path / "b.parquet", "short", "middle " * 30),
        dataset(tmp_path / "c.parquet", "middle " * 40),
    ]
    written = episode_settings(recipes.load({"agent": {"system_prompt": system}}))
    first = [{"role": "system", "content": system}] if system else []

    def length(question: str, tools: list[Any]) -> int:
        messages = [*first, {"role": "user", "content": question}]
        tokenizer = templates.tokenizer("chatml_tools")
        text = tokenizer.apply_chat_template(
            messages, tools=tools or None, tokenize=False, add_generation_prompt=True
        )
        return len(tokenizer.encode(text, add_special_tokens=False))

    none = length("short", [])
    prompts = first_prompt.measure(settings_from(written), model, {}, files)
    assert prompts == FirstPrompts(
        shortest=length("short", tools),
        longest=length("long " * 90, tools),
        tools=length("short", tools) - none,
        tool_count=4,
        largest={
            f"tool{words}": length("short", [tools[at]]) - none for words, at in ((50, 1), (20, 3), (3, 0))
        },
    )
    assert list(prompts.largest) == ["tool50", "tool20", "tool3"]


@pytest.mark.parametrize("questions", [["one", "two words"], []])
def test_the_process_answers_with_the_prompts_and_how_turns_are_continued(
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    questions: list[str],
) -> None:
    monkeypatch.setenv("MCP_SERVER_URL", "http://127.0.0.1:9/mcp")
    settings = episode_settings(recipes.load({}, ["env.backend=none"]))
    files = [dataset(tmp_path / "a.parquet", *questions)]
    first_prompt._answer(to_yaml(settings), model, {}, files)
    measured = first_prompt.measure(settings_from(settings), model, {}, files)
    assert (measured is None) is (not questions)
    prompts = json.dumps(asdict(measured) if measured else None)
    assert capsys.readouterr().out == f"{prompts}\n{turns_line(model, {})}\n"


def test_a_model_without_a_fast_tokenizer_and_a_run_without_tools_have_nothing_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first_prompt._answer(None, str(tmp_path), {}, [])
    assert capsys.readouterr().out == "null\n"
