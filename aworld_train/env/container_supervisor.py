"""Removes an environment of containers when its owner is gone, by whatever cause.

    python container_supervisor.py NAME OWNER

Containers are children of the Docker engine, so ``process_supervisor`` cannot end them. This program watches
the owner, and ends by itself when the environment has been taken down.
"""

import sys
import time

from aworld_train.env.containers import DockerBackend
from aworld_train.process_supervisor import ProcessIdentity

_INTERVAL = 1.0


def main() -> None:
    """Watch until the owner or the environment is gone."""
    name, owner = sys.argv[1], ProcessIdentity.read(sys.argv[2])
    backend = DockerBackend()
    while backend.exists(name):
        if owner.find() is None:
            backend.remove(name)
            return
        time.sleep(_INTERVAL)


if __name__ == "__main__":
    main()
