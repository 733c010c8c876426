"""What the container engine saw of a worker that was lost: a place that no session can reach."""

import time
from collections.abc import Iterator

from aworld_train.env.images import LABEL

_ENGINE_SECONDS = 15
_NOTICE_SECONDS = 5.0
"""Within which an engine on a busy machine has noticed that a container is over."""
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
        filters = {"type": "container", "label": [label, f"{LABEL}.number={worker}"]}
        since = f"{time.time() - seconds:.3f}"

        def seen_until(end: float) -> Iterator[tuple[str, str | None]]:
            for event in client.events(since=since, until=f"{end:.3f}", filters=filters, decode=True):
                yield event["Action"], event["Actor"]["Attributes"].get("exitCode")

        for action, _ in seen_until(time.time() + _NOTICE_SECONDS):
            if action == "die":
                break
        seen = list(seen_until(time.time()))
    except Exception:  # no engine here, or one that does not answer, has no word in this
        return False
    actions = {action for action, _ in seen}
    was_killed = bool(actions & _BY_REQUEST) or ("die", _SIGKILL_CODE) in seen
    return was_killed and "oom" not in actions
