"""What users and tools write: text, and images where the model takes them.

Images come with their request; nothing is fetched, since whoever writes a request would choose what this process asks
for. A note stands for what the model cannot take, and for an image of a tool that cannot be read: the model may have
brought it about, and a refusal would end an episode that is to be scored.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from aworld_train.episode.images import DATA_URI, MAX_IMAGES, Image, NoImage
from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.response_constraints import RequestRules

_IMAGE_PARTS = ("image_url", "input_image", "image")
_OTHER_PARTS = (
    *("audio", "input_audio", "video", "video_url", "input_video"),
    *("document", "file", "input_file", "resource", "resource_link"),
    *("container_upload", "search_result", "tool_reference"),
)


class Content(NamedTuple):
    text: str
    images: tuple[Image, ...] = ()


def content(value: Any, parameter: str, rules: RequestRules, *, of_tool: bool = False) -> Content:
    """Content that is a string or parts; parts of text that follow each other are joined by newlines."""
    if type(value) is list:
        parts = [(f"{parameter}[{index}]", part) for index, part in enumerate(value)]
        return of_parts(parts, rules, of_tool=of_tool)
    return Content(fields.joined_text(value, parameter))


def of_parts(parts: Sequence[tuple[str, Any]], rules: RequestRules, *, of_tool: bool = False) -> Content:
    """Parts of text and images, each with its place in the request."""
    text = ""
    images: list[Image] = []
    after_text = False
    for where, part in parts:
        kind = part.get("type") if type(part) is dict else None
        if kind == "tool_reference" and type(part.get("tool_name")) is str:
            piece = f"[tool_reference: {part['tool_name'][:100]}]"  # the tool comes with the request
        elif kind in _OTHER_PARTS:
            piece = f"[{kind} content, not shown]"
        elif kind not in _IMAGE_PARTS:
            piece = fields.part_text(part, where)
        elif rules.no_images:
            piece = f"[image content, not shown: {rules.no_images}]"
        else:
            try:
                images.append(_image(part, where, len(text), len(images)))
                after_text = False
                continue
            except NoImage as error:
                if not of_tool:
                    raise fields.unsupported_content(where, f"its image was not taken: {error}") from error
                piece = f"[image content, not shown: {error}]"
            except RequestRefused as refused:
                if not of_tool:
                    raise
                piece = f"[image content, not shown: {refused}]"
        text += ("\n" if after_text else "") + piece
        after_text = True
    return Content(text, tuple(images))


def _image(part: fields.Json, where: str, position: int, count: int) -> Image:
    if count >= MAX_IMAGES:
        raise NoImage(f"the message has more than {MAX_IMAGES}")
    return Image.read_base64(_written(part, where), position)


def _written(part: fields.Json, where: str) -> str:
    if part["type"] == "image":
        source = fields.as_object(part.get("source"), f"{where}.source")
        if source.get("type") != "base64":
            raise _not_sent(f"{where}.source")
        return fields.as_text(source.get("data"), f"{where}.source.data")
    url = part.get("image_url")
    name = f"{where}.image_url"
    if type(url) is dict:
        url, name = url.get("url"), f"{name}.url"
    if url is None:
        raise _not_sent(where)
    url = fields.as_text(url, name)
    begin = DATA_URI.match(url)
    if begin is None:
        raise _not_sent(name)
    return url[begin.end() :]


def _not_sent(where: str) -> RequestRefused:
    return fields.unsupported_content(
        where, "images are taken in Base64 (`data:image/png;base64,...`), and none is fetched from elsewhere"
    )
