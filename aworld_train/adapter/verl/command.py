"""How VeRL is started: the exact command, and the environment variables that it reads."""

import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from aworld_train.adapter.base import Nodes
from aworld_train.adapter.verl.compose import forks
from aworld_train.adapter.verl.cpu import PLATFORM_MODULE
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE
from aworld_train.adapter.verl.forwarding import FORWARDED_VARIABLE, forwarded_names
from aworld_train.adapter.verl.private_folder import SECRET_BYTES, PrivateFolder
from aworld_train.adapter.verl.ray_nodes import network_variables, nodes_environment
from aworld_train.adapter.verl.transfer_queue import QUEUE_KEY_VARIABLE, QUEUE_SECRET_VARIABLE
from aworld_train.adapter.verl.worker_setup import RENDEZVOUS_VARIABLE
from aworld_train.atomic import check_writable
from aworld_train.errors import UsageError
from aworld_train.recipe.device import on_cpu
from aworld_train.recipe.schema import Recipe
from aworld_train.user_code import user_variables

_NO_PORT = "-1"
WITHOUT_FIRST_VALIDATION = ("trainer.val_before_train=False",)
"""Arguments for the command of a run that resumes from a step that has been validated."""


def verl_command(run_dir: Path) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "aworld_train.adapter.verl.main"),
        *("--config-path", str(run_dir.resolve()), "--config-name", "verl"),
        *(
            "hydra.run.dir=.",
            "hydra.output_subdir=null",
            "hydra/job_logging=none",
            "hydra/hydra_logging=none",
        ),
    ]


def verl_environment(
    recipe: Recipe,
    logger_file: Path,
    private: PrivateFolder,
    nodes: Nodes | None = None,
    *,
    trackers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    return {
        # VeRL leaves lock files in the directory for temporary files; this directory is removed with the run.
        "TMPDIR": str(private.scratch),
        # Ray starts its workers with the `python` of the PATH.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        # Ray makes its folder `ray` in this directory.
        "RAY_TMPDIR": str(private.path),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Without these Ray would write a token of its own into the home directory.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(private.token),
        QUEUE_KEY_VARIABLE: str(private.queue_key),
        RENDEZVOUS_VARIABLE: str(private.rendezvous),
        # Ray serves its metrics to anybody who can reach the ports, and the package does not use them: with port -1
        # no port is opened.
        "RAY_enable_metrics_collection": "false",
        # A run's processes have variables of their own, so those that wait for any run are never used.
        "RAY_prestart_worker_first_driver": "false",
        "AUTOSCALER_METRIC_PORT": _NO_PORT,
        "DASHBOARD_METRIC_PORT": _NO_PORT,
        **(_loopback() if nodes is None else nodes_environment(recipe, private, nodes)),
        # In forks the recipe's own would come after libraries have read them.
        **(
            {**recipe.cluster.environment, ADDRESS_VARIABLE: str(private.fork_server)}
            if forks(recipe)
            else {}
        ),
        **_of_every_process(recipe, logger_file),
        **_datasets_cache(private),
        **trackers,
    }


def _datasets_cache(private: PrivateFolder) -> dict[str, str]:
    """The folder in which ``datasets`` keeps what it reads, where this user has no home that can be written."""
    try:
        check_writable(Path.home(), "caches")
    except (UsageError, RuntimeError):
        return {"HF_DATASETS_CACHE": os.environ.get("HF_DATASETS_CACHE") or str(private.scratch)}
    return {}


def cluster_environment(
    recipe: Recipe, logger_file: Path, rendezvous: Path, *, trackers: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Variables for VeRL on a Ray cluster that is there already; they reach its workers by ``forwarding``."""
    shutil.rmtree(rendezvous, ignore_errors=True)
    rendezvous.mkdir(mode=0o700)
    variables = {
        # A key, not the path of a file: workers run on other machines too.
        QUEUE_SECRET_VARIABLE: secrets.token_hex(SECRET_BYTES),
        RENDEZVOUS_VARIABLE: str(rendezvous),
        **_of_every_process(recipe, logger_file),
        **trackers,
    }
    return {**variables, FORWARDED_VARIABLE: forwarded_names(variables)}


def _of_every_process(recipe: Recipe, logger_file: Path) -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    variables = {
        # An empty entry, which means the working directory, is left out.
        "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in inherited if entry),
        # Modules in the user's directory, such as a reward function's, are found after installed ones.
        **user_variables(),
        "PYTHONUNBUFFERED": "1",
        "VERL_FILE_LOGGER_PATH": str(logger_file),
        "TOKENIZERS_PARALLELISM": "false",
    }
    if on_cpu(recipe):
        variables |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": PLATFORM_MODULE}
        # Threads that have nothing to compute sleep instead of spinning, which takes processors from other processes:
        # measured 102 s of processor time instead of 121 for two steps of the quickstart.
        variables |= {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    if recipe.model.location and Path(recipe.model.location).is_dir():
        variables |= {"HF_HUB_OFFLINE": "1"}
    return variables


def _loopback() -> dict[str, str]:
    """Variables that make every port listen on the loopback address only, or not be opened."""
    return {
        # With this variable Ray uses 127.0.0.1 as the machine's address, as on macOS, where it makes no clusters of
        # several machines. Its argument _node_ip_address does not help: Ray replaces 127.0.0.1 by an outside address.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        **network_variables("127.0.0.1"),
    }
