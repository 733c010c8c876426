"""intelligence-code-server: Python code, written by a model and checked to be Python before it is handed on."""

import ast
import asyncio
import re
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import llm
from gaia_tools.files import shown, writable
from gaia_tools.isolated import isolated
from gaia_tools.results import answer, cut

server = FastMCP("intelligence-code-server", log_level="WARNING")
PREFIX = "CODE_LLM"
_INSTRUCTIONS = """You write Python programs that do exactly what is asked and nothing else.
Answer with one complete program in one ```python block: all imports, no placeholders, runnable as it is with
Python 3.11. Print the results. Prefer the standard library; say in a comment which packages it needs beyond. Check for
the errors that are to be expected and say what they mean. After the block, say in a few sentences how it works and what
it assumes.
Style: {style}"""
_CHECK_SECONDS = 20.0
# A block may hold lines of backquotes that are indented; its end is a line of its own.
_BLOCK = re.compile(
    r"^(`{3,}|~{3,})[ \t]*([\w+.#-]*)[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_PYTHON = frozenset({"python", "py", "python3"})


@server.tool()
async def generate_python_code(
    task_description: Annotated[str, Field(description="What the program has to do.", min_length=1)],
    requirements: Annotated[
        str, Field(description="What it has to keep to: libraries, input, form of the output.")
    ] = "",
    context: Annotated[str, Field(description="What it has to know: data, files, code around it.")] = "",
    temperature: Annotated[
        float, Field(description="0 for the likeliest, more for variety.", ge=0, le=2)
    ] = 0.1,
    code_style: Annotated[
        str, Field(description="'minimal', 'documented', 'verbose', or in words.")
    ] = "documented",
    save_to_file_path: Annotated[
        str | None, Field(description="Where in the workspace to save it; a file that is there is replaced.")
    ] = None,
) -> CallToolResult:
    """Have a model that is good at code write a Python program; it is checked to be Python, and not run."""
    target = writable(save_to_file_path, overwrite=True) if save_to_file_path else None
    parts = {"Task": task_description, "Requirements": requirements, "Context": context}
    reply = await llm.reply(
        PREFIX,
        [
            {"role": "system", "content": _INSTRUCTIONS.format(style=code_style)},
            {
                "role": "user",
                "content": "\n\n".join(f"{name}:\n{text}" for name, text in parts.items() if text),
            },
        ],
        temperature=temperature,
    )
    code, explanation = extract_code(reply.text)
    problem = await isolated(_problem, code, seconds=_CHECK_SECONDS)
    if target is not None:
        await asyncio.to_thread(target.write_text, code, encoding="utf-8", errors="replace")
    shown_code, was_cut = cut(code, hint="; save_to_file_path saves all of it")
    structured: dict[str, Any] = {
        "code": shown_code,
        "cut": was_cut,
        "explanation": cut(explanation, 4000)[0],
        "syntax_error": problem,
        "saved_to": shown(target) if target else None,
        **reply.described(),
    }
    checked = (
        f"This is not valid Python: {problem}" if problem else "Its syntax is valid; it has not been run."
    )
    if reply.finish_reason == "length":
        checked += " The model's answer was cut off at its limit of tokens."
    saved = f"Saved to {shown(target)}." if target else ""
    notes = [part for part in (structured["explanation"], checked, saved) if part]
    return answer("\n\n".join([f"```python\n{shown_code}\n```", *notes]), structured)


def extract_code(text: str) -> tuple[str, str]:
    """The program in a model's answer, and the words around it.

    It is the longest block that is marked as Python, or the longest that is marked at all; without any, all of it.
    """
    blocks = [(match[2].lower(), match[3], match.span()) for match in _BLOCK.finditer(text)]
    if not blocks:
        return text.strip() + "\n", ""
    candidates = [block for block in blocks if block[0] in _PYTHON] or blocks
    _, code, (begin, end) = max(candidates, key=lambda block: len(block[1]))
    around = "\n\n".join(part.strip() for part in (text[:begin], text[end:]) if part.strip())
    return code.strip("\n") + "\n", around


def _problem(code: str) -> str | None:
    """What the compiler says against it; called in `isolated`, since it has crashed on deep nesting before."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        return f"{error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None
