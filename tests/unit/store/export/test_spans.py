"""Spans say what OpenTelemetry's and OpenInference's conventions have names for."""

import json
from pathlib import Path

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall, ToolCallRecord
from aworld_train.store.content import (
    EpisodeContent,
    ModelCall,
    StoredAgent,
    StoredNode,
    packed_floats,
    packed_tokens,
)
from aworld_train.store.export.spans import Span, SpanKind, episode_spans
from aworld_train.store.reading import StoredEpisode
from tests.stored_episodes import stored_episode
from tests.stored_runs import make_stored_run, open_store


def spans_of(tmp_path: Path, condition: str) -> list[Span]:
    store = open_store(make_stored_run(tmp_path, steps=1, tasks=1))
    assert store is not None
    with store:
        return episode_spans(store.episode(store.ids(condition)[0]), run="one", model="tiny")


def test_an_episode_is_an_invocation_with_its_calls_below(tmp_path: Path) -> None:
    root, first, second, tool = spans_of(tmp_path, "attempt=0 and step=1")
    assert [span.name for span in (root, first, second, tool)] == [
        "invoke_agent agent",
        "chat tiny",
        "chat tiny",
        "execute_tool calculator",
    ]
    assert root.parent == b"" and {span.parent for span in (first, second, tool)} == {root.id}
    assert len({span.trace for span in (root, first, second, tool)}) == 1
    assert len({span.id for span in (root, first, second, tool)}) == 4
    assert (len(root.trace), len(root.id)) == (16, 8)
    assert [span.kind for span in (root, first, tool)] == [
        SpanKind.internal,
        SpanKind.client,
        SpanKind.internal,
    ]
    assert root.attributes["aworld.reward"] == 1.0 and root.attributes["aworld.outcome"] == "answered"
    assert root.error is None
    assert first.began < tool.began < second.began
    kinds = [span.attributes["openinference.span.kind"] for span in (root, first, second, tool)]
    assert kinds == ["AGENT", "LLM", "LLM", "TOOL"]


def test_a_chat_has_only_the_new_messages(tmp_path: Path) -> None:
    _, first, second, tool = spans_of(tmp_path, "attempt=0 and step=1")
    assert json.loads(str(first.attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is 2 times 4?"}]}
    ]
    (written,) = json.loads(str(first.attributes["gen_ai.output.messages"]))
    assert written["role"] == "assistant" and written["finish_reason"] == "tool_call"
    assert written["parts"][0]["type"] == "reasoning"
    assert written["parts"][1] == {
        "type": "tool_call",
        "id": "call00001",
        "name": "calculator",
        "arguments": {"a": 2, "b": 4},
    }
    assert json.loads(str(second.attributes["gen_ai.input.messages"])) == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "response": "8", "id": "call00001"}]}
    ]
    assert first.attributes["gen_ai.usage.input_tokens"] == 8
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert second.attributes["llm.input_messages.0.message.role"] == "tool"
    assert tool.attributes["gen_ai.tool.call.result"] == "8"
    assert (
        "gen_ai.tool.definitions" in first.attributes and "gen_ai.tool.definitions" not in second.attributes
    )


def test_every_attribute_of_generative_ai_is_one_of_the_conventions(tmp_path: Path) -> None:
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    names = {name for span in spans_of(tmp_path, "attempt=0 and step=1") for name in span.attributes}
    of_genai = {name for name in names if name.startswith("gen_ai.")}
    assert len(of_genai) > 20
    assert of_genai - known == set()


def test_an_episode_that_failed_is_an_error(tmp_path: Path) -> None:
    root, *_ = spans_of(tmp_path, "outcome=timeout and step=1")
    assert root.attributes["error.type"] == "timeout"
    assert root.error == "not over after 5 seconds"
    assert "aworld.reward" not in root.attributes


def test_an_episode_whose_texts_are_not_kept_is_one_span() -> None:
    (root,) = episode_spans(stored_episode(None), run="one")
    assert root.name == "invoke_agent one"


def sampled(parent: int, text: str, *calls: ToolCall) -> StoredNode:
    return StoredNode(
        parent, (Message("assistant", text, calls),), packed_tokens([1]), 1, packed_floats([0.0])
    )


def two_agents() -> StoredEpisode:
    prompt = StoredNode(-1, (Message("system", "Be brief."), Message("user", "Why?")))
    agents = tuple(
        StoredAgent(name, (prompt, sampled(0, "x", ToolCall("look", "no json", f"call-{name}"))), (call,))
        for name, call in (
            ("planner", ModelCall(1, 10.0, 1.0, "tool_calls", 5, 1.0)),
            ("writer", ModelCall(1, 20.0, 1.0, "length", 5, 1.0)),
        )
    )
    uses = (
        ToolCallRecord("look", "no json", "gone", True, 12.0, 1.0, call_id="call-planner"),
        ToolCallRecord("other", "{}", "", False, 12.0, 1.0),
    )
    return stored_episode(EpisodeContent(agents, uses))


def test_each_of_several_agents_has_an_invocation_with_its_tools() -> None:
    spans = episode_spans(two_agents(), run="one")
    by_name = {span.name: span for span in spans}
    root, planner, writer = spans[:3]
    assert [span.name for span in (root, planner, writer)] == [
        "invoke_agent one",
        "invoke_agent planner",
        "invoke_agent writer",
    ]
    assert planner.parent == writer.parent == root.id
    assert by_name["execute_tool look"].parent == planner.id
    assert by_name["execute_tool other"].parent == root.id
    assert by_name["execute_tool look"].error == "gone"
    chat = spans[3]
    assert chat.parent == planner.id
    assert json.loads(str(chat.attributes["gen_ai.system_instructions"])) == [
        {"type": "text", "content": "Be brief."}
    ]
    (written,) = json.loads(str(chat.attributes["gen_ai.output.messages"]))
    assert written["parts"][1]["arguments"] == "no json"


def test_long_texts_are_cut_and_stay_json() -> None:
    node = StoredNode(-1, (Message("user", "\\" * 100_000),))
    agent = StoredAgent("a", (node, sampled(0, "x")), (ModelCall(1, 10.0, 1.0, "stop", 5, 1.0),))
    chat = episode_spans(stored_episode(EpisodeContent((agent,))), run="one")[1]
    (message,) = json.loads(str(chat.attributes["gen_ai.input.messages"]))
    assert message["parts"][0]["content"].endswith("… (68,000 more characters)")


def test_an_episode_has_the_same_ids_each_time() -> None:
    first, second = ([span.id for span in episode_spans(two_agents(), run="one")] for _ in range(2))
    assert first == second and len(set(first)) == len(first)
