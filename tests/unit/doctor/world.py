"""A machine in a temporary folder: real files and programs, among which a test puts faults."""

import json
import os
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aworld_train import recipe as recipes
from aworld_train.doctor import Machine, Needs
from aworld_train.doctor.machine import COMMAND_SECONDS

_FILES = {
    "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 30000000 kB\n",
    "proc/mounts": "/dev/sda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,nosuid 0 0\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             96365                96365                processes \n"
        "Max open files            65536                65536                files     \n"
        "Max locked memory         65536                65536                bytes     \n"
    ),
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
}
_PROGRAMS = ("df", "sleep", "cat")
"""Programs of the system that the machine has too."""


QWEN3_8B: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12_288,
    "vocab_size": 151_936,
    "tie_word_embeddings": False,
}


@dataclass
class World:
    """What a `Machine` is made of."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    python: tuple[int, int] = (3, 11)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def machine(self, command_seconds: float = COMMAND_SECONDS) -> Machine:
        """The machine as it is now."""
        environment = {"PATH": str(self.folder / "bin"), "HOME": str(self.folder / "home"), **self.variables}
        return Machine(
            self.root, environment, (str(self.folder / "site"),), self.work, self.python, command_seconds
        )

    def needs(self, values: dict[str, Any] | None) -> Needs:
        """What the recipe with these values needs."""
        base = {"name": "planted", "model": {"path": str(self.folder / "model")}}
        return Needs(recipes.load(base | values) if values is not None else None)

    def write(self, name: str, text: str) -> Path:
        """A system file."""
        return _written(self.root / name, text)

    def program(self, name: str, script: str) -> None:
        """A program on the machine's PATH."""
        _written(self.folder / "bin" / name, f"#!{shutil.which('sh')}\n{script}\n").chmod(0o755)

    def package(
        self, name: str, version: str, requires: tuple[str, ...] = (), tag: str = "py3-none-any"
    ) -> Path:
        """An installed package without content."""
        metadata = _written(
            self.folder / "site" / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA",
            "\n".join(
                [
                    f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
                    *(f"Requires-Dist: {r}" for r in requires),
                ]
            ),
        )
        return _written(metadata.with_name("WHEEL"), f"Wheel-Version: 1.0\nTag: {tag}\n")

    def torch(
        self, version: str = "2.11.0", cuda: str | None = "13.0", requires: tuple[str, ...] = ()
    ) -> None:
        """An installed torch, as far as it is read."""
        self.package("torch", version, requires)
        _written(self.folder / "site" / "torch" / "version.py", f"cuda: Optional[str] = {cuda!r}\n")

    def gpus(self, *gpus: str, script: str = "") -> None:
        """GPUs as ``nvidia-smi`` lists them."""
        listing = "\n".join(gpus)
        self.program("nvidia-smi", script or f"cat <<'END'\n{listing}\nEND")

    def model(self, size: int, **config: Any) -> None:
        """A model whose weights have so many bytes, none of which is on the disk."""
        _written(self.folder / "model" / "config.json", json.dumps({"torch_dtype": "bfloat16", **config}))
        with (self.folder / "model" / "model.safetensors").open("wb") as file:
            file.truncate(size)


def new_world(folder: Path) -> World:
    """A machine without faults and without GPUs, SLURM, Docker or packages."""
    for name in ("root/tmp", "root/dev/shm", "bin", "site", "work", "home"):
        (folder / name).mkdir(parents=True)
    world = World(folder)
    for name, text in _FILES.items():
        world.write(name, text)
    for name in _PROGRAMS:
        # Not a link: a test that replaces the program would write through it.
        world.program(name, f'exec {shutil.which(name)} "$@"')
    world.model(2_000_000)
    return world


@contextmanager
def http_server(
    answers: dict[str, str], date: float | None = None, path: Path | None = None, token: str | None = None
) -> Iterator[str]:
    """A server that answers with JSON by path; on loopback, or on a Unix socket at ``path``.

    With a token it answers nobody who does not send it.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path.partition("?")[0])
            if token is not None and self.headers["Authorization"] != f"Bearer {token}":
                self.send_response(401)
            else:
                self.send_response(200 if body is not None else 404)
            content = (body or "").encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(date, usegmt=True)

        def log_message(self, *arguments: Any) -> None:
            pass

        def address_string(self) -> str:
            return "test"

    class UnixServer(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    server: socketserver.BaseServer
    if path is None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{server.server_address[1]}"
    else:
        server, url = UnixServer(str(path), Handler), f"unix://{path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def hanging_file(path: Path) -> Iterator[None]:
    """A file whose reader waits, until the end of the context."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    try:
        yield
    finally:
        os.close(os.open(path, os.O_RDWR))  # whoever waits to open it goes on


def closed_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
