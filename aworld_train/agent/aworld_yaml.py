"""An AWorld agent or swarm described by a file, ``agent.yaml``.

One agent:

    name: calculator
    system_prompt: Answer with the calculator.

Or several, and how they work together:

    name: team
    topology: workflow            # workflow: one after the other; team: the first leads; handoff: see `handoffs`
    agents:
      - name: solver
        tools: [calculator]       # tool servers; true (the default): all of the recipe; false: none
      - name: critic
        system_prompt: Check the answer.
        tools: false
        endpoint: {url: "https://llm.example/v1", model: some-model, key_variable: CRITIC_KEY}

An agent with an ``endpoint`` uses another model and is not trained; all others use the one in training. Keys stay in
environment variables.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from aworld_train.agent.in_process import run_built
from aworld_train.agent.logs import keep_logs_in
from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers
from aworld_train.errors import DependencyMissing, UsageError, nearest

Topology = Literal["workflow", "team", "handoff"]


@dataclass(frozen=True)
class ModelEndpoint:
    """A language model that is not the one in training."""

    url: str
    model: str
    key_variable: str


@dataclass(frozen=True)
class AgentDescription:
    """One agent, by default with the recipe's system prompt; ``temperature`` is only that of an outside model."""

    name: str
    system_prompt: str | None = None
    description: str | None = None
    tools: bool | tuple[str, ...] = True
    temperature: float = 1.0
    max_steps: int = 20
    endpoint: ModelEndpoint | None = None


@dataclass(frozen=True)
class SwarmDescription:
    """Agents that work together; the first one gets the task."""

    name: str
    agents: tuple[AgentDescription, ...]
    topology: Topology = "workflow"
    handoffs: tuple[tuple[str, str], ...] = ()


class YamlAgent:
    """The agent or swarm that the file at ``path`` describes; the constructor reads the file."""

    def __init__(self, path: str | Path):
        self._path = Path(path).expanduser()
        self._description = read_description(self._path)

    async def run(self, task: AgentTask, context: EpisodeContext) -> str:

        async def build() -> Any:
            keep_logs_in(context.folder)
            await asyncio.to_thread(_import_aworld)
            return build_described(self._description, context)

        return await run_built(build, task, context, name=str(self._path))

    def check(self) -> None:
        """Check that AWorld is installed and that the keys of outside endpoints are set."""
        from importlib.util import find_spec

        if find_spec("aworld") is None:
            raise DependencyMissing(_NO_AWORLD)
        for agent in _agents(self._description):
            if agent.endpoint is not None:
                _key(agent.name, agent.endpoint)


def read_description(path: Path) -> AgentDescription | SwarmDescription:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The agent file {path} cannot be read: {error}") from error
    location = str(path)
    if not isinstance(loaded, dict):
        raise UsageError(f"{location} describes no agent: it has to begin with `name:`.")
    if "agents" not in loaded:
        return _agent(loaded, location)
    return _swarm(loaded, location)


def build_described(description: AgentDescription | SwarmDescription, context: EpisodeContext) -> Any:
    """The AWorld ``Agent`` or ``Swarm``, for one episode."""
    if isinstance(description, AgentDescription):
        return _build_agent(description, context)
    from aworld.core.agent.swarm import HandoffSwarm, TeamSwarm, WorkflowSwarm

    built = {agent.name: _build_agent(agent, context) for agent in description.agents}
    first = built[description.agents[0].name]
    if description.topology == "handoff":
        pairs = [(built[caller], built[callee]) for caller, callee in description.handoffs]
        return HandoffSwarm(*pairs, root_agent=first, name=description.name)
    if description.topology == "team":
        return TeamSwarm(*built.values(), root_agent=first, name=description.name)
    return WorkflowSwarm(*built.values(), name=description.name)


def _build_agent(description: AgentDescription, context: EpisodeContext) -> Any:
    from aworld.agents.llm_agent import Agent
    from aworld.config.conf import AgentConfig

    endpoint = description.endpoint
    conf = AgentConfig(
        llm_provider="openai",
        llm_base_url=endpoint.url if endpoint else context.llm_url(None),
        llm_model_name=endpoint.model if endpoint else context.model,
        llm_api_key=_key(description.name, endpoint) if endpoint else context.llm_key(None),
        llm_temperature=description.temperature,
    )
    tools: dict[str, Any] = {}
    if description.tools:
        chosen = description.tools if isinstance(description.tools, tuple) else None
        config, servers = get_agent_tool_env_and_servers(chosen)
        tools = {"mcp_config": config, "mcp_servers": servers}
    return Agent(
        name=description.name,
        desc=description.description,
        conf=conf,
        system_prompt=description.system_prompt,
        max_loop_steps=description.max_steps,
        **tools,
    )


