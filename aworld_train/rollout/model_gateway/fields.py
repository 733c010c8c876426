"""Values out of a request's body: each is of the type it must have, or the request is refused by the parameter's name.

Bodies are plain JSON and stay so: a validation library would take longer for a long history than all the rest. ``True``
is no number here, and ``null`` is as if the parameter were not there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aworld_train.rollout.messages import RequestRefused

Json = dict[str, Any]

_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_DECODER: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def parse_body(body: bytes) -> Json:
    """A request's body as an object.

    Raises:
        Refused: it is no JSON, no object, or holds text that cannot be encoded.
    """
    try:
        value = _parsed(body)
    except UnicodeEncodeError:
        raise RequestRefused(
            "the body holds half of a surrogate pair, which is no text", code="invalid_text"
        ) from None
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the body is no JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestRefused(f"the body must be a JSON object, and is {kind(value)}", code="invalid_json")
    return value


def _parsed(body: bytes) -> Any:
    """What is in a body.

    msgspec finds what `json` finds, several times as fast, where it finds anything. It takes no numbers beyond a
    float's range, no ``NaN``, and no half of a surrogate pair.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # JSON is UTF-8 (RFC 8259), and decoded strictly; given bytes, `json` would let surrogates through.
        value = json.loads(body.decode())
        # Half of a surrogate pair is possible in JSON, and in no tokenizer.
        json.dumps(value, ensure_ascii=False).encode()
        return value


def kind(value: Any) -> str:
    """What a value is, in JSON's words."""
    return _KINDS.get(type(value), "something else")


def wrong(value: Any, parameter: str, expected: str) -> RequestRefused:
    """What to raise for a value of the wrong type or range."""
    # An integer of thousands of digits has no decimal form.
    described = (
        f"{value}" if type(value) is float or (type(value) is int and abs(value) < 1 << 64) else kind(value)
    )
    return RequestRefused(
        f"{parameter} must be {expected}, and is {described}", code="invalid_value", parameter=parameter
    )


def unsupported(parameter: str, reason: str) -> RequestRefused:
    """What to raise for something that is right in the dialect, and that is not done here."""
    return RequestRefused(f"{parameter}: {reason}", code="unsupported_parameter", parameter=parameter)


def as_object(value: Any, parameter: str) -> Json:
    """``value``, an object."""
    if type(value) is dict:
        return value
    raise wrong(value, parameter, "an object")


def as_text(value: Any, parameter: str) -> str:
    """``value``, a string."""
    if type(value) is str:
        return value
    raise wrong(value, parameter, "a string")


def as_name(value: Any, parameter: str) -> str:
    """``value``, a string that is not empty."""
    if type(value) is str and value:
        return value
    raise wrong(value, parameter, "a string that is not empty")


def array(body: Mapping[str, Any], parameter: str, where: str = "") -> Sequence[Any]:
    """The array under ``parameter``, or an empty one; ``where`` is its whole name, where that is longer."""
    value = body.get(parameter)
    if value is None:
        return ()
    if type(value) is list:
        return value
    raise wrong(value, where or parameter, "an array")


def text(body: Mapping[str, Any], parameter: str, where: str = "") -> str:
    """The string under ``parameter``, or an empty one."""
    value = body.get(parameter)
    return "" if value is None else as_text(value, where or parameter)


def flag(body: Mapping[str, Any], parameter: str) -> bool:
    """The boolean under ``parameter``, or False."""
    value = body.get(parameter)
    if value is None or type(value) is bool:
        return bool(value)
    raise wrong(value, parameter, "a boolean")


def integer(body: Mapping[str, Any], parameter: str, min_value: int) -> int | None:
    """The integer under ``parameter``, ``least`` or more."""
    value = body.get(parameter)
    if value is None or (type(value) is int and value >= min_value):
        return value
    raise wrong(value, parameter, f"an integer from {min_value} on")


def number(body: Mapping[str, Any], parameter: str, max_value: float = math.inf) -> float | None:
    """The number under ``parameter``, between 0 and ``most``."""
    value = body.get(parameter)
    if value is None:
        return None
    try:
        converted = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        converted = math.nan
    if math.isfinite(converted) and 0 <= converted <= max_value:
        return converted
    raise wrong(
        value,
        parameter,
        "a number from 0 on" if max_value == math.inf else f"a number from 0 to {max_value:g}",
    )


def joined_text(content: Any, parameter: str) -> str:
    """Content that is a string, or text in parts, of which each is a line, as vLLM joins them for text templates.

    Raises:
        Refused: there is something else in it: an image, audio, a file.
    """
    if type(content) is str:
        return content
    if type(content) is not list:
        raise wrong(content, parameter, "a string or an array of parts")
    return "\n".join(part_text(part, f"{parameter}[{index}]") for index, part in enumerate(content))


def part_text(part: Any, where: str) -> str:
    """The text of one part; other parts are refused."""
    if type(part) is str:
        return part
    part_type = as_object(part, where).get("type")
    if part_type == "refusal":
        return as_text(part.get("refusal"), f"{where}.refusal")
    if type(part_type) is str and part_type not in _TEXT_PARTS:
        raise RequestRefused(
            f"{where} is of the type {part_type[:50]!r}, and only text reaches the model",
            code="unsupported_content",
            parameter=where,
        )
    as_text(part_type, f"{where}.type")
    return as_text(part.get("text"), f"{where}.text")
