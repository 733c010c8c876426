"""The functions that a request offers to the model, in one form for all dialects: name, description, parameters.

Other fields of a function (``strict``, ``cache_control``) concern constrained sampling or billing, and an empty
description has no content: they are left out, so that the same tools give the same prompt for every client.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.fields import Json

_FORCED = "a forced choice would change how tokens are sampled; 'auto' and 'none' are possible"
_ONE_AT_A_TIME = "the model is not kept from calling several tools in one turn"


@dataclass(frozen=True)
class OfferedTools:
    """The tools of a request.

    Attributes:
        sent: The tools as they were sent.
        text: Their ``repr``, which identifies them; ``==`` would take 1 for ``True``, and JSON does not.
        functions: The functions in the model's prompt.
    """

    sent: Sequence[Any]
    text: str
    functions: tuple[Json, ...]


def offered(body: Json, last: OfferedTools | None, read: Callable[[Any, str], Json]) -> OfferedTools:
    """The tools of a request; the object from the last request if they are the same.

    Args:
        body: The request.
        last: The tools of the agent's last request.
        read: Parses one tool; the string is its parameter's name.
    """
    sent = fields.array(body, "tools")
    if last is not None and sent is last.sent:
        return last
    text = repr(sent)
    if last is not None and text == last.text:
        return last
    return OfferedTools(sent, text, tuple(read(tool, f"tools[{index}]") for index, tool in enumerate(sent)))


def function(tool: Mapping[str, Any], where: str, schema: str = "parameters") -> Json:
    """A function in the format of OpenAI's chat API; ``schema`` is the dialect's name for its parameters."""
    description: Json = {"name": fields.as_name(tool.get("name"), f"{where}.name")}
    if described := fields.text(tool, "description", f"{where}.description"):
        description["description"] = described
    parameters = tool.get(schema)
    # OpenAI: a function without parameters has an empty list of them.
    description["parameters"] = (
        {"type": "object", "properties": {}}
        if parameters is None
        else _without_empty_descriptions(fields.as_object(parameters, f"{where}.{schema}"))
    )
    return {"type": "function", "function": description}


def _without_empty_descriptions(schema: Any) -> Any:
    """The same schema without the empty descriptions that some frameworks add."""
    if isinstance(schema, dict):
        return {
            key: _without_empty_descriptions(value)
            for key, value in schema.items()
            if not (key == "description" and value == "")
        }
    return [_without_empty_descriptions(item) for item in schema] if isinstance(schema, list) else schema


def may_use(choice: Any) -> bool:
    """Whether the model may call tools, from OpenAI's ``tool_choice``.

    Raises:
        RequestRefused: a call is to be forced.
    """
    if choice is None or choice == "auto":
        return True
    if choice == "none":
        return False
    if type(choice) in (str, dict):
        raise fields.unsupported("tool_choice", _FORCED)
    raise fields.wrong(choice, "tool_choice", "'auto' or 'none'")


def refuse_one_at_a_time(requested: bool, parameter: str, offered: bool) -> None:
    """Refuse a request for at most one call in a turn, if tools are offered at all."""
    if requested and offered:
        raise fields.unsupported(parameter, _ONE_AT_A_TIME)
