"""What a job on a Ray cluster runs first: it opens its variables, checks the nodes, and becomes the command ``train``.

    python -P -m aworld_train.launch.cluster_job FILE NONCE

The launcher has written the file, with the nonce. A head that does not find it has another file system than the machine
that submitted the job.
"""

import json
import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

from aworld_train import __version__
from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE, ray_token, unseal
from aworld_train.errors import AworldTrainError, UsageError
from aworld_train.launch.cluster_nodes import Demand, check_nodes
from aworld_train.recipe.schema import Recipe

INSIDE_VARIABLE = "AWORLD_TRAIN_CLUSTER_JOB"
"""Holds the IP address of this node, in the process that trains; there the launcher runs the recipe itself."""
SEALED_VARIABLE = "AWORLD_TRAIN_JOB_SEALED"
"""Holds the variables that come with the job, sealed; see ``aworld_train.encrypted_env``."""
_MODULE = "aworld_train.launch.cluster_job"
FILE = "job.json"


@dataclass(frozen=True)
class ClusterJob:
    """What a job does. The file holds no secret.

    ``nonce`` differs for each launch, every node reaches ``run_dir`` under this path, and relative paths of the recipe
    start from ``directory``.
    """

    nonce: str
    run_dir: str
    version: str
    directory: str
    arguments: Sequence[str]
    nodes: int
    gpus_per_node: int

    @classmethod
    def of(cls, recipe: Recipe, run_dir: PurePath, directory: str, command: Sequence[str]) -> "ClusterJob":
        """The job of a new launch; its ``command`` is that of ``job_command``."""
        return cls(
            secrets.token_hex(8),
            str(run_dir),
            __version__,
            directory,
            command[command.index("aworld_train") + 1 :],
            recipe.cluster.nodes,
            recipe.cluster.gpus_per_node,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    def command(self, file: Path) -> list[str]:
        """``python`` is that of the node's Ray."""
        return ["python", "-P", "-m", _MODULE, str(file), self.nonce]


def read_job(file: Path, nonce: str) -> ClusterJob:
    try:
        job = ClusterJob(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"The head of the cluster cannot read {file} ({error}). The run folder has to be on a file system that the "
            "submitting machine and every node share, under the same path; name one with --runs."
        ) from error
    if job.nonce != nonce:
        raise UsageError(
            f"{file} belongs to another launch than this job. Either the run was started again, or the run folder is "
            "not on a file system that the submitting machine and the cluster share; name one with --runs."
        )
    return job


def start(file: Path, nonce: str) -> None:
    """Check the job and the cluster, then replace this process by the command ``train``."""
    job = read_job(file, nonce)
    if job.version != __version__:
        raise UsageError(
            f"The job was submitted by aworld-train {job.version}, and the cluster has {__version__}. Install the same "
            "version on both."
        )
    _set_variables()
    try:
        os.chdir(job.directory)
    except OSError as error:
        raise UsageError(
            f"The head of the cluster cannot enter {job.directory}, where the job was submitted ({error.strerror}). "
            "Paths of a recipe count from there, so submit from a directory that the cluster shares."
        ) from error
    os.environ[INSIDE_VARIABLE] = check_nodes(Path(job.run_dir), nonce, Demand(job.nodes, job.gpus_per_node))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "aworld_train", *job.arguments])


def _set_variables() -> None:
    sealed = os.environ.pop(SEALED_VARIABLE, None)
    if sealed is None:  # they come from the cluster's own means, such as a Secret of Kubernetes
        return
    token = ray_token()
    if token is None:
        raise UsageError(
            "The cluster's processes have no token, so they cannot read the variables of this job."
        )
    variables = unseal(sealed, token)
    os.environ |= variables
    os.environ[JOB_VARIABLES_VARIABLE] = ",".join(sorted(variables))


def main() -> int:
    try:
        start(Path(sys.argv[1]), sys.argv[2])
    except AworldTrainError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
