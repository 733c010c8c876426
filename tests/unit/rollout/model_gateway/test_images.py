"""Images reach a model that takes them, in the order of the message; others are refused with the reason."""

import base64
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from aworld_train.rollout.messages import Completion
from tests.gateways import rollout_session
from tests.vision import data_url, png

ANSWER = Completion("A square.", prompt_tokens=7, tokens=[1], logprobs=[-0.5])
RED, BLUE = png(color="red"), png(color="blue")
CALL: Any = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def url_part(file: bytes) -> Any:
    return {"type": "image_url", "image_url": {"url": data_url(file)}}


def source(file: bytes) -> Any:
    data = base64.b64encode(file).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def text(written: str) -> Any:
    return {"type": "text", "text": written}


async def test_chat_has_images_of_users_and_tools_in_their_places() -> None:
    messages: Any = [
        {"role": "user", "content": [text("one"), text("two"), url_part(RED), text("three"), url_part(BLUE)]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [url_part(BLUE), text("seen")]},
    ]
    async with (
        rollout_session(ANSWER, images=True) as (session, scripted),
        openai.AsyncOpenAI(base_url=session.address(), api_key="x", timeout=120) as client,
    ):
        await client.chat.completions.create(model="m", messages=messages)
    user, _, tool = scripted.requests[0].messages
    assert (user.content, [image.position for image in user.images]) == ("one\ntwothree", [7, 12])
    assert [image.file for image in user.images] == [RED, BLUE]
    assert (tool.content, [image.file for image in tool.images]) == ("seen", [BLUE])
    parts = [{"type": "text", "text": "one\ntwo"}, {"type": "image"}, {"type": "text", "text": "three"}]
    assert user.for_template()["content"] == [*parts, {"type": "image"}]


async def test_responses_have_images() -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_image", "image_url": data_url(RED), "detail": "auto"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_image", "image_url": data_url(BLUE)}],
        },
    ]
    async with (
        rollout_session(ANSWER, images=True) as (session, scripted),
        openai.AsyncOpenAI(base_url=session.address(), api_key="x", timeout=120) as client,
    ):
        await client.responses.create(model="m", input=items)
    user, _, tool = scripted.requests[0].messages
    assert [image.file for image in (*user.images, *tool.images)] == [RED, BLUE]


async def test_anthropic_messages_have_images() -> None:
    messages: Any = [
        {"role": "user", "content": [source(RED), text("What is it?")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("seen"), source(BLUE)]},
                source(RED),
            ],
        },
    ]
    async with rollout_session(ANSWER, images=True) as (session, scripted):
        base = session.address().removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base, api_key="x", timeout=120) as client:
            await client.messages.create(model="m", max_tokens=8, messages=messages)
    user, _, tool, again = scripted.requests[0].messages
    assert (user.content, user.images[0].file, user.images[0].position) == ("What is it?", RED, 0)
    assert (tool.content, tool.images[0].file, tool.images[0].position) == ("seen", BLUE, 4)
    assert (again.content, again.images[0].file) == ("", RED)


async def refusal(part: Any, *, images: bool = True, role: str = "user") -> tuple[int, Any]:
    messages = [{"role": role, "tool_call_id": "c1", "content": [text("x"), part]}]
    async with (
        rollout_session(ANSWER, images=images) as (session, _),
        aiohttp.ClientSession() as http,
        http.post(session.address() + "/chat/completions", json={"messages": messages}) as response,
    ):
        return response.status, await response.json()


@pytest.mark.parametrize("role", ["user", "tool"])
async def test_a_model_without_images_is_told_of_them(role: str) -> None:
    status, _ = await refusal(url_part(RED), images=False, role=role)
    assert status == 200


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}, "none is fetched"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "none is fetched"),
        ({"type": "input_image", "file_id": "f"}, "none is fetched"),
        ({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}}, "none is fetched"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}, "not written in Base64"),
        (url_part(b"no image"), "cannot be read"),
        (url_part(RED[:60]), "cannot be read"),
        (url_part(png(2001, 10)), "more than 200 to 1"),
        (url_part(png(5000, 4001)), "20,000,000"),
        ({"type": "image_url"}, "none is fetched"),
        ({"type": "image_url", "image_url": {"url": 5}}, "image_url.url"),
    ],
)
async def test_an_image_that_cannot_be_taken_is_refused(part: Any, reason: str) -> None:
    status, body = await refusal(part)
    assert status == 400 and reason in body["error"]["message"], body


async def test_a_tools_broken_image_is_a_note_that_the_model_sees() -> None:
    messages: Any = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("x"), url_part(b"broken"), url_part(RED)]},
    ]
    async with (
        rollout_session(ANSWER, images=True) as (session, scripted),
        openai.AsyncOpenAI(base_url=session.address(), api_key="x", timeout=120) as client,
    ):
        await client.chat.completions.create(model="m", messages=messages)
    tool = scripted.requests[0].messages[-1]
    assert tool.content.startswith("x\n[image content, not shown: it cannot be read")
    assert [image.file for image in tool.images] == [RED]
