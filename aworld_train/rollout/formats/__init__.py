"""How the models' families write a turn: thoughts, text and tool calls; one entry per notation.

``agent.tool_parser`` names a notation, or ``auto`` chooses it by the chat template (``choose``).
"""

from aworld_train.errors import suggestion
from aworld_train.rollout.formats import harmony, headed_calls, json_calls, literal_calls, tagged_calls
from aworld_train.rollout.formats.call_format import CallFormat, read_turn

AUTO = "auto"
FORMATS = {
    call_format.name: call_format
    for call_format in (
        *json_calls.FORMATS,
        *tagged_calls.FORMATS,
        *headed_calls.FORMATS,
        *literal_calls.FORMATS,
        *harmony.FORMATS,
    )
}


def unknown_name(name: str) -> str | None:
    """What is wrong with a name of ``agent.tool_parser``; None if nothing is."""
    if name == AUTO or name in FORMATS:
        return None
    hint = suggestion(name, [AUTO, *FORMATS])
    return f"unknown tool-call format {name!r}.{hint} There are {AUTO}, {', '.join(sorted(FORMATS))}."


__all__ = ["AUTO", "FORMATS", "CallFormat", "read_turn", "unknown_name"]
