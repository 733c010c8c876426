"""The functions that a request offers to the model, in one form for all dialects: name, description, parameters.

Other fields of a function (``strict``, ``cache_control``) concern constrained sampling or billing, and an empty
description has no content: they are left out, so that the same tools give the same prompt for every client. So are
tools that are not functions, which coding agents offer by default: a provider's own, such as web search, and those with
a grammar.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.model_gateway.fields import Json
from aworld_train.rollout.response_constraints import RequestRules

log = logging.getLogger(__name__)

_ONLY_FUNCTIONS = "only functions are possible; with `agent.requests: relaxed` other tools are left out"
_FORCED = (
    "a forced call would change how tokens are sampled, which the trainer learns from; 'auto' and 'none' are possible, "
    "and with `agent.requests: relaxed` it is taken as a wish"
)
_ONE_AT_A_TIME = (
    "the model is not kept from calling several tools in one turn; "
    "with `agent.requests: relaxed` that is taken as a wish"
)
_OTHER_KIND = "only a function, allowed_tools, 'auto', 'none' and 'required' are possible"


@dataclass(frozen=True)
class OfferedTools:
    """The tools of a request.

    ``text``, the ``repr`` of what was ``sent``, identifies them; ``==`` would take 1 for ``True``. ``namespaces`` has
    the namespace and the own name of functions by their name in the prompt.
    """

    sent: Sequence[Any]
    text: str
    functions: tuple[Json, ...]
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolChoice:
    """What a request wants of the model's calls; no ``tools`` are all that are offered."""

    may_call: bool = True
    must_call: bool = False
    tools: tuple[str, ...] = ()


def offered(
    body: Json,
    last: OfferedTools | None,
    read: Callable[[Any, str], Json],
    function_types: Sequence[str],
    rules: RequestRules,
) -> OfferedTools:
    """The tools of a request; the object of the last request if they are the same.

    ``read`` parses one function, given its parameter's name; ``function_types`` are the dialect's names for functions.
    """
    sent = fields.array(body, "tools")
    if last is not None and sent is last.sent:
        return last
    text = repr(sent)
    if last is not None and text == last.text:
        return last
    functions, namespaces, left_out = [], {}, ""
    for namespace, tool, where in _listed(sent):
        tool_type = tool.get("type") if type(tool) is dict else None
        if type(tool_type) is str and tool_type not in function_types:
            if rules.strict:
                raise fields.unsupported(f"{where}.type", _ONLY_FUNCTIONS)
            left_out = tool_type[:50]
            _note_left_out(left_out)
            continue
        function = read(tool, where)
        if namespace:
            name = function["function"]["name"]
            function["function"]["name"] = full_name = name_in(namespace, name)
            namespaces[full_name] = (namespace, name)
        functions.append(function)
    if left_out and not functions:
        # A request that is all about a tool, such as a coding agent's web search, would get an answer made up.
        raise fields.unsupported(
            "tools", f"none of them is a function ({left_out!r}), which alone are possible"
        )
    return OfferedTools(sent, text, tuple(functions), namespaces)


def _listed(sent: Sequence[Any]) -> Iterator[tuple[str, Any, str]]:
    for index, tool in enumerate(sent):
        where = f"tools[{index}]"
        if type(tool) is dict and tool.get("type") == "namespace":
            namespace = fields.as_name(tool.get("name"), f"{where}.name")
            for inner, member in enumerate(fields.array(tool, "tools", f"{where}.tools")):
                yield namespace, member, f"{where}.tools[{inner}]"
        else:
            yield "", tool, where


def name_in(namespace: str, name: str) -> str:
    """The name by which the model knows a function of a namespace."""
    return f"{namespace.rstrip('_')}__{name}" if namespace else name


@lru_cache(maxsize=64)  # once for each
def _note_left_out(tool_type: str) -> None:
    log.warning(
        "an agent offers a tool of the type %r: it is left out, the model calls functions only", tool_type
    )


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
    if isinstance(schema, dict):
        return {
            key: _without_empty_descriptions(value)
            for key, value in schema.items()
            if not (key == "description" and value == "")
        }
    return [_without_empty_descriptions(item) for item in schema] if isinstance(schema, list) else schema


def choice(value: Any, functions: Sequence[Json], rules: RequestRules) -> ToolChoice:
    """The choice in OpenAI's ``tool_choice``, of chat completions or of responses."""
    if value is None or value == "auto":
        return ToolChoice()
    if value == "none":
        return ToolChoice(may_call=False)
    if value == "required":
        return wanted((), True, functions, rules)
    if type(value) is not dict:
        raise fields.wrong(value, "tool_choice", "'auto', 'none', 'required' or an object")
    kind = value.get("type")
    if kind == "function":
        return wanted((_name(value, "tool_choice"),), True, functions, rules)
    if kind == "allowed_tools":
        inner = fields.as_object(value.get("allowed_tools", value), "tool_choice.allowed_tools")
        named = fields.array(inner, "tools", "tool_choice.tools")
        names = tuple(_name(tool, f"tool_choice.tools[{index}]") for index, tool in enumerate(named))
        return wanted(names, inner.get("mode") == "required", functions, rules)
    raise fields.unsupported("tool_choice", _OTHER_KIND)


def wanted(
    names: tuple[str, ...], must_call: bool, functions: Sequence[Json], rules: RequestRules
) -> ToolChoice:
    """A choice that the model is free to miss."""
    if rules.strict:
        raise fields.unsupported("tool_choice", _FORCED)
    known = {function["function"]["name"] for function in functions}
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not known:
        reason = "there are no tools" if unknown is None else f"there is no tool {unknown[:100]!r}"
        raise RequestRefused(
            f"tool_choice: {reason} among `tools`", code="invalid_value", parameter="tool_choice"
        )
    return ToolChoice(True, must_call, names)


def _name(value: Any, where: str) -> str:
    named = fields.as_object(value, where)
    return fields.as_name(fields.as_object(named.get("function", named), where).get("name"), f"{where}.name")


def one_call(requested: bool, parameter: str, functions: Sequence[Json], rules: RequestRules) -> bool:
    """Whether at most one call is wanted in a turn, if tools are offered at all."""
    if requested and functions and rules.strict:
        raise fields.unsupported(parameter, _ONE_AT_A_TIME)
    return bool(requested and functions)
