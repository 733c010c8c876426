"""download-server: files from the web into the workspace.

A file is written beside where it is to be and takes its name when all of it is there: a failed download leaves nothing.
"""

from typing import Annotated

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools import web
from gaia_tools.files import shown
from gaia_tools.results import OutputFormat, answer
from gaia_tools.saving import Saved, save

server = FastMCP("download-server", log_level="WARNING")
_MAX_BYTES = 200 << 20
_MAX_SECONDS = 600
_TRIES = 3
_CHUNK = 1 << 18
_PAGES = (b"<!doctype html", b"<html")
_PAGE_ENDINGS = (".html", ".htm", ".xhtml", ".txt", ".md")


@server.tool()
async def download_file(
    url: Annotated[str, Field(description="Address of the file, http or https.")],
    output_file_path: Annotated[
        str, Field(description="Where to save it, in the workspace: data/table.xlsx")
    ],
    overwrite: Annotated[bool, Field(description="Whether to replace a file that is there.")] = False,
    timeout: Annotated[
        int, Field(description="Seconds it may take, 600 at most.", ge=1, le=_MAX_SECONDS)
    ] = 60,
    output_format: Annotated[OutputFormat, Field(description="How the result is written.")] = "markdown",
) -> CallToolResult:
    """Download a file of up to 200 MB from the web and save it in the workspace, for other tools to read."""
    # Not compressed on the way: what is saved is what is there, also if that is a compressed file.
    headers = {"Accept-Encoding": "identity"}
    async with web.opened(url, headers=headers, seconds=timeout, tries=_TRIES) as response:
        if response.status != 200:
            raise ToolError(f"{url} answered {response.status} ({response.reason}); nothing was saved.")
        if (response.content_length or 0) > _MAX_BYTES:
            raise ToolError(
                f"{url} has {(response.content_length or 0) >> 20} MB; more than {_MAX_BYTES >> 20} MB are not saved."
            )
        saved = await save(
            response.content.iter_chunked(_CHUNK),
            output_file_path,
            overwrite=overwrite,
            most_bytes=_MAX_BYTES,
            what=url,
        )
        origin, content_type = str(response.url), response.headers.get("Content-Type", "")
    note = _doubt(saved)
    structured = {
        "file": shown(saved.path),
        "url": origin,
        "bytes": saved.size,
        "content_type": content_type,
        "sha256": saved.sha256,
        "note": note,
    }
    lines = [
        f"Saved {structured['file']}: {saved.size} bytes, {content_type or 'no content type given'}.",
        f"From {origin}, sha256 {saved.sha256}.",
        note,
    ]
    return answer("\n".join(filter(None, lines)), structured, output_format)


def _doubt(saved: Saved) -> str:
    """What is probably wrong with a file: sites answer with a page where a file cannot be had."""
    is_page = saved.head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES)
    if not is_page or saved.path.suffix.lower() in ("", *_PAGE_ENDINGS):
        return ""
    return (
        f"But {saved.path.name} holds a web page and not what its name says: the site may ask to log in or to agree, "
        "or the address may be that of a page with a link to the file. Read the page and look."
    )
