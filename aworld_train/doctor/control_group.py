"""Limits of the control group that this process is in, in either version of control groups."""

from pathlib import PurePosixPath

from aworld_train.doctor.machine import Machine

_ROOT = "/sys/fs/cgroup"
_MAX_LIMIT = 1 << 60
"""Greater values stand for no limit: version 1 has no word for it."""


def control_group_value(machine: Machine, controller: str, file: str) -> int | None:
    """The smallest limit in ``file`` of this process's group and the groups above it; None if there is none."""
    values = [text.split()[0] for text in control_group_texts(machine, controller, file)]
    limits = [int(value) for value in values if value.isdigit() and int(value) < _MAX_LIMIT]
    return min(limits, default=None)


def control_group_texts(machine: Machine, controller: str, file: str) -> list[str]:
    """The contents of ``file`` in this process's group and the groups above it, where it is not empty."""
    texts = []
    for line in machine.text("/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        folder = PurePosixPath(_ROOT, controllers and controller)
        path = PurePosixPath(group)
        for parent in (path, *path.parents):
            texts.append(machine.text(f"{folder}{parent}/{file}").strip())
    # In a container the group's own folder is often mounted as the root.
    texts += [machine.text(f"{_ROOT}/{prefix}{file}").strip() for prefix in ("", f"{controller}/")]
    return [text for text in texts if text]
