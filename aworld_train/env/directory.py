"""An environment directory: a folder that holds tool servers and, in ``servers.yaml``, how to run them."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from aworld_train.env.client_servers import MANIFEST, read_client_servers
from aworld_train.errors import UsageError, suggestion
from aworld_train.serving.manifest import Manifest, ProbeCall, ServerEntry, SharedKeys


@dataclass(frozen=True)
class EnvDirectory:
    """An environment directory; ``values`` are keys of servers that a client's configuration has, and no file of it."""

    path: Path
    manifest: Manifest
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.manifest.name

    def digest(self) -> str:
        """A hash of the names and contents of its files, links and empty folders, without caches and hidden folders."""
        hashed = hashlib.sha256()
        for file in sorted(self._files()):
            name = file.relative_to(self.path)
            if file.is_symlink():
                hashed.update(f"{name}\0link\0{file.readlink()}\0".encode())
            elif file.is_file():
                hashed.update(f"{name}\0{file.stat().st_size}\0".encode())
                hashed.update(file.read_bytes())
            else:
                hashed.update(f"{name}\0folder\0".encode())
        return hashed.hexdigest()

    def _files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.path):
            if not folders and not names:
                yield Path(folder)
            yield from (Path(folder, name) for name in names)
            yield from (link for name in folders if (link := Path(folder, name)).is_symlink())
            folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]


def find_directory(name_or_path: str | Path | Mapping[str, Any]) -> EnvDirectory:
    """The environment directory of that name, else at that path; a desktop client's configuration is made into one."""
    path = Path() if isinstance(name_or_path, Mapping) else Path(name_or_path).expanduser()
    if isinstance(name_or_path, Mapping) or path.suffix == ".json" or path.is_file():
        servers = read_client_servers(name_or_path if isinstance(name_or_path, Mapping) else path)
        path = servers.cached()
        return EnvDirectory(path, _read_manifest(path / MANIFEST), servers.values, servers.remarks)
    shipped = _shipped()
    path = shipped.get(str(name_or_path)) or path
    if not path.is_dir():
        name = str(name_or_path)
        raise UsageError(
            f"Unknown tool environment {name!r}.{suggestion(name, shipped)} Known names: "
            f"{', '.join(sorted(shipped)) or 'none'}. The path of a directory that has a {MANIFEST} is taken too."
        )
    return EnvDirectory(path.resolve(), _read_manifest(path / MANIFEST))


def known_directories() -> list[EnvDirectory]:
    return [find_directory(name) for name in sorted(_shipped())]


def _shipped() -> dict[str, Path]:
    """The directories that come with aworld-train, by name: beside the package in a checkout, else inside it."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_docker", package.parent / "docker"):
        directories = {manifest.parent.name: manifest.parent for manifest in folder.glob(f"*/{MANIFEST}")}
        if directories:
            return directories
    return {}


def _read_manifest(file: Path) -> Manifest:
    import yaml
    from pydantic import TypeAdapter, ValidationError

    if not file.is_file():
        raise UsageError(f"{file.parent} is not an environment directory: it has no {MANIFEST}.")
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        return TypeAdapter(Manifest).validate_python(content)
    except ValidationError as error:
        raise UsageError(f"{file} cannot be used: {_first_mistake(error.errors())}.") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{file} cannot be used: {' '.join(str(error).split())}.") from error


def _first_mistake(mistakes: list[Any]) -> str:
    # A misspelt required key is reported as missing and as unknown; the second message helps more.
    mistake = next((one for one in mistakes if one["type"] == "unexpected_keyword_argument"), mistakes[0])
    where = ".".join(map(str, mistake["loc"]))
    if mistake["type"] != "unexpected_keyword_argument":
        return f"{where}: {mistake['msg']}" if where else str(mistake["msg"])
    section, *below = mistake["loc"]
    kind = SharedKeys if section == "shared_keys" else {0: Manifest, 2: ServerEntry, 3: ProbeCall}[len(below)]
    names = [one.name for one in fields(kind)]
    return f"unknown key {where!r}.{suggestion(str(mistake['loc'][-1]), names)}"
