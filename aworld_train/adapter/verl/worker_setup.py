"""What every worker process of Ray does before anything of VeRL runs in it (Ray's ``worker_process_setup_hook``).

Ray ends a worker in which this fails, so no process of a run goes on without it.
"""

import os
from pathlib import Path

from aworld_train.adapter.verl.transfer_queue import QUEUE_KEY_VARIABLE, secure_queue
from aworld_train.user_code import find_user_modules

WORKER_SETUP = "aworld_train.adapter.verl.worker_setup.set_up"
RENDEZVOUS_VARIABLE = "AWORLD_TRAIN_RENDEZVOUS"
"""The environment variable with the folder in which ranks find each other."""


def set_up() -> None:
    """Secure the queue, let ranks meet in a file, and let the user's own modules be found."""
    secure_queue(Path(os.environ[QUEUE_KEY_VARIABLE]))
    _meet_in_file()
    find_user_modules()


def _meet_in_file() -> None:
    """Ranks of a worker group find each other through a file, which only their user can reach.

    torch would have the first rank listen on every address of the machine (``TCPStore``) and do for anybody what it is
    asked to, such as naming another address for a rank, whose messages are then unpickled. VeRL passes this variable on
    to torch; the port that it chose for each group serves as the group's name.
    """
    port = os.environ.get("MASTER_PORT")
    if port is not None:
        os.environ["DIST_INIT_METHOD"] = f"file://{os.environ[RENDEZVOUS_VARIABLE]}/{port}"
