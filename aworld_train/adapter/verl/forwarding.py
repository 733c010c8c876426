"""Gives the variables of a run to Ray's worker processes on a cluster that the run has not started itself.

VeRL's process sends them through the runtime environment of its Ray job: encrypted (see ``encrypted_env``), except
those that a Python process needs when it starts. A process of the run opens them in the worker setup.
"""

import os
from collections.abc import Iterable

from aworld_train.encrypted_env import JOB_VARIABLES_VARIABLE, ray_token, seal, unseal

FORWARDED_VARIABLE = "AWORLD_TRAIN_FORWARDED"
"""Holds the names of variables for the workers, separated by commas; set only on such a cluster."""
_SEALED_VARIABLE = "AWORLD_TRAIN_SEALED"
_AT_START = ("PYTHONPATH", "PYTHONUNBUFFERED")
# Set for each start beside the framework's own variables.
_OF_A_START = ("AWORLD_TRAIN_RUN_DIR", "MCP_SERVER_URL", "MCP_SERVER_TOKEN")


def forwarded_names(own: Iterable[str]) -> str:
    of_job = [name for name in os.environ.get(JOB_VARIABLES_VARIABLE, "").split(",") if name]
    return ",".join(sorted({*own, *of_job, *_OF_A_START, FORWARDED_VARIABLE}))


def is_forwarding() -> bool:
    return FORWARDED_VARIABLE in os.environ


def variables_for_workers() -> dict[str, str]:
    """The variables for the runtime environment of the run's Ray job; RuntimeError if no token can seal them."""
    names = os.environ[FORWARDED_VARIABLE].split(",")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    token = ray_token()
    if token is None:
        raise RuntimeError(
            "The Ray cluster has no token, so the run's variables cannot be sent to its workers."
        )
    plain = {name: variables.pop(name) for name in _AT_START if name in variables}
    return {**plain, _SEALED_VARIABLE: seal(variables, token)}


def open_variables() -> None:
    """Set the sealed variables in this worker process; does nothing where there are none."""
    sealed = os.environ.pop(_SEALED_VARIABLE, None)
    token = ray_token()
    if sealed is not None and token is not None:
        os.environ |= unseal(sealed, token)
