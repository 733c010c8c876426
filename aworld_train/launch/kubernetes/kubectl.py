"""Calls ``kubectl``, which knows the cluster, the user and the namespace as the user's other commands do."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from aworld_train.errors import DependencyMissing, TrainingFailure
from aworld_train.launch.log_tail import ClusterSilent

_SECONDS = 120.0
_REQUEST = "--request-timeout=30s"
_NO_CLUSTER = ("Unable to connect", "was refused", "no such host", "no configuration has been provided")


def kubectl(*arguments: str, namespace: str, content: str | None = None) -> str:
    """Run one command to its end; returns what it printed. ClusterSilent if no cluster answers."""
    program = shutil.which("kubectl")
    if program is None:
        raise DependencyMissing(
            "kubectl is not on the PATH, so nothing can be submitted. Install it, or copy the rendered file to a "
            "machine that has it."
        )
    command = [program, "--namespace", namespace, _REQUEST, *arguments]
    try:
        done = subprocess.run(command, input=content or "", capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ClusterSilent(f"kubectl {arguments[0]} has not ended within {_SECONDS:.0f} s.") from error
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or ["no message"]
    if any(text in done.stderr for text in _NO_CLUSTER):
        raise ClusterSilent(f"No Kubernetes cluster answers kubectl: {lines[-1]}")
    raise TrainingFailure(f"kubectl {arguments[0]} failed: {lines[-1]}")


def apply(manifests: Sequence[dict[str, Any]], *, namespace: str) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    kubectl("apply", "-f", "-", namespace=namespace, content=text)
