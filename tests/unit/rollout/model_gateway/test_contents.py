"""Where images stand in a text, and how many there may be."""

import base64
from typing import Any

import pytest

from aworld_train.rollout.images import TEXT_ONLY
from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import contents
from aworld_train.rollout.response_constraints import RequestRules
from tests.vision import data_url, png

FILE = png()
RULES = RequestRules(no_images="")
IMAGES: list[Any] = [
    {"type": "image_url", "image_url": {"url": data_url(FILE)}},
    {"type": "input_image", "image_url": data_url(FILE)},
    {"type": "image", "source": {"type": "base64", "data": base64.b64encode(FILE).decode()}},
]


def text(written: str) -> Any:
    return {"type": "text", "text": written}


def test_images_of_all_dialects_stand_in_their_places() -> None:
    value = [text("ab"), IMAGES[0], text("c"), "d", IMAGES[1], IMAGES[2]]
    found = contents.content(value, "c", RULES)
    assert (found.text, [image.position for image in found.images]) == ("abc\nd", [2, 5, 5])
    assert [image.file for image in found.images] == [FILE] * 3


@pytest.mark.parametrize("value", ["a\nb", [text("a"), text("b")]])
def test_text_alone_is_taken_by_every_model(value: Any) -> None:
    assert contents.content(value, "c", RequestRules()) == contents.Content("a\nb")


def test_a_message_may_have_so_many_images_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_IMAGES", 2)
    assert len(contents.content(IMAGES[:2], "c", RULES).images) == 2
    with pytest.raises(
        RequestRefused, match="its image was not taken: the message has more than 2"
    ) as caught:
        contents.content(IMAGES, "c", RULES)
    assert (caught.value.code, caught.value.parameter) == ("unsupported_content", "c[2]")
    with pytest.raises(RequestRefused, match="its image was not taken"):
        contents.of_parts([("c", image) for image in IMAGES], RULES)
    found = contents.content([text("a"), *IMAGES, text("b")], "c", RULES, of_tool=True)
    assert found.text == "a[image content, not shown: the message has more than 2]\nb"
    assert len(found.images) == 2


@pytest.mark.parametrize("of_tool", [False, True])
@pytest.mark.parametrize(
    ("part", "reason", "where"),
    [
        ({"type": "image", "source": {"type": "url"}}, "none is fetched", "c[1].source"),
        ({"type": "image"}, "must be an object", "c[1].source"),
        ({"type": "image", "source": {"type": "base64"}}, "must be a string", "c[1].source.data"),
        ({"type": "input_image"}, "none is fetched", "c[1]"),
        ({"type": "image_url", "image_url": {}}, "none is fetched", "c[1]"),
        (
            {"type": "image_url", "image_url": "data:text/plain;base64,AA"},
            "none is fetched",
            "c[1].image_url",
        ),
        ({"type": "image_url", "image_url": {"url": 5}}, "must be a string", "c[1].image_url.url"),
    ],
)
def test_an_image_that_does_not_come_with_the_request_is_refused(
    part: Any, reason: str, where: str, of_tool: bool
) -> None:
    if of_tool:
        found = contents.content(["a", part], "c", RULES, of_tool=True)
        assert found.text.startswith(f"a\n[image content, not shown: {where}")
        assert (reason in found.text, found.images) == (True, ())
        return
    with pytest.raises(RequestRefused, match=reason) as caught:
        contents.content(["a", part], "c", RULES)
    assert caught.value.parameter == where


@pytest.mark.parametrize("of_tool", [False, True])
def test_a_model_of_text_alone_is_told_of_an_image(of_tool: bool) -> None:
    found = contents.content(["a", IMAGES[2], "b"], "c", RequestRules(), of_tool=of_tool)
    assert found == (f"a\n[image content, not shown: {TEXT_ONLY}]\nb", ())


def test_a_tool_that_comes_with_the_request_is_named_where_it_was_found() -> None:
    found = [{"type": "tool_reference", "tool_name": "WebFetch"}, {"type": "tool_reference", "tool_name": 5}]
    read = contents.content(found, "content", RequestRules(), of_tool=True)
    assert read.text == "[tool_reference: WebFetch]\n[tool_reference content, not shown]"


@pytest.mark.parametrize("part", ["document", "file", "input_file", "input_audio", "tool_reference"])
@pytest.mark.parametrize("rules", [RULES, RequestRules()])
def test_a_note_stands_for_what_no_model_takes(part: str, rules: RequestRules) -> None:
    found = contents.content([{"type": "text", "text": "a"}, {"type": part, "data": "x"}], "c", rules)
    assert found == (f"a\n[{part} content, not shown]", ())


@pytest.mark.parametrize("part", [{"type": "another"}, {"type": ["image"]}, {"type": None}, 5])
def test_a_part_of_an_unknown_kind_is_refused(part: Any) -> None:
    with pytest.raises(RequestRefused) as caught:
        contents.content(["a", part], "c", RULES, of_tool=True)
    assert caught.value.parameter.startswith("c[1]")
