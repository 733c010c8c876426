"""Where tools read and write files: the session's workspace, and the attachments of a benchmark, which are only read.

The samples that come with the tools can be read for tests. What counts is where a name leads once links are followed.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from mcp.server.fastmcp.exceptions import ToolError

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
"""Small files of every kind."""
_MAX_BYTES = 200 << 20
_MAX_LISTED = 20
_MAX_LOOKED_AT = 2000


def workspace() -> Path:
    return Path(os.environ.get("WORKSPACE", ".")).resolve()


def attachments() -> Path:
    return Path(os.environ.get("ATTACHMENTS", "/attachments")).resolve()


def readable(file_path: str, most_bytes: int = _MAX_BYTES) -> Path:
    """The file of that name in the workspace or among the attachments, with its links followed."""
    roots = [workspace(), attachments()]
    path = _inside(file_path, roots, "files can be read", [SAMPLES])
    if not path.is_file():
        raise ToolError(f"There is no file {file_path}. There is: {_listing(roots) or 'nothing yet'}.")
    if not os.access(path, os.R_OK):
        raise ToolError(f"{file_path} may not be read.")
    size = path.stat().st_size
    if size == 0:
        raise ToolError(f"{file_path} is empty: it has 0 bytes.")
    if size > most_bytes:
        raise ToolError(f"{file_path} has {size >> 20} MB; more than {most_bytes >> 20} MB are not read.")
    return path


def writable(file_path: str, overwrite: bool = False) -> Path:
    """Where a file of that name is to be written, in the workspace; its folder is made."""
    path = _inside(file_path, [workspace()], "files can be written")
    if path.is_dir():
        raise ToolError(f"{file_path} is a folder; name a file.")
    if path.exists() and not overwrite:
        raise ToolError(f"There is a file {file_path} already; set overwrite, or choose another name.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"The folder of {file_path} cannot be made: {error.strerror}.") from error
    return path


def shown(path: Path) -> str:
    return str(path.relative_to(workspace())) if path.is_relative_to(workspace()) else str(path)


def _inside(file_path: str, roots: list[Path], purpose: str, unnamed: Sequence[Path] = ()) -> Path:
    try:
        path = (workspace() / file_path).resolve()
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"{file_path!r} cannot be a file's name: {error}.") from error
    if not any(path.is_relative_to(root) for root in [*roots, *unnamed]):
        raise ToolError(f"{file_path} is outside {' and '.join(map(str, roots))}, where {purpose}.")
    return path


def _listing(roots: list[Path]) -> str:
    found = []
    for root in roots:
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += [shown(Path(folder, name)) for name in sorted(names) if not name.startswith(".")]
            if len(found) > _MAX_LOOKED_AT:
                break
    more = f", and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
    return ", ".join(found[:_MAX_LISTED]) + more
