"""browseruse-server: a Chromium of the session's own, used step by step, or by a language model that is given a task.

Pages are text with numbered elements; every action answers with the page it leads to.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import anyio
from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult, ImageContent
from pydantic import Field

from gaia_tools.browser.chromium import Browser, View
from gaia_tools.browser.task import PREFIX, Format, carry_out
from gaia_tools.files import shown, writable
from gaia_tools.llm import is_configured
from gaia_tools.results import MAX_CHARACTERS, answer, page

_TASK_SECONDS = 570.0
_SHOWN = 10_000
_MAX_IMAGE_BYTES = 4 << 20
Element = Annotated[int, Field(description="Its number on the page as last shown.", ge=1)]
Steps = Annotated[int, Field(description="Most steps to take.", ge=1, le=100)]


@asynccontextmanager
async def _until_the_end(server: FastMCP) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await _browser.close()


server = FastMCP("browseruse-server", log_level="WARNING", lifespan=_until_the_end)
_browser = Browser()
_one_task = asyncio.Lock()


@server.tool()
async def complete_browser_task(
    task: Annotated[
        str, Field(description="What is to be found out or done on the web, with all that matters.")
    ],
) -> CallToolResult:
    """Let an assistant do a task in the web browser (search, follow links, fill in forms) and give the result."""
    return await _do(task, 25, "markdown")


@server.tool()
async def browser_use(
    task: Annotated[
        str, Field(description="What is to be found out or done on the web, with all that matters.")
    ],
    max_steps: Steps = 25,
    extract_format: Annotated[Format, Field(description="How the result is written.")] = "markdown",
) -> CallToolResult:
    """Let an assistant do a task in the web browser, within so many steps; it answers in the form you choose."""
    return await _do(task, max_steps, extract_format)


@server.tool()
async def get_browser_capabilities() -> CallToolResult:
    """What this browser can do here, and what it lacks."""
    program = Browser.program()
    can_do_tasks = program is not None and is_configured(PREFIX)
    tools = [one.name for one in await server.list_tools()]
    lacks = [
        *(
            []
            if program
            else [
                "There is no browser in this environment: no tool of this server works. read_url reads pages."
            ]
        ),
        *(
            []
            if is_configured(PREFIX)
            else [f"{PREFIX}_* is not set: complete_browser_task and browser_use are off."]
        ),
    ]
    structured = {
        "browser": program,
        "assistant": can_do_tasks,
        "tools": tools,
        "extract_formats": ["markdown", "json", "text"],
        "addresses": "http and https, public ones",
        "downloads": "go into the workspace",
        "lacks": lacks,
    }
    lines = [
        f"Tools: {', '.join(tools)}",
        "Addresses: http and https, public ones",
        "Downloads go into the workspace",
    ]
    return answer("\n".join([*lines, *lacks]), structured)


@server.tool()
async def browser_navigate(
    url: Annotated[str, Field(description="An http or https address.")],
) -> CallToolResult:
    """Open a page and show it as text, with a number for everything that can be used. Files are downloaded."""
    return _shown(await _browser.open(url))


@server.tool()
async def browser_read(
    start: Annotated[int, Field(description="Character to begin with, for a long page.", ge=0)] = 0,
    show_links: Annotated[bool, Field(description="Whether to show where links lead.")] = False,
) -> CallToolResult:
    """Show the page as it is now, and more of it than other tools do."""
    return _shown(await _browser.look(show_links), start, MAX_CHARACTERS)


@server.tool()
async def browser_click(element: Element) -> CallToolResult:
    """Click a link, a button or anything else that has a number, and show the page that follows."""
    return _shown(await _browser.click(element))


@server.tool()
async def browser_type(
    element: Element,
    text: Annotated[str, Field(description="What to write, in place of what is there.")],
    submit: Annotated[bool, Field(description="Whether to press Enter afterwards.")] = False,
) -> CallToolResult:
    """Write into a field, and show the page that follows."""
    return _shown(await _browser.type(element, text, submit))


@server.tool()
async def browser_select(
    element: Element,
    option: Annotated[str, Field(description="One of its options, as shown.")],
) -> CallToolResult:
    """Choose an option of a list, and show the page that follows."""
    return _shown(await _browser.select(element, option))


@server.tool()
async def browser_scroll(
    direction: Annotated[Literal["down", "up"], Field(description="Where to.")] = "down",
    screens: Annotated[int, Field(description="How far, in screens.", ge=1, le=20)] = 1,
) -> CallToolResult:
    """Scroll, for pages that load more as one does; the text of a page is shown without."""
    return _shown(await _browser.scroll(direction, screens))


@server.tool()
async def browser_back() -> CallToolResult:
    """Go to the page before, and show it."""
    return _shown(await _browser.back())


@server.tool()
async def browser_screenshot(
    file_path: Annotated[
        str, Field(description="PNG file in the workspace to write it to.")
    ] = "screenshot.png",
    full_page: Annotated[bool, Field(description="All of the page, not only what is on the screen.")] = False,
) -> CallToolResult:
    """Take a picture of the page: written to a file, and shown."""
    target = writable(file_path, overwrite=True)
    picture = await _browser.picture(full_page)
    target.write_bytes(picture)
    found = answer(
        f"Written to {shown(target)} ({len(picture)} bytes).", {"file": shown(target), "bytes": len(picture)}
    )
    if len(picture) <= _MAX_IMAGE_BYTES:
        image = ImageContent(type="image", data=base64.b64encode(picture).decode(), mimeType="image/png")
        found.content.append(image)
    return found


async def _do(what: str, most_steps: int, form: Format) -> CallToolResult:
    if not what.strip():
        raise ToolError("task is empty: say what is to be found out or done.")
    began = time.monotonic()
    try:
        async with asyncio.timeout(_TASK_SECONDS):
            await _one_task.acquire()
    except TimeoutError:
        raise ToolError("Another task has had the browser all the time; try again when it is done.") from None
    try:
        left = _TASK_SECONDS - (time.monotonic() - began)
        outcome = await carry_out(server, what, most_steps, form, left)
    finally:
        _one_task.release()
    structured: dict[str, Any] = {
        "result": outcome.result,
        "success": outcome.success,
        "steps": outcome.steps,
    }
    if form == "json":
        try:
            structured["value"] = json.loads(_without_fence(outcome.result))
        except ValueError:
            structured["value"] = None
    ending = "" if outcome.success else "\n\nThe task was not completed."
    taken = "\n".join(f"{number}. {step}" for number, step in enumerate(outcome.steps, 1))
    return answer(f"{outcome.result}{ending}\n\nSteps:\n{taken or 'none'}", structured)


def _without_fence(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines[1:-1]) if len(lines) > 2 and lines[0].startswith("```") else text


def _shown(view: View, start: int = 0, limit: int = _SHOWN) -> CallToolResult:
    status = f" (status {view.status})" if view.status is not None and view.status >= 400 else ""
    text, next_start = page(view.text, start, limit)
    if next_start is not None and limit == _SHOWN:
        text = text.replace("ask again with start=", "use browser_read with start=")
    heading = f"{view.title or 'Page'}: {view.url}{status}"
    notes = "".join(f"\nNote: {note}" for note in view.notes)
    structured = {
        "url": view.url,
        "title": view.title,
        "status": view.status,
        "elements": view.elements,
        "characters": len(view.text),
        "next_start": next_start,
        "notes": list(view.notes),
        "text": text,
    }
    return answer(f"{heading}{notes}\n\n{text}", structured)
