"""AWorld agents that a program has made, pickled for the processes that play its episodes.

Every episode loads an agent of its own, since AWorld's agents have a state. What cannot be pickled is replaced by what
makes it anew. The file is in the run's folder and must hold no secret: a key from an environment variable is written as
a reference to it, and any other key is refused.
"""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train.agent.in_process import is_aworld
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers
from aworld_train.atomic import write_bytes
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.masking import MIN_LENGTH
from aworld_train.recipe.secret_keys import looks_secret

SUFFIX = ".pickle:agent"

# Header names of credentials that `looks_secret` does not know, because no recipe has them.
_SECRET_HEADERS = {"authorization", "proxy-authorization", "cookie"}
# Texts that stand for a key where an endpoint needs none.
_NO_KEY = {"dummy", "empty", "not-needed", "unused"}
_SANDBOX_ARGUMENTS = ("mcp_servers", "mcp_config", "black_tool_actions", "skill_configs")
_BUILDER = (
    "Write a function that builds the agent, reads the key with os.environ[...], and give that function instead "
    "(AgentTrainer(agent=build))."
)


def pickle_agent(agent: Any, folder: Path, name: str) -> str:
    """Write an AWorld ``Agent`` or ``Swarm`` into a file that only this user can read; returns its reference."""
    import cloudpickle  # type: ignore[import-untyped]

    buffer = io.BytesIO()
    pickler = type("AgentPickler", (cloudpickle.CloudPickler,), {"reducer_override": _reducer(cloudpickle)})
    try:
        pickler(buffer).dump(agent)
    except AworldTrainError:
        raise
    # Anything may be an attribute of an agent, and raise anything when it is written.
    except Exception as error:
        raise UsageError(
            f"The agent {_name(agent)} cannot be carried to the processes that play episodes: "
            f"{type(error).__name__}: {error}. {_BUILDER}"
        ) from error
    content = buffer.getvalue()
    for variable, value in _secrets().items():
        if value.encode() in content:
            raise UsageError(
                f"The agent {_name(agent)} holds the value of the environment variable {variable} where it would "
                f"be written into the run's folder. {_BUILDER}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / f"{name}.pickle"
    write_bytes(path, content, mode=0o600)
    return f"{path}:agent"


def load_pickled(reference: str) -> Callable[[], Any]:
    path = Path(reference.rpartition(":")[0])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The agent {path} cannot be read: {error.strerror}.") from error

    def build() -> Any:
        import cloudpickle

        return cloudpickle.loads(content)

    return build


def _reducer(cloudpickle: Any) -> Callable[[Any, Any], Any]:
    from aworld.core.agent.base import BaseAgent
    from aworld.sandbox import Sandbox

    def reducer_override(self: Any, value: Any) -> Any:
        if isinstance(value, BaseAgent):
            # The state comes after the object, because it holds methods of the object.
            return _empty_agent, (type(value),), _state(value), None, None, _set_state
        if isinstance(value, Sandbox):
            arguments = {name: getattr(value, name) for name in _SANDBOX_ARGUMENTS}
            return _made_sandbox, (_without_secrets(arguments, value),)
        return cloudpickle.CloudPickler.reducer_override(self, value)

    return reducer_override


def _state(agent: Any) -> dict[str, Any]:
    state = {name: value for name, value in vars(agent).items() if name != "_llm"}
    return {name: _without_secrets(value, agent) for name, value in state.items()}


def _empty_agent(agent_class: type) -> Any:
    return object.__new__(agent_class)


def _set_state(agent: Any, state: Mapping[str, Any]) -> None:
    agent.__dict__.update({name: _resolved(value) for name, value in state.items()}, _llm=None)


def _made_sandbox(arguments: Mapping[str, Any]) -> Any:
    from aworld.sandbox import Sandbox

    return Sandbox(**{name: _resolved(value) for name, value in arguments.items()})


@dataclass(frozen=True)
class _Reference:
    """A text that holds the value of an environment variable."""

    before: str
    variable: str
    after: str

    def value(self) -> str:
        if self.variable not in os.environ:
            raise UsageError(f"The agent needs the environment variable {self.variable}, which is not set.")
        return self.before + os.environ[self.variable] + self.after


@dataclass(frozen=True)
class _EpisodeTools:
    servers: tuple[str, ...]

    def value(self) -> dict[str, Any]:
        config, _ = get_agent_tool_env_and_servers(self.servers or None)
        return next(iter(config["mcpServers"].values()))


def _without_secrets(value: Any, owner: Any, key: str = "") -> Any:
    """A copy of plain data with references in place of secrets; other values as they are."""
    if isinstance(value, dict):
        if (tools := _episode_tools(value)) is not None:
            return tools
        copied = {name: _without_secrets(item, owner, str(name)) for name, item in value.items()}
        return copied if type(value) is dict else _Mapping(type(value), copied)
    if type(value) in (list, tuple):
        return type(value)(_without_secrets(item, owner, key) for item in value)
    is_secret = looks_secret((key.replace("-", "_"),)) or key.lower() in _SECRET_HEADERS
    return _reference(value, owner, key) if is_secret and isinstance(value, str) else value


@dataclass(frozen=True)
class _Mapping:
    mapping_class: type
    items: Mapping[str, Any]


def _resolved(value: Any) -> Any:
    if isinstance(value, _Reference | _EpisodeTools):
        return value.value()
    if isinstance(value, _Mapping):
        return value.mapping_class(_resolved(value.items))
    if type(value) is dict:
        return {name: _resolved(item) for name, item in value.items()}
    return type(value)(map(_resolved, value)) if type(value) in (list, tuple) else value


def _reference(text: str, owner: Any, key: str) -> Any:
    secret = text.removeprefix("Bearer ").strip()
    if len(secret) < MIN_LENGTH or secret.lower() in _NO_KEY:
        return text
    for variable, value in sorted(os.environ.items(), key=lambda item: -len(item[1])):
        if len(value) >= MIN_LENGTH and value in text:
            before, _, after = text.partition(value)
            return _Reference(before, variable, after)
    raise UsageError(
        f"The agent {_name(owner)} has a `{key}` that is written out in the program. A run's folder must hold no "
        f"secret: put it into an environment variable and write os.environ[...] in its place."
    )


def _episode_tools(server: Mapping[str, Any]) -> _EpisodeTools | None:
    try:
        config, _ = get_agent_tool_env_and_servers()
    except AworldTrainError:
        return None
    known = next(iter(config["mcpServers"].values()))
    if not server.get("url") or server.get("url") != known["url"]:
        return None
    names = (server.get("headers") or {}).get("MCP_SERVERS", "")
    return _EpisodeTools(tuple(name for name in names.split(",") if name))


def _secrets() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if looks_secret((name,)) and len(value) >= MIN_LENGTH
    }


def _name(agent: Any) -> str:
    name = getattr(agent, "name", None)
    name = name() if callable(name) else name
    return str(name) if is_aworld(agent) and name else type(agent).__name__
