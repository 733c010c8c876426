"""New files in the workspace that appear whole or not at all."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.files import workspace, writable


@dataclass(frozen=True)
class Saved:
    path: Path
    size: int
    sha256: str
    head: bytes


async def save(
    chunks: AsyncIterator[bytes],
    file_path: str,
    *,
    overwrite: bool,
    most_bytes: int,
    what: str,
    magic: bytes = b"",
) -> Saved:
    """Write ``chunks``, which begin with ``magic``, to a file in the workspace. A failure leaves no file and no new
    folder.
    """
    with _new_file(file_path, overwrite) as (path, file):
        size, digest, head = 0, hashlib.sha256(), b""
        async for chunk in chunks:
            size += len(chunk)
            if size > most_bytes:
                raise ToolError(f"{what} has more than {most_bytes >> 20} MB; no more are saved.")
            digest.update(chunk)
            head = (head + chunk)[:512] if len(head) < 512 else head
            try:
                file.write(chunk)
            except OSError as error:
                raise ToolError(f"{file_path} cannot be written: {error.strerror}.") from error
        if not size:
            raise ToolError(f"{what} gave an empty file.")
        if not head.lstrip().startswith(magic):
            raise ToolError(f"{what} gave something else than a {magic.decode().strip('%-')} file.")
    return Saved(path, size, digest.hexdigest(), head)


@contextlib.contextmanager
def _new_file(file_path: str, overwrite: bool) -> Iterator[tuple[Path, IO[bytes]]]:
    there = _nearest_folder(file_path)
    path = writable(file_path, overwrite)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    except OSError as error:
        raise ToolError(f"{file_path} cannot be written: {error.strerror}.") from error
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield path, file
        part.chmod(0o644)
        if overwrite:
            part.replace(path)
        else:
            path.hardlink_to(part)  # unlike replace, it fails where another file has come to be
            part.unlink()
    except BaseException as error:
        part.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == there or not folder.is_relative_to(there):
                break
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise ToolError(f"{file_path} cannot be written: {error.strerror}.") from error
        raise


def _nearest_folder(file_path: str) -> Path:
    try:
        path = (workspace() / file_path).resolve()
        return next((folder for folder in path.parents if folder.exists()), workspace())
    except (OSError, ValueError, RuntimeError):
        return workspace()
