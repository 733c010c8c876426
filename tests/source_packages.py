"""Other projects' test suites, out of their source packages: fetched with a checksum, read as data, never imported."""

import fcntl
import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

CACHE = Path.home() / ".cache" / "aworld-train" / "tests" / "sources"
_SECONDS = 300


def source_folder(name: str, version: str, sha256: str) -> Path:
    """The unpacked source package; it is fetched from the index that pip knows, once.

    Raises:
        AssertionError: Its checksum is another one.
    """
    folder = CACHE / f"{name}-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}-{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(name, version, sha256, folder)
    return folder


def _fetch(name: str, version: str, sha256: str, folder: Path) -> None:
    options = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "-q"]
    downloads = CACHE / f"{name}-{version}.download"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-d", str(downloads), f"{name}=={version}"],
        check=True,
        timeout=_SECONDS,
    )
    (archive,) = downloads.glob("*.tar.gz")
    actual = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert actual == sha256, f"{archive.name} has the checksum {actual}"
    unpacked = downloads / "unpacked"
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (top,) = unpacked.iterdir()
    top.rename(folder)
