"""Joins the machine on which it runs to the Ray of a run; see ``ray_nodes``, which starts it.

    python -P -m aworld_train.adapter.verl.ray_node < MESSAGE

It becomes the process supervisor of Ray's processes on this machine, which end with it. Without GPUs these are forks,
and this module, with the arguments of Ray's command line, is what the supervisor starts.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from aworld_train import process_supervisor, temporary
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE
from aworld_train.adapter.verl import fork_server
from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
from aworld_train.adapter.verl.fork_client import ADDRESS_VARIABLE
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.ray_nodes import (
    JOB_ON_NODES,
    NODE_MODULE,
    RAY_MODULE,
    ClusterError,
    drop_second_gpu_list,
    network_variables,
    ray_start,
)
from aworld_train.adapter.verl.worker_setup import import_faster


def main() -> None:
    message = json.load(sys.stdin)
    name = os.environ.get(message["name_variable"], "")
    address = message["addresses"].get(name)
    if address is None:
        raise ClusterError(
            f"The node {name!r} is none of those of the run: {', '.join(message['addresses'])}."
        )
    run_dir = Path(os.environ[RUN_DIR_VARIABLE])
    if not run_dir.is_dir():
        raise ClusterError(
            f"The node {name} does not see the run folder {run_dir}. Put it on a file system that all nodes share "
            "(--runs)."
        )
    private = Path(message["private"])
    made = _make_private(private, message["secrets"])
    os.environ |= network_variables(address) | message["variables"]
    drop_second_gpu_list()
    module = RAY_MODULE
    if ADDRESS_VARIABLE in os.environ:
        # Several nodes of a run may be on one machine.
        os.environ[ADDRESS_VARIABLE] = str(PrivateFolder(private).fork_server) + f"-{name}"
        module = NODE_MODULE
    owner = process_supervisor.ProcessIdentity.of(os.getppid())
    os.execv(
        sys.executable,
        [
            *(sys.executable, "-P", process_supervisor.__file__, f"--owner={owner}"),
            *((f"--remove={private}",) if made else ()),
            "--",
            *ray_start(message["options"], address, "--address", message["head"], module=module),
        ],
    )


def _make_private(folder: Path, secrets: dict[str, str]) -> bool:
    """Make the private folder, unless another node on this machine has; returns whether this call did."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not temporary.is_private(folder):
            raise ClusterError(
                f"{folder} exists on this node and is not this user's private folder."
            ) from None
        return False
    PrivateFolder(folder).receive(secrets)
    return True


def without_ray_client(settings: Any, head: bool) -> None:
    """Open no port for Ray's client, which the package does not use and ``ray start`` has no option against."""
    settings.ray_client_server_port = None


def run_ray() -> None:
    """As Ray's command line, in a fork; without GPUs what Ray starts are forks too (see ``fork_server``)."""
    name_vllm_cpu()
    import_faster()
    fork_server.run(_ray, JOB_ON_NODES)


def _ray() -> None:
    runpy.run_module(RAY_MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_ray() if sys.argv[1:] else main()
