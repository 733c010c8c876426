"""Packages with files in them: fetched once, checked against their digest, and never kept in this repository.

A version on PyPI never changes. Debian's are those of its release 12, where a machine with another release has none of
them. What is fetched stays in a folder of this user's cache.
"""

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_SECONDS = 300


class UnreachableError(Exception):
    """A package cannot be had from here."""


@dataclass(frozen=True)
class Package:
    """One version of a package: of ``pypi`` the source distribution, of ``debian`` the binary package."""

    name: str
    version: str
    sha256: str
    source: Literal["pypi", "debian"] = "pypi"

    def archive(self) -> Path:
        """The package as the registry has it."""
        folder = _cache() / f"{self.name}-{self.version}"
        with _locked(folder):
            for found in folder.glob("package*"):
                return found
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                fetched = _FETCHERS[self.source](self, Path(scratch))
                digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
                if digest != self.sha256:
                    raise ValueError(f"{fetched.name} has the digest {digest}, not {self.sha256}.")
                ending = re.search(r"\.(tar\.\w+|zip|deb)$", fetched.name)
                assert ending, fetched.name
                return fetched.rename(folder / f"package{ending[0]}")

    def copy(self, member: str, folder: Path) -> Path:
        """A file of the package (empty: the package), copied into a folder, decompressed if it is Debian's."""
        archive = self.archive()
        if not member:
            return Path(shutil.copy(archive, folder / f"{self.name}{archive.name.removeprefix('package')}"))
        kept = archive.parent / "members" / member
        with _locked(archive.parent):
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                beside = kept.with_name(kept.name + ".part")
                beside.write_bytes(_read(archive, member))
                beside.rename(kept)
        if self.source == "debian" and kept.suffix == ".gz":
            target = folder / kept.stem
            target.write_bytes(gzip.decompress(kept.read_bytes()))
            return target
        return Path(shutil.copy(kept, folder / kept.name))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "aworld-train", "tests", "strangers")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_pypi(package: Package, folder: Path) -> Path:
    # The finder of PDM: pip would run what a source distribution has for building it.
    from httpx import HTTPError
    from unearth import PackageFinder
    from unearth.errors import UnpackError

    index = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple/"
    finder = PackageFinder(index_urls=[index], no_binary=[package.name], ignore_compatibility=True)
    try:
        best = finder.find_best_match(f"{package.name}=={package.version}").best
        if best is None:
            raise UnreachableError(f"{index} has no {package.name} {package.version}.")
        finder.download_and_unpack(best.link, folder / "unpacked", download_dir=folder)
    except (HTTPError, UnpackError) as error:
        raise UnreachableError(f"{package.name}: {error}") from error
    return folder / best.link.filename


def _from_debian(package: Package, folder: Path) -> Path:
    command = ["apt-get", "-q", "download", f"{package.name}={package.version}"]
    commands = [command, ["apt-get", "-q", "update"], command]
    try:
        for command in commands:
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
            if found := list(folder.glob("*.deb")):
                return found[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"{package.name}: {error}") from error
    raise UnreachableError(f"{package.name}: {ended.stderr.strip()[-500:]}")


_FETCHERS: dict[str, Callable[[Package, Path], Path]] = {"pypi": _from_pypi, "debian": _from_debian}


def _read(archive: Path, member: str) -> bytes:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as book:
            top = book.namelist()[0].partition("/")[0]
            return book.read(f"{top}/{member}")
    if archive.suffix == ".deb":
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        return _of_tar(subprocess.run(command, check=True, capture_output=True).stdout, f"./{member}")
    with tarfile.open(archive) as file:
        for entry in file:
            if entry.name.partition("/")[2] == member:
                found = file.extractfile(entry)
                assert found is not None, member
                return found.read()
    raise KeyError(f"{archive.parent.name} has no {member}.")


def _of_tar(content: bytes, name: str) -> bytes:
    import io

    with tarfile.open(fileobj=io.BytesIO(content)) as file:
        found = file.extractfile(name)
        assert found is not None, name
        return found.read()
