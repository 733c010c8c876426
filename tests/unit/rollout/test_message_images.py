"""Images belong to what a message means, follow its text, and come out of tools as they came in."""

import base64
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.context import DISCARDED, ContextSettings, ContextView
from aworld_train.rollout.graph import ConversationGraph
from aworld_train.rollout.messages import ChatRequest, Completion
from aworld_train.rollout.model import SampledTokens
from aworld_train.rollout.react import play
from aworld_train.rollout.tool_record import ToolCounts
from aworld_train.rollout.tools import ToolResult, text_of
from tests.vision import image, png

CALL = ToolCall("look", "{}", "c1")


def test_another_image_is_another_message() -> None:
    red, again, blue, moved = (
        Message("user", "What?", images=(image(at, color=color),))
        for at, color in ((0, "red"), (0, "red"), (0, "blue"), (5, "red"))
    )
    assert red.key == again.key and red == again
    assert len({red.key, blue.key, moved.key, Message("user", "What?").key}) == 4


def test_a_row_has_the_images_of_its_path_and_no_others() -> None:
    graph = ConversationGraph()
    answer = Message("assistant", "A square.")

    def complete(history: list[Message]) -> None:
        match = graph.match(history, "")
        context = match.context or graph.add_context(match, "", [1])
        graph.add_sampled(context, "", answer, SampledTokens([2], [-1.0], True))

    red, blue = (Message("user", "What?", images=(image(0, color=color),)) for color in ("red", "blue"))
    complete([red])
    complete([red, answer, blue])
    complete([blue])
    digests = [[each.digest for each in row.images] for row in graph.rows()]
    assert digests == [[red.images[0].digest, blue.images[0].digest], [blue.images[0].digest]]


async def test_a_discarded_result_loses_its_images() -> None:
    results = [Message("tool", "seen", images=(image(4),)) for _ in range(2)]
    history = [Message("user", "look"), Message("assistant", "", (CALL,)), *results]

    async def no_question(messages: list[Message]) -> str:
        raise AssertionError

    view = ContextView(ContextSettings("discard_tools", budget=1, keep=1))
    shorter = await view.shorten(history, history, no_question)
    assert shorter is not None
    assert shorter[2] == Message("tool", DISCARDED) and shorter[3] == results[1]


def test_another_models_endpoint_gets_a_note_for_each_image() -> None:
    message = Message("user", "What?", images=(image(0), image(5)))
    assert message.for_chat()["content"] == "What?\n[image, not shown]\n[image, not shown]"


class Looking:
    """A model that looks once and then answers."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(ChatRequest(list(request.messages)))
        if len(self.requests) > 1:
            return Completion("A square.")
        return Completion("", tool_calls=(CALL,), finish_reason="tool_calls")

    def undelivered(self, completion: Completion, was_sent: bool = False) -> None:
        raise AssertionError

    def note_overlong(self) -> None:
        raise AssertionError

    async def count_tokens(self, request: ChatRequest) -> int:
        raise AssertionError


class Camera:
    """A tool with pictures in its result, one of them broken."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        files = (png(color="blue"), b"broken")
        pictures = [{"type": "image", "data": base64.b64encode(file).decode()} for file in files]
        raw = {"content": [{"type": "text", "text": "seen"}, *pictures, {"type": "text", "text": "so" * 30}]}
        return ToolResult(text_of(raw), False, raw)


async def played(*, with_images: bool, max_chars: int = 1000) -> Message:
    model = Looking()
    await play(
        model,
        Camera(),
        [],
        [Message("user", "look")],
        ToolCounts(),
        max_turns=3,
        max_result_chars=max_chars,
        with_images=with_images,
    )
    return model.requests[-1].messages[-1]


async def test_the_react_agent_shows_images_to_a_model_that_takes_them() -> None:
    note, text = "[image content, not shown]", "so" * 30
    assert await played(with_images=False) == Message(
        "tool", f"seen\n{note}\n{note}\n{text}", call_id="c1", name="look"
    )
    shown = await played(with_images=True)
    assert shown.content == f"seen{note}\n{text}"
    assert [(each.position, each.file) for each in shown.images] == [(4, png(color="blue"))]


async def test_images_stand_after_a_text_that_was_shortened() -> None:
    shown = await played(with_images=True, max_chars=40)
    assert "characters left out" in shown.content
    assert [each.position for each in shown.images] == [len(shown.content)]
