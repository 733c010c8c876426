"""What the descriptions of tools cost in tokens, by tool server: every prompt of an episode has them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aworld_train.dataset.lengths import prompt_tokenizer
from aworld_train.errors import EnvironmentFailure
from aworld_train.interruptible import run_interruptible
from aworld_train.rollout.outcome import EnvironmentLost
from aworld_train.rollout.tool_selection import ALL_TOOLS, ToolSelection
from aworld_train.rollout.tools import ToolServer, tool_headers

_QUESTION = [{"role": "user", "content": "Hello"}]


def tool_tokens(
    model: Path,
    url: str,
    token: str | None,
    servers: Sequence[str],
    seconds: float,
    selection: ToolSelection = ALL_TOOLS,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, int]]:
    """For each server its ``tools``, their ``tokens`` in a prompt, and those with ``short`` descriptions.

    The tokens of a server are what a prompt with its tools alone has more than one without tools, so that the
    template's own words about tools are in each.
    """
    tokenizer = prompt_tokenizer(model, note)
    tools_by_server = run_interruptible(_listed(url, token, servers, seconds))
    short = ToolSelection(selection.include, selection.exclude, short_descriptions=True)
    costs = {}
    for server, tools in tools_by_server.items():
        shown = selection.apply(tools)
        costs[server] = {
            "tools": len(shown),
            "tokens": _length(tokenizer, shown) - _length(tokenizer, []),
            "short": _length(tokenizer, short.apply(tools)) - _length(tokenizer, []),
        }
    return costs


async def _listed(
    url: str, token: str | None, servers: Sequence[str], seconds: float
) -> dict[str, list[dict[str, Any]]]:
    """The tools of each server; one after the other, so that one worker is enough."""
    tools = {}
    for server in servers:
        try:
            tools[server] = await ToolServer(
                url, tool_headers(token, [server]), connect_timeout=seconds
            ).schemas()
        except EnvironmentLost as lost:
            raise EnvironmentFailure(f"The tools of {server!r} could not be listed: {lost}.") from lost
    return tools


def _length(tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> int:
    # Some templates leave tools out for a list of another type, and some fail without any.
    listed = json.loads(json.dumps(tools)) or None
    tokens = tokenizer.apply_chat_template(
        _QUESTION, tools=listed, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return len(tokens)
