"""Removes an environment of containers when its owner is gone, by whatever cause.

    python container_supervisor.py NAME OWNER

Containers are children of the Docker engine, so ``process_supervisor`` cannot end them.
"""

import select
import sys
import time

from aworld_train.env.containers import DockerBackend
from aworld_train.process_supervisor import ProcessIdentity, open_end

_INTERVAL = 1.0  # between two looks at the owner, on systems that do not tell of its end
_ENGINE_SECONDS = 10.0  # between two questions to the engine, which cost milliseconds


def main() -> None:
    name, owner = sys.argv[1], ProcessIdentity.read(sys.argv[2])
    backend, owners_end = DockerBackend(), open_end(owner)
    while backend.exists(name):
        if owner.find() is None:
            backend.remove(name)
            return
        if owners_end is None:
            time.sleep(_INTERVAL)
        else:
            select.select([owners_end], [], [], _ENGINE_SECONDS)


if __name__ == "__main__":
    main()
