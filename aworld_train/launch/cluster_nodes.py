"""Checks what the nodes of a Ray cluster have free, and whether they share the folder, before a run begins there."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_train import __version__
from aworld_train.errors import TrainingFailure, UsageError, one_line
from aworld_train.launch.record import launch_folder

_NODE_SECONDS = 120.0  # a node may have to start a Python process from a file system that many machines share
_VISIBLE_SECONDS = 15.0  # NFS shows a new file to other machines after some seconds (acregmin, acdirmin)
_CPUS_PER_PROCESS = 3
"""VeRL 0.9.1 reserves this number of processors beside each GPU (``ResourcePoolManager.max_colocate_count``)."""
CPUS_BESIDE = 3
"""Its queue takes two processors, and an actor needs a free one to be placed."""


@dataclass(frozen=True)
class Demand:
    """What a run takes of a cluster; GPUs are logical ones if it trains without."""

    nodes: int
    gpus_per_node: int

    @property
    def cpus_per_node(self) -> int:
        return _CPUS_PER_PROCESS * self.gpus_per_node


def check_nodes(run_dir: Path, nonce: str, demand: Demand) -> str:
    """Check that the cluster has free what the run takes, and that every node reads and writes the run folder.

    Returns the IP address of this node on the cluster's network; ``nonce`` differs for each launch.
    """
    import ray

    try:
        ray.init(address="auto", log_to_driver=False, logging_level="error", configure_logging=False)
    except (ConnectionError, RuntimeError) as error:
        raise TrainingFailure(
            f"The job cannot join the Ray cluster of its node: {one_line(error).rstrip('.')}. See with `ray status` "
            "there that the cluster's head runs, and start again."
        ) from error
    try:
        # VeRL itself counts with these figures.
        free = ray._private.state.available_resources_per_node()
        check_free(free, demand)
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        _check_folder(ray, run_dir, nonce, names)
        return str(ray.util.get_node_ip_address())
    finally:
        ray.shutdown()


def check_free(free: dict[str, dict[str, float]], demand: Demand) -> None:
    fitting = [
        node
        for node in free.values()
        if node.get("GPU", 0) >= demand.gpus_per_node and node.get("CPU", 0) >= demand.cpus_per_node
    ]
    cpus = sum(node.get("CPU", 0) for node in free.values())
    all_cpus = demand.nodes * demand.cpus_per_node + CPUS_BESIDE
    if len(fitting) >= demand.nodes and cpus >= all_cpus:
        return
    listed = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in free.values())
    raise UsageError(
        f"The run takes {demand.nodes} node(s) with {demand.gpus_per_node} GPU and {demand.cpus_per_node} CPU each "
        f"(cluster.nodes, cluster.gpus_per_node), and {all_cpus} CPU in all. Free by node: "
        f"{listed}. Wait for other jobs, take fewer nodes, or start nodes that declare more to Ray; a recipe that "
        f"trains without GPUs needs logical ones: ray start --num-gpus={demand.gpus_per_node} "
        f"--num-cpus={all_cpus} ..."
    )


def _check_folder(ray: Any, run_dir: Path, nonce: str, names: dict[str, str]) -> None:
    """Let every node read a file of this process and write one of its own, and look for these files."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    folder, question = launch_folder(run_dir), f"reach-{nonce}"
    # A function of a function, so that Ray sends its code: a node may lack the package, and has to say so.
    check = ray.remote(num_cpus=0, max_retries=0)(_node_check(str(folder), question, nonce))
    try:
        (folder / question).write_text(nonce)
        tasks = {
            check.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                node
            ): node
            for node in names
        }
        ready, silent = ray.wait(list(tasks), num_returns=len(tasks), timeout=_NODE_SECONDS)
        answers = {tasks[task]: _answer(ray, task) for task in ready}
        for node, problem in answers.items():
            if problem:
                raise UsageError(_not_usable(names[node], run_dir, problem))
        if silent:
            names_of_silent = ", ".join(names[tasks[task]] for task in silent)
            raise TrainingFailure(
                f"{names_of_silent}: no answer within {_NODE_SECONDS:.0f} s to a task that reads the run folder. See "
                "that the node can start workers; its file system may hang."
            )
        files = {node: folder / f"{question}-{node}" for node in names}
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while missing := [node for node, file in files.items() if not file.exists()]:
            if time.monotonic() > deadline:
                reason = "the head does not see the file that it has written there"
                raise UsageError(_not_usable(names[missing[0]], run_dir, reason))
            time.sleep(0.2)
    finally:
        for file in folder.glob(f"{question}*"):
            file.unlink(missing_ok=True)


def _answer(ray: Any, task: Any) -> str:
    try:
        return str(ray.get(task))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"


def _not_usable(node: str, run_dir: Path, problem: str) -> str:
    return (
        f"The node {node} cannot take part in the run: {problem}. Every node has to see the run folder {run_dir} under "
        "the same path, with locks, and have the same aworld-train; name a folder on a shared file system with --runs."
    )


def _node_check(folder: str, question: str, nonce: str) -> Any:
    # Ray copies the values of local variables with the function, and of the module's only the names.
    version, visible_seconds = __version__, _VISIBLE_SECONDS

    def check(node: str) -> str:
        import fcntl
        import sys
        import time
        from importlib import util
        from pathlib import Path

        deadline = time.monotonic() + visible_seconds
        while not Path(folder, question).exists():
            if time.monotonic() > deadline:
                return f"it does not see the file {question} there, which the head has written"
            time.sleep(0.2)
        try:
            with Path(folder, f"{question}-{node}").open("w") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(nonce)
        except OSError as error:
            return f"it cannot write and lock a file in {folder} ({error})"
        if util.find_spec("aworld_train") is None:
            return f"its Python ({sys.executable}) has no package aworld-train {version}"
        import aworld_train

        if aworld_train.__version__ != version:
            return f"it has aworld-train {aworld_train.__version__}, and the head has {version}"
        return ""

    return check
