"""intelligence-think-server: a hard question, put to a model that reasons."""

from typing import Annotated

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.reasoning import Temperature, reasoned

server = FastMCP("intelligence-think-server", log_level="WARNING")
PREFIX = "THINK_LLM"
_INSTRUCTIONS = """You solve hard problems: logic, mathematics, riddles, estimates, plans.
You have no tools and see only what is written here. Say first what is given and what is sought. Work it out step by
step, check each calculation, and try the result against every condition that was given. Name assumptions as such, and
never invent facts, sources or numbers: where something is missing, say what has to be looked up.
End with a line "Conclusion:" and the result, and how sure you are (high, medium, low).
Style: {style}"""


@server.tool()
async def complex_problem_reasoning(
    question: Annotated[
        str, Field(description="The question, with all it takes to answer it.", min_length=1)
    ],
    original_task: Annotated[str, Field(description="The task that the question belongs to.")] = "",
    temperature: Temperature = 0.3,
    reasoning_style: Annotated[
        str, Field(description="'detailed', 'concise', 'step-by-step', or in words.")
    ] = "detailed",
) -> CallToolResult:
    """Have a model that reasons well work out a hard question: logic, mathematics, riddles. It looks nothing up."""
    question = (
        f"The task it belongs to:\n{original_task}\n\nThe question:\n{question}"
        if original_task
        else question
    )
    return await reasoned(PREFIX, _INSTRUCTIONS.format(style=reasoning_style), question, temperature)
