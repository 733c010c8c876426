"""The agent of a program: named where other processes find it, or written into a file where it is an object."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from aworld_train.agent.aworld_loop import AworldAgentLoop
from aworld_train.agent.aworld_yaml import KEYS
from aworld_train.agent.in_process import is_aworld
from aworld_train.agent.pickled_agent import pickle_agent
from aworld_train.errors import UsageError
from aworld_train.recipe.schema import AGENT_KINDS, AgentSection
from aworld_train.user_code import load_user_code

_FORMS = (
    "an AWorld Agent or Swarm, a function that builds one, a subclass of AworldAgentLoop, 'file.py:build' or "
    "'module:build', the path of an AWorld YAML or of a YAML file with an agent section, or such a section as an "
    "object or mapping"
)
_SECTION_KEYS = {field.name for field in fields(AgentSection)}


@dataclass(frozen=True)
class AgentArgument:
    """The keys of a recipe's section ``agent``, and an AWorld object that is to be written into a file first."""

    section: Mapping[str, Any]
    carried: Any = None

    def section_in(self, folder: Path, name: str) -> dict[str, Any]:
        """The whole section; an object is written into a file in ``folder`` whose name begins with ``name``.

        A section that names an agent leaves no place for the one that a configuration names.
        """
        section = dict(self.section)
        if self.carried is not None:
            section["builder"] = pickle_agent(self.carried, folder, f"{name}-agent")
        if any(section.get(kind) for kind in AGENT_KINDS):
            return {**{kind: [] if kind == "command" else None for kind in AGENT_KINDS}, **section}
        return section


def agent_argument(agent: Any) -> AgentArgument:
    if agent is None:
        return AgentArgument({})
    if is_aworld(agent):
        return AgentArgument({}, carried=agent)
    if isinstance(agent, str | Path):
        return AgentArgument(_from_text(str(agent)))
    if is_dataclass(agent) and not isinstance(agent, type):
        values = asdict(agent).items()
        return AgentArgument(
            {key: value.value if isinstance(value, Enum) else value for key, value in values}
        )
    if isinstance(agent, Mapping):
        return AgentArgument(dict(agent))
    if callable(agent):
        return AgentArgument(_named(agent, _reference(agent)))
    raise UsageError(f"An agent of the type {type(agent).__name__} cannot be trained. Give {_FORMS}.")


def _from_text(text: str) -> dict[str, Any]:
    origin, colon, _ = text.rpartition(":")
    if colon and not Path(text).exists() and not origin.endswith((".yaml", ".yml")):
        return _named(load_user_code(text, "agent"), text)
    return _from_yaml(Path(text).expanduser())


def _named(agent: Any, reference: str) -> dict[str, Any]:
    if isinstance(agent, type) and issubclass(agent, AworldAgentLoop):
        return {"loop": reference}
    return {"builder": reference}


def _reference(agent: Callable[..., Any]) -> str:
    """``module:name``, or ``file.py:name`` for what the running program defines."""
    name = getattr(agent, "__qualname__", "")
    module = sys.modules.get(getattr(agent, "__module__", ""))
    if not name.isidentifier() or module is None or getattr(module, name, None) is not agent:
        raise UsageError(
            f"The agent {name or agent!r} cannot be loaded by the processes that play episodes: a lambda, a method, "
            "or what is defined inside a function has no name there. Define it at the top level of a file."
        )
    if module.__name__ != "__main__":
        return f"{module.__name__}:{name}"
    try:
        file = inspect.getsourcefile(agent)
    except TypeError:  # a class of a program without a file
        file = None
    if file is None or not Path(file).is_file():
        raise UsageError(
            f"The agent {name} is not defined in a file; put it into one and give 'file.py:{name}'."
        )
    return f"{Path(file).resolve()}:{name}"


def _from_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The agent file {path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(
            f"The agent file {path} holds no mapping. It has an agent section, or AWorld agents."
        )
    if isinstance(content.get("agent"), dict):
        return dict(content["agent"])
    keys = set(content)
    if keys & (KEYS - _SECTION_KEYS):
        return {"aworld": str(path)}
    if keys <= KEYS:
        raise UsageError(
            f"The agent file {path} has only {', '.join(sorted(keys))}, which an AWorld agent and an agent section "
            "both have. Put them under `agent:` if it is a section; add `tools: true` if it is an AWorld agent."
        )
    return content
