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
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from aworld_train.agent.aworld_process import keep_logs_in
from aworld_train.agent.in_process import run_built
from aworld_train.agent.task import AgentTask, EpisodeContext
from aworld_train.agent.tools_config import get_agent_tool_env_and_servers
from aworld_train.errors import DependencyMissing, UsageError, nearest

Topology = Literal["workflow", "team", "handoff"]


Text = Annotated[str, Meta(min_length=1)]


class ModelEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(pattern="^https?://")]
    model: Text
    key_variable: Text


class AgentDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent, by default with the recipe's system prompt; ``temperature`` is only that of an outside model."""

    name: Text
    system_prompt: str = ""
    description: str = ""
    tools: bool | tuple[Text, ...] = True
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    max_steps: Annotated[int, Meta(ge=0)] = 20
    endpoint: ModelEndpoint | None = None


class SwarmDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Agents that work together; the first one gets the task."""

    name: Text
    agents: Annotated[tuple[AgentDescription, ...], Meta(min_length=1)]
    topology: Topology = "workflow"
    handoffs: tuple[tuple[str, str], ...] = ()


KEYS = {*AgentDescription.__struct_fields__, *SwarmDescription.__struct_fields__}


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
        from importlib.util import find_spec

        if find_spec("aworld") is None:
            raise DependencyMissing(_NO_AWORLD)
        described = self._description
        for agent in (described,) if isinstance(described, AgentDescription) else described.agents:
            if agent.endpoint is not None:
                _key(agent.name, agent.endpoint)


def read_description(path: Path) -> AgentDescription | SwarmDescription:
    import yaml

    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The agent file {path} cannot be read: {error}") from error
    if not isinstance(loaded, dict):
        raise UsageError(f"{path} describes no agent: it has to begin with `name:`.")
    try:
        if "agents" not in loaded:
            return msgspec.convert(loaded, AgentDescription)
        swarm = msgspec.convert(loaded, SwarmDescription)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_described(error)}") from error
    _check_swarm(swarm, path)
    return swarm


def _described(error: msgspec.ValidationError) -> str:
    fault, _, key = str(error).partition(" - at `$.")
    unknown = re.search(r"unknown field `(.*)`", fault)
    similar = nearest(unknown[1], {*KEYS, *ModelEndpoint.__struct_fields__}) if unknown else None
    return f"{fault}{f' at `{key}' if key else ''}.{f' Did you mean `{similar}`?' if similar else ''}"


def _check_swarm(swarm: SwarmDescription, path: Path) -> None:
    names = [agent.name for agent in swarm.agents]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two agents have the same name; there are {', '.join(names)}.")
    if (swarm.topology == "handoff") != bool(swarm.handoffs):
        raise UsageError(f"{path}: `handoffs` and the topology `handoff` go together.")
    for name in (name for pair in swarm.handoffs for name in pair):
        if name not in names:
            raise UsageError(f"{path}: `handoffs` names {name!r}; the agents are {', '.join(names)}.")


def build_described(description: AgentDescription | SwarmDescription, context: EpisodeContext) -> Any:
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
        desc=description.description or None,
        conf=conf,
        system_prompt=description.system_prompt or None,
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
