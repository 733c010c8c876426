"""A text put to a model under instructions and answered in words: what the servers that think and that check share."""

from typing import Annotated, Any

from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import llm
from gaia_tools.results import answer, cut

SECONDS = 540.0

Temperature = Annotated[float, Field(description="0 for the likeliest, more for variety.", ge=0, le=2)]


async def reasoned(prefix: str, instructions: str, text: str, temperature: float) -> CallToolResult:
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
    reply = await llm.reply(prefix, messages, temperature=temperature, seconds=SECONDS)
    shown, _ = cut(reply.text)
    structured: dict[str, Any] = {"answer": shown, **reply.described()}
    if reply.finish_reason == "length":
        shown += "\n\n(The answer was cut off at the model's limit of tokens.)"
    return answer(shown, structured)