def _key(agent: str, endpoint: ModelEndpoint) -> str:
    key = os.environ.get(endpoint.key_variable)
    if not key:
        raise UsageError(
            f"The agent {agent} asks {endpoint.url} with the key in {endpoint.key_variable}, which is not set."
        )
    return key


def _agents(description: AgentDescription | SwarmDescription) -> tuple[AgentDescription, ...]:
    return (description,) if isinstance(description, AgentDescription) else description.agents


def _swarm(section: Mapping[str, Any], location: str) -> SwarmDescription:
    _check_keys(section, SwarmDescription, location)
    entries = section["agents"]
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{location}: `agents` has to be a list of at least one agent.")
    agents = []
    for index, entry in enumerate(entries):
        entry_location = f"{location}, agents[{index}]"
        if not isinstance(entry, dict):
            raise UsageError(f"{entry_location} is not an agent but {entry!r}; write `name: ...` and so on.")
        agents.append(_agent(entry, entry_location))
    names = [agent.name for agent in agents]
    if len(set(names)) < len(names):
        raise UsageError(f"{location}: two agents have the same name; there are {', '.join(names)}.")
    topology = section.get("topology", "workflow")
    if topology not in get_args(Topology):
        raise UsageError(
            f"{location}: `topology` is {topology!r}; it is one of {', '.join(get_args(Topology))}."
        )
    handoffs = _handoffs(section.get("handoffs", []), names, location)
    if (topology == "handoff") != bool(handoffs):
        raise UsageError(f"{location}: `handoffs` and the topology `handoff` go together.")
    return SwarmDescription(_text(section, "name", location), tuple(agents), topology, handoffs)


def _handoffs(value: Any, names: list[str], location: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for pair in value if isinstance(value, list) else [value]:
        if not (isinstance(pair, list) and len(pair) == 2):
            raise UsageError(
                f"{location}: `handoffs` is a list of pairs such as [{names[0]}, {names[-1]}], not {pair!r}."
            )
        for name in pair:
            if name not in names:
                raise UsageError(f"{location}: `handoffs` names {name!r}; the agents are {', '.join(names)}.")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _agent(section: Mapping[str, Any], location: str) -> AgentDescription:
    _check_keys(section, AgentDescription, location)
    endpoint = section.get("endpoint")
    if endpoint is not None:
        endpoint_location = f"{location}, endpoint"
        if not isinstance(endpoint, dict):
            raise UsageError(f"{endpoint_location} takes url, model and key_variable, not {endpoint!r}.")
        _check_keys(endpoint, ModelEndpoint, endpoint_location)
        endpoint = ModelEndpoint(
            *(_text(endpoint, key, endpoint_location) for key in ("url", "model", "key_variable"))
        )
        if not endpoint.url.startswith(("http://", "https://")):
            raise UsageError(f"{endpoint_location}: `url` is {endpoint.url!r}, which is not an http URL.")
    return AgentDescription(
        name=_text(section, "name", location),
        system_prompt=_optional_text(section, "system_prompt", location),
        description=_optional_text(section, "description", location),
        tools=_tools(section.get("tools", True), location),
        temperature=_number(section, "temperature", 1.0, location),
        max_steps=int(_number(section, "max_steps", 20, location)),
        endpoint=endpoint,
    )


def _tools(value: Any, location: str) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value) or False
    raise UsageError(
        f"{location}: `tools` is {value!r}; it is a list of tool servers, true (all) or false (none)."
    )


def _text(section: Mapping[str, Any], key: str, location: str) -> str:
    value = section.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{location}: `{key}` has to be a text, and is {value!r}.")
    return value


def _optional_text(section: Mapping[str, Any], key: str, location: str) -> str | None:
    """An empty text is none, as for AWorld."""
    return _text(section, key, location) if section.get(key, "") != "" else None


def _number(section: Mapping[str, Any], key: str, default: float, location: str) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise UsageError(f"{location}: `{key}` has to be a number of at least 0, and is {value!r}.")
    return value


def _check_keys(section: Mapping[str, Any], kind: Any, location: str) -> None:
    known = [field.name for field in fields(kind)]
    for key in section:
        if key not in known:
            similar = nearest(str(key), known)
            suggestion = f" Did you mean `{similar}`?" if similar else ""
            raise UsageError(
                f"{location}: there is no key `{key}`.{suggestion} There are {', '.join(known)}."
            )
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in section]
    if missing:
        raise UsageError(f"{location}: `{missing[0]}` is missing.")


_NO_AWORLD = (
    "AWorld is not installed. Install it: pip install -c requirements/aworld.txt 'aworld-train[cpu,aworld]'"
)


def _import_aworld() -> None:
    """Import the parts of AWorld that are used; this takes seconds the first time."""
    try:
        import aworld.agents.llm_agent
        import aworld.runner  # noqa: F401
    except ModuleNotFoundError as error:
        raise DependencyMissing(f"{_NO_AWORLD} ({error})") from error
