"""The manifest of an environment directory: its tool servers, as ``servers.yaml`` or, already checked, as JSON.

    name: my-tools
    description: One line for people.
    servers:
      clock:
        command: ["{python}", "{here}/clock.py"]      # speaks MCP on its standard input and output
        keys: [CLOCK_API_KEY]                          # without them it is off; no other server sees them
        test: {tool: now, arguments: {}, expect: "20"} # a harmless call, and a text its result contains
        egress: listed                                 # what it may reach in a container: these hosts alone
        egress_hosts: [api.example.org, $CLOCK_BASE_URL]
    shared_keys:
      LLM: {names: [BASE_URL, API_KEY], used_by: [CLOCK_LLM, MAP_LLM]}  # LLM_API_KEY for MAP_LLM_API_KEY too

``{python}`` is the interpreter that has the directory's requirements, ``{here}`` the directory (in an image: its
``WORKDIR``), ``{workspace}`` the session's working directory. A server that needs a service is tested with a folder of
answers in its place:

    test: {tool: find, arguments: {word: ants}, expect: insect, site: samples/site, environment: {DICT_URL: "{site}"}}
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from aworld_train.serving.egress.hosts import is_variable, parse_host

# Options for pydantic, which checks these classes; this module does not import it.
_STRICT = {"extra": "forbid", "strict": False}
_REFERENCE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class ProbeCall:
    """A harmless call of one tool, and a text that its result contains.

    In the texts of ``arguments``, placeholders are replaced as in a command, and ``{site}`` (an address, with
    ``http://``) and ``{site_host}``: there the files of the folder ``site`` are served during the test. ``environment``
    has variables of the server for the test alone, from among its keys.
    """

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    expect: str = ""
    site: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        folder = PurePosixPath(self.site)
        if folder.is_absolute() or ".." in folder.parts:
            raise ValueError(f"site is {self.site!r}; it has to be a folder of the directory")
        if not self.site and re.search(r"\{site(_host)?\}", f"{self.arguments} {self.environment}"):
            raise ValueError("{site} stands for the address of a site, and the test names none")


@dataclass(frozen=True)
class ServerEntry:
    """One tool server: an MCP server that speaks on its standard input and output.

    Instead of a command, ``function`` names one as ``module:name``; it serves in a process forked from one that has
    imported its module, and the import must start no thread. Without its ``keys`` a server is off. ``timeout`` is the
    seconds of a call. A server that ``executes_code`` of a model runs in a container, unless the user chooses the
    process backend. From there it may reach no host, the listed ``egress_hosts`` (see `egress.hosts`; ``$NAME`` is a
    variable with hosts), or every public address too. Hosts listed by name may be private; below a domain only public
    addresses may be reached.
    """

    command: tuple[str, ...] = ()
    function: str = ""
    keys: tuple[str, ...] = ()
    optional_keys: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    timeout: float = 600.0
    executes_code: bool = True
    test: ProbeCall | None = None
    egress: Literal["none", "listed", "open"] = "listed"
    egress_hosts: tuple[str, ...] = ()
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.function):
            raise ValueError("a server needs either a command or a function")
        if self.function and not re.fullmatch(r"[\w.]+:[\w.]+", self.function):
            raise ValueError(f"function is {self.function!r}; it has to be module:name")
        if self.timeout <= 0:
            raise ValueError("timeout has to be more than 0")
        if self.egress_hosts and self.egress == "none":
            raise ValueError("egress_hosts names hosts, and egress is none: it has to be listed or open")
        for host in self.egress_hosts:
            if not is_variable(host):
                parse_host(host)
        self._check_keys()

    def _check_keys(self) -> None:
        named = {
            "egress_hosts has $": [host[1:] for host in self.egress_hosts if is_variable(host)],
            "environment refers to ": [
                name for text in self.environment.values() for name in _REFERENCE.findall(text)
            ],
            "test.environment has ": self.test.environment if self.test is not None else (),
        }
        for use, names in named.items():
            for name in names:
                if name not in (*self.keys, *self.optional_keys):
                    raise ValueError(f"{use}{name}, which is not among its keys and optional_keys")

    def own_variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables that it gets: of ``variables`` its keys, and what its ``environment`` makes of them."""
        keys = {name: variables[name] for name in (*self.keys, *self.optional_keys) if name in variables}
        return keys | {
            name: _REFERENCE.sub(lambda match: keys.get(match[1], ""), text)
            for name, text in self.environment.items()
        }


@dataclass(frozen=True)
class SharedKeys:
    """Variables for several groups of keys: ``PREFIX_NAME`` of each group in ``used_by`` that has none of its own.

    The first of ``names`` is the address that the others belong to: a group with another address gets none of the
    shared values, since a key must not be sent to an address that it is not for.
    """

    names: tuple[str, ...]
    used_by: tuple[str, ...]
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not self.names or not self.used_by:
            raise ValueError("shared keys need names and the prefixes that use them (used_by)")


@dataclass(frozen=True)
class Manifest:
    """The content of ``servers.yaml``; tools are listed in the order of ``servers``.

    ``sessions_per_worker`` above 1 lets sessions share a worker, which then is not wiped between them; for servers
    without state. ``desktop``: the image has the programs for ``--vnc``. ``shared_keys`` are, by prefix, variables that
    stand in for keys of servers; the servers do not see them by that name.
    """

    name: str
    servers: dict[str, ServerEntry]
    description: str = ""
    sessions_per_worker: int = 1
    desktop: bool = False
    shared_keys: dict[str, SharedKeys] = field(default_factory=dict)
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not self.servers:
            raise ValueError("servers has to name at least one tool server")
        if self.sessions_per_worker < 1:
            raise ValueError("sessions_per_worker has to be at least 1")
        if invalid := [name for name in self.servers if not name.strip() or "," in name]:
            raise ValueError(f"{invalid[0]!r} cannot be the name of a server")
        self._check_shared_keys()

    def _check_shared_keys(self) -> None:
        keys = self.key_names()
        used: dict[str, str] = {}
        for shared, group in self.shared_keys.items():
            for prefix in group.used_by:
                if prefix in used:
                    raise ValueError(f"shared_keys: {prefix} uses both {used[prefix]} and {shared}")
                used[prefix] = shared
                for name in group.names:
                    if f"{prefix}_{name}" not in keys:
                        raise ValueError(f"shared_keys.{shared}: no server has the key {prefix}_{name}")

    def missing_keys(self, variables: Mapping[str, str]) -> dict[str, list[str]]:
        lacking = {
            name: [key for key in entry.keys if not variables.get(key)]
            for name, entry in self.servers.items()
        }
        return {name: keys for name, keys in lacking.items() if keys}

    def key_names(self) -> set[str]:
        return {key for entry in self.servers.values() for key in (*entry.keys, *entry.optional_keys)}

    def shared_key_names(self) -> set[str]:
        return {f"{shared}_{name}" for shared, group in self.shared_keys.items() for name in group.names}

    def with_shared(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The servers' variables that are set, with the shared ones in place of those that are not."""
        found = {name: variables[name] for name in self.key_names() if variables.get(name)}
        for shared, group in self.shared_keys.items():
            values = {name: variables.get(f"{shared}_{name}", "") for name in group.names}
            address = group.names[0]
            for prefix in group.used_by:
                if found.get(f"{prefix}_{address}", values[address]) == values[address]:
                    found = {f"{prefix}_{name}": value for name, value in values.items() if value} | found
        return found

    def stand_ins(self, missing: Collection[str]) -> list[str]:
        """The shared variables that would do in place of missing ones: of groups that have no address of their own."""
        return [
            f"{shared}_{name}"
            for shared, group in self.shared_keys.items()
            for name in group.names
            if any(
                {f"{prefix}_{group.names[0]}", f"{prefix}_{name}"} <= set(missing) for prefix in group.used_by
            )
        ]


def from_json(stored: Mapping[str, Any]) -> Manifest:
    """The manifest from which ``dataclasses.asdict`` and JSON made ``stored``."""
    servers = {
        name: ServerEntry(
            **{**entry, **_tuples(entry, "command", "keys", "optional_keys", "egress_hosts")}
            | {"test": ProbeCall(**entry["test"]) if entry["test"] else None}
        )
        for name, entry in stored["servers"].items()
    }
    shared_keys = {
        prefix: SharedKeys(**_tuples(group, "names", "used_by"))
        for prefix, group in stored["shared_keys"].items()
    }
    return Manifest(**{**stored, "servers": servers, "shared_keys": shared_keys})


def _tuples(stored: Mapping[str, Any], *names: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(stored[name]) for name in names}
