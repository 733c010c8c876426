"""Archives from anywhere: only their files are written, with names that stay in the folder."""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from mcp.server.fastmcp.exceptions import ToolError

from gaia_tools.files import shown, writable
from gaia_tools.kinds import expect
from gaia_tools.zips import opened

MAX_FILES = 5000
_MAX_BYTES = 500 << 20
_CHUNK = 1 << 20
_SINGLE = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    OSError,
    lzma.LZMAError,
    NotImplementedError,
    ValueError,
)


@dataclass(frozen=True)
class Entry:
    """One thing in an archive: a ``file``, ``folder``, ``link`` or ``special``; ``size`` is what the archive claims."""

    name: str
    size: int | None
    kind: str
    encrypted: bool
    read: Callable[[], IO[bytes]]


@contextmanager
def entries(path: Path, password: str = "") -> Iterator[Iterator[Entry]]:
    kind = expect(path, "zip", "tar", "gz", "bz2", "xz", "docx", "xlsx", "pptx", "epub", "ods", "odt", "odp")
    try:
        if kind == "tar" or (kind in _SINGLE and _is_tar(path)):
            with tarfile.open(path, "r|*") as archive:
                yield (_of_tar(archive, member) for member in archive)
        elif kind in _SINGLE:
            yield iter([_alone(path, kind)])
        else:
            with opened(path) as book:
                yield (_of_zip(book, entry, password) for entry in book.infolist())
    except _DAMAGE as error:
        raise ToolError(f"{path.name} is damaged or incomplete: {error}.") from error


def listed(path: Path) -> list[Entry]:
    with entries(path) as found:
        return [entry for entry, _ in zip(found, range(MAX_FILES + 1), strict=False)]


def extract(
    path: Path, folder: str, names: list[str], overwrite: bool, password: str
) -> tuple[list[str], list[str]]:
    """Write the files of an archive, those named or all, into a folder of the workspace; returns their paths, and what
    was left out, each with the reason.
    """
    written: list[str] = []
    left_out: list[str] = []
    room = _MAX_BYTES
    with entries(path, password) as found:
        for entry in found:
            if entry.kind == "folder" or (names and entry.name not in names):
                continue
            if reason := _unsafe(entry):
                left_out.append(f"{entry.name!r}: {reason}")
                continue
            if entry.encrypted and not password:
                raise ToolError(
                    f"{entry.name} in {path.name} is encrypted. Give the password with password=..."
                )
            if len(written) >= MAX_FILES:
                raise ToolError(
                    f"{path.name} has more than {MAX_FILES} files; name those you want with files=[...]."
                )
            target = writable(f"{folder}/{_clean(entry.name)}", overwrite)
            if not target.is_relative_to(writable(f"{folder}/x", overwrite=True).parent):
                left_out.append(f"{entry.name!r}: a link in {folder} leads elsewhere")
                continue
            room -= _write(entry, target, room, path.name)
            written.append(shown(target))
    if names and not written and not left_out:
        raise ToolError(f"{path.name} has none of {', '.join(names)}: list_archive names what is in it.")
    return written, left_out


def _write(entry: Entry, target: Path, room: int, name: str) -> int:
    size = 0
    try:
        with entry.read() as source, target.open("wb") as copy:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > room:
                    raise ToolError(
                        f"{name} has more than {_MAX_BYTES >> 20} MB in it: name what you want with files=[...]. "
                        "What was written before remains."
                    )
                copy.write(chunk)
    except RuntimeError as error:
        target.unlink(missing_ok=True)
        raise ToolError(f"{entry.name} in {name} is encrypted, and not with the password given.") from error
    except (ToolError, *_DAMAGE):
        target.unlink(missing_ok=True)
        raise
    return size


def _unsafe(entry: Entry) -> str:
    if entry.kind == "link":
        return "it is a link"
    if entry.kind != "file":
        return "it is not an ordinary file"
    parts = PurePosixPath(entry.name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or "\0" in entry.name or entry.name[1:2] == ":":
        return "its name leads out of the folder"
    return "" if parts.parts else "it has no name"


def _clean(name: str) -> str:
    return "".join(one if one.isprintable() else "_" for one in name.replace("\\", "/"))


def _of_zip(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, password: str) -> Entry:
    mode = entry.external_attr >> 16
    kind = "folder" if entry.is_dir() else "link" if stat.S_ISLNK(mode) else "file"
    encrypted = bool(entry.flag_bits & 1)

    def read() -> IO[bytes]:
        return archive.open(entry, pwd=password.encode() if encrypted else None)

    return Entry(_name(entry), entry.file_size, kind, encrypted, read)


def _name(entry: zipfile.ZipInfo) -> str:
    """Names without the flag for UTF-8 are in it all the same in many archives, which Python reads as cp437."""
    if entry.flag_bits & 0x800:
        return entry.filename
    try:
        return entry.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return entry.filename


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = "special"
    if member.isfile():
        kind = "file"
    elif member.isdir():
        kind = "folder"
    elif member.issym() or member.islnk():
        kind = "link"

    def read() -> IO[bytes]:
        file = archive.extractfile(member)
        assert file is not None, "it is a file"
        return file

    return Entry(member.name, member.size, kind, False, read)


def _is_tar(path: Path) -> bool:
    try:
        with tarfile.open(path, "r|*") as archive:
            return archive.next() is not None
    except tarfile.TarError:
        return False


def _alone(path: Path, kind: str) -> Entry:
    def read() -> IO[bytes]:
        return _SINGLE[kind](path, "rb")  # type: ignore[operator, no-any-return]

    return Entry(path.stem, None, "file", False, read)
