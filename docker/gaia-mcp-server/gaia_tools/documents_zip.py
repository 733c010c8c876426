"""documents-zip-server: archives."""

from pathlib import Path
from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP
from mcp.types import CallToolResult
from pydantic import Field

from gaia_tools.archives import MAX_FILES, extract, listed
from gaia_tools.documents import FilePath, Format, Password, formats, some
from gaia_tools.files import readable
from gaia_tools.isolated import isolated
from gaia_tools.results import answer
from gaia_tools.tables import table

server = FastMCP("documents-zip-server", log_level="WARNING")
_FORMATS = {
    ".zip": "ZIP, also encrypted, and what is one: .docx .xlsx .pptx .epub .jar",
    ".tar .tar.gz .tgz .tar.bz2 .tar.xz": "tar",
    ".gz .bz2 .xz": "one compressed file",
}
_SECONDS = 110
_MAX_SHOWN = 500


@server.tool()
async def list_archive(file_path: FilePath, output_format: Format = "markdown") -> CallToolResult:
    """List what is in an archive: ZIP, tar, gz, bz2 or xz."""
    path = readable(file_path)
    found = await isolated(_listed, path, seconds=_SECONDS)
    names = found["entries"]
    text = table([["name", "bytes", ""], *([one["name"], one["bytes"], _note(one)] for one in names)])
    heading = f"{path.name}: {some(found['files'], 'file')}, {found['bytes']} bytes"
    if found["more"]:
        heading += f"; the first {len(names)} are shown"
    if output_format == "text":
        return answer("\n".join(one["name"] for one in names), found)
    return answer(f"{heading}\n\n{text}", found, output_format)


@server.tool()
async def extract_archive(
    file_path: FilePath,
    output_dir: Annotated[
        str, Field(description="Folder in the workspace to write to; without it, one named like the archive.")
    ] = "",
    files: Annotated[
        list[str] | None, Field(description="Names to extract, as list_archive has them; without it, all.")
    ] = None,
    overwrite: Annotated[bool, Field(description="Replace files that are there already.")] = False,
    output_format: Format = "markdown",
    password: Password = "",
) -> CallToolResult:
    """Extract an archive into the workspace and name the files. Links and names that lead elsewhere are left out."""
    path = readable(file_path)
    folder = output_dir or _folder(path)
    written, left_out = await isolated(
        extract, path, folder, files or [], overwrite, password, seconds=_SECONDS
    )
    found: dict[str, Any] = {"folder": folder, "count": len(written), "files": written[:_MAX_SHOWN]}
    found["left_out"] = left_out[:_MAX_SHOWN]
    lines = [f"{some(len(written), 'file')} extracted from {path.name} into {folder}:", *found["files"]]
    if len(written) > _MAX_SHOWN:
        lines.append(f"... and {len(written) - _MAX_SHOWN} more")
    if left_out:
        lines += ["Left out:", *found["left_out"]]
    return answer("\n".join(lines), found, output_format)


@server.tool()
async def list_supported_formats() -> CallToolResult:
    """The kinds of files that are read as archives."""
    return formats(_FORMATS)


def _listed(path: Path) -> dict[str, Any]:
    found = listed(path)
    files = [entry for entry in found if entry.kind == "file"]
    return {
        "file": str(path),
        "files": len(files),
        "bytes": sum(entry.size or 0 for entry in files),
        "more": len(found) > _MAX_SHOWN or len(found) > MAX_FILES,
        "entries": [
            {"name": entry.name, "bytes": entry.size, "kind": entry.kind, "encrypted": entry.encrypted}
            for entry in found[:_MAX_SHOWN]
        ],
    }


def _note(entry: dict[str, Any]) -> str:
    notes = [entry["kind"]] if entry["kind"] != "file" else []
    return ", ".join(notes + ["encrypted"] * entry["encrypted"])


def _folder(path: Path) -> str:
    stem = path.stem.removesuffix(".tar")
    return stem if path.suffix else f"{path.name}_files"
