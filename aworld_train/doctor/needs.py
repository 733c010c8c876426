"""What training needs of a machine: little in general, and what its recipe says where one is given."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aworld_train.doctor.machine import Machine
from aworld_train.env.directory import EnvDirectory, find_directory
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import EnvBackend, Recipe
from aworld_train.serving.manifest import ServerEntry

_ENVIRONMENT = "MCP_SERVER_URL"


@dataclass(frozen=True)
class Needs:
    """What a machine is looked at for; servers outside private networks may be asked where it is ``online``."""

    recipe: Recipe | None = None
    runs: Path = Path("runs")
    online: bool = False

    @property
    def trains(self) -> bool:
        return self.recipe is not None

    @property
    def gpus(self) -> int:
        if self.recipe is None or on_cpu(self.recipe):
            return 0
        return self.recipe.gpus_of_machine

    @property
    def launcher(self) -> str:
        return self.recipe.cluster.launcher.value if self.recipe is not None else "local"

    @cached_property
    def directory(self) -> EnvDirectory | None:
        if self.recipe is None or self.recipe.env.started_from is None:
            return None
        return find_directory(self.recipe.env.started_from)

    @cached_property
    def servers(self) -> dict[str, ServerEntry]:
        if self.recipe is None or self.directory is None:
            return {}
        chosen = self.recipe.env.servers
        entries = self.directory.manifest.servers
        return {name: entry for name, entry in entries.items() if not chosen or name in chosen}

    @property
    def docker(self) -> bool:
        """Whether the run cannot start its tools without a Docker engine."""
        if self.recipe is None or self.directory is None:
            return False
        backend = self.recipe.env.backend
        return backend is EnvBackend.docker or (backend is EnvBackend.auto and not self.may_be_processes)

    @property
    def processes(self) -> bool:
        """Whether the run starts its tools as plain processes, whatever else there is."""
        return self.recipe is not None and self.recipe.env.backend is EnvBackend.process

    @property
    def may_be_processes(self) -> bool:
        """Whether the run starts its tools as plain processes where no Docker engine answers."""
        if self.recipe is None or self.directory is None or self.recipe.env.backend is not EnvBackend.auto:
            return False
        return not any(entry.executes_code for entry in self.servers.values())

    def environment_url(self, machine: Machine) -> str:
        """The address of the tool environment that the run is pointed at; empty if it starts its own, or has none."""
        section = self.recipe.env if self.recipe is not None else None
        if section is not None and (section.started_from is not None or section.backend is EnvBackend.none):
            return ""
        if self.recipe is not None and self.recipe.env.url is not None:
            return self.recipe.env.url
        from dotenv import dotenv_values

        in_file = dotenv_values(machine.folder / ".env").get(_ENVIRONMENT)
        return machine.variable(_ENVIRONMENT) or in_file or ""

    def run_folder(self, machine: Machine) -> Path:
        return machine.folder / self.runs / (self.recipe.name if self.recipe is not None else "")


def existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
