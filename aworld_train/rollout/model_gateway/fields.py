"""Reads values from a request's body: a value of the wrong type is refused with the parameter's name.

Bodies stay plain JSON: for a long history, a validation library would take longer than all the rest. ``True`` is not
accepted as a number, and ``null`` counts as an absent parameter.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aworld_train.rollout.messages import RequestRefused
from aworld_train.whole_text import load_whole

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
    try:
        value = _parsed(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestRefused(f"the body must be a JSON object, and is {kind(value)}", code="invalid_json")
    return value


def _parsed(body: bytes) -> Any:
    # Where msgspec accepts a body, its result equals that of `json`, several times as fast. It rejects numbers beyond a
    # float's range, ``NaN``, and half of a surrogate pair.
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # JSON is UTF-8 (RFC 8259). A refusal of half a surrogate pair, which a tool may send, would end the episode.
        return load_whole(body.decode("utf-8", "surrogatepass"))


def kind(value: Any) -> str:
    return _KINDS.get(type(value), "something else")


def wrong(value: Any, parameter: str, expected: str) -> RequestRefused:
    # Python does not write integers of thousands of digits in decimal.
    described = (
        f"{value}" if type(value) is float or (type(value) is int and abs(value) < 1 << 64) else kind(value)
    )
    return invalid(parameter, f"must be {expected}, and is {described}")


def invalid(parameter: str, fault: str) -> RequestRefused:
    return RequestRefused(f"{parameter} {fault}", code="invalid_value", parameter=parameter)


def unsupported(parameter: str, reason: str) -> RequestRefused:
    """The error for a parameter that the dialect has and the model gateway does not support."""
    return RequestRefused(f"{parameter}: {reason}", code="unsupported_parameter", parameter=parameter)


def as_object(value: Any, parameter: str) -> Json:
    if type(value) is dict:
        return value
    raise wrong(value, parameter, "an object")


def as_text(value: Any, parameter: str) -> str:
    if type(value) is str:
        return value
    raise wrong(value, parameter, "a string")


def as_name(value: Any, parameter: str) -> str:
    if type(value) is str and value:
        return value
    raise wrong(value, parameter, "a string that is not empty")


def array(body: Mapping[str, Any], parameter: str, where: str = "") -> Sequence[Any]:
    """The array under ``parameter``, or an empty one; ``where`` is its full name if that is longer."""
    value = body.get(parameter)
    if value is None:
        return ()
    if type(value) is list:
        return value
    raise wrong(value, where or parameter, "an array")


def text(body: Mapping[str, Any], parameter: str, where: str = "") -> str:
    value = body.get(parameter)
    return "" if value is None else as_text(value, where or parameter)


def flag(body: Mapping[str, Any], parameter: str) -> bool:
    value = body.get(parameter)
    if value is None or type(value) is bool:
        return bool(value)
    raise wrong(value, parameter, "a boolean")


def integer(body: Mapping[str, Any], parameter: str, min_value: int) -> int | None:
    value = body.get(parameter)
    if value is None or (type(value) is int and value >= min_value):
        return value
    raise wrong(value, parameter, f"an integer from {min_value} on")


def number(body: Mapping[str, Any], parameter: str, max_value: float = math.inf) -> float | None:
    value = body.get(parameter)
    if value is None:
        return None
    try:
        converted = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        converted = math.nan
    if math.isfinite(converted) and 0 <= converted <= max_value:
        return converted
    limits = "from 0 on" if max_value == math.inf else f"from 0 to {max_value:g}"
    raise wrong(value, parameter, f"a number {limits}")


def unsupported_content(where: str, reason: str) -> RequestRefused:
    return RequestRefused(f"{where}: {reason}", code="unsupported_content", parameter=where)


def joined_text(content: Any, parameter: str) -> str:
    """Content that is a string or text parts, joined by newlines, as vLLM joins them for text templates."""
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
        raise unsupported_content(
            where, f"it is of the type {part_type[:50]!r}, and only text is taken there"
        )
    as_text(part_type, f"{where}.type")
    return as_text(part.get("text"), f"{where}.text")
