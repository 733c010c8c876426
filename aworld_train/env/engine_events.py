"""What the container engine saw of a worker that was lost: a place that no session can reach."""

import time

from aworld_train.env.images import LABEL

_ENGINE_SECONDS = 5
_SIGKILL_CODE = "137"
_BY_REQUEST = {"kill", "stop", "destroy"}


def killed_from_outside(environment: str, port: int, worker: int, seconds: float) -> bool:
    """Whether an engine of this machine has seen that a worker was killed, and not for want of memory, within these
    seconds.

    Tools cannot signal their worker, and what it does itself ends it with another exit code. ``port`` is the gateway's.
    """
    try:
        import docker

        client = docker.from_env(timeout=_ENGINE_SECONDS)
        label = f"{LABEL}.environment={environment}"
        if not client.networks.list(filters={"label": [label, f"{LABEL}.port={port}"]}):
            return False
        now = time.time()
        events = client.events(
            since=f"{now - seconds:.3f}",
            until=f"{now:.3f}",
            filters={"type": "container", "label": [label, f"{LABEL}.number={worker}"]},
            decode=True,
        )
        seen = [(event["Action"], event["Actor"]["Attributes"].get("exitCode")) for event in events]
    except Exception:  # no engine here, or one that does not answer, has no word in this
        return False
    actions = {action for action, _ in seen}
    was_killed = bool(actions & _BY_REQUEST) or ("die", _SIGKILL_CODE) in seen
    return was_killed and "oom" not in actions
