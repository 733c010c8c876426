"""Restricts TransferQueue to processes of the run: every socket is encrypted with the run's key (ZMQ CURVE).

TransferQueue unpickles the messages that reach its sockets, so anyone who can send to one can run code as the trainer.
All processes of a run have one secret key, from a file that only their user can read or, on a cluster that the run has
not started, from a variable that only they can open. A CURVE server does not answer a client whose first message is not
sealed to its public key (https://rfc.zeromq.org/spec/26/), which is derived from the secret key and given to no other
process. So a client that knows it belongs to the run, and no authenticator (ZAP) is needed.
"""

import functools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

QUEUE_KEY_VARIABLE = "AWORLD_TRAIN_QUEUE_KEY"
QUEUE_SECRET_VARIABLE = "AWORLD_TRAIN_QUEUE_SECRET"
SOCKET_MODULES = (
    "transfer_queue.utils.zmq_utils",
    "transfer_queue.controller",
    "transfer_queue.storage.simple_storage",
    "transfer_queue.storage.managers.base",
)
"""The modules in which TransferQueue 0.1.11 makes sockets, all with the function ``create_zmq_socket``."""


def queue_secret() -> bytes:
    """The run's secret key, 32 bytes, from the environment of this process."""
    secret = os.environ.get(QUEUE_SECRET_VARIABLE) or Path(os.environ[QUEUE_KEY_VARIABLE]).read_text()
    return bytes.fromhex(secret)


def secure_queue(secret: bytes) -> None:
    """Encrypt every socket that TransferQueue opens in this process; a second call does nothing."""
    modules = _socket_modules()
    create = modules[0].create_zmq_socket
    if hasattr(create, "public_key"):
        return
    secure = _secured(create, secret)
    if any(getattr(module, "create_zmq_socket", None) is not create for module in modules):
        raise RuntimeError(
            "TransferQueue makes its sockets in another way than version 0.1.11 did, so they cannot be secured. "
            "Install TransferQueue==0.1.11."
        )
    for module in modules:
        module.create_zmq_socket = secure  # type: ignore[attr-defined]


def separate_queue(run: str) -> None:
    """Give the queue of this run a name of its own on a Ray cluster; a second call does nothing.

    TransferQueue 0.1.11 finds its controller by a fixed name and namespace (``interface.py``), so of two runs on a
    cluster the second would take the first one's.
    """
    interface = _interface()
    if isinstance(interface.ray, _RayOfRun):
        return
    interface.ray = _RayOfRun(interface.ray, run)
    interface.TransferQueueController = _ControllerOfRun(interface.TransferQueueController, run)


class _RayOfRun:
    def __init__(self, ray: Any, run: str):
        self._ray, self._run = ray, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ray, name)

    def get_actor(self, name: str, namespace: str) -> Any:
        return self._ray.get_actor(name, namespace=f"{namespace}-{self._run}")


class _ControllerOfRun:
    def __init__(self, controller: Any, run: str):
        self._controller, self._run = controller, run

    def options(self, *, name: str, namespace: str) -> Any:
        return self._controller.options(name=name, namespace=f"{namespace}-{self._run}")


def _interface() -> Any:
    import transfer_queue.interface

    return transfer_queue.interface


def _socket_modules() -> list[ModuleType]:
    import transfer_queue  # noqa: F401

    try:
        return [sys.modules[name] for name in SOCKET_MODULES]
    except KeyError as missing:
        raise RuntimeError(
            f"This TransferQueue has no module {missing}, in which version 0.1.11 made its sockets, so they cannot be "
            "secured. Install TransferQueue==0.1.11."
        ) from missing


def _secured(create: Any, secret: bytes) -> Any:
    """``create_zmq_socket`` that sets the run's key: ROUTER sockets are servers, DEALER sockets clients."""
    import zmq
    from zmq.utils import z85

    secret_key = z85.encode(secret)
    public_key = zmq.curve_public(secret_key)

    @functools.wraps(create)
    def create_secured(
        ctx: Any, socket_type: Any, ip: str, identity: bytes | bytearray | memoryview | None = None
    ) -> Any:
        if socket_type not in (zmq.ROUTER, zmq.DEALER):
            raise RuntimeError(
                f"TransferQueue asked for a socket of type {socket_type!r}, which is not secured."
            )
        socket = create(ctx, socket_type, ip, identity=identity)
        socket.curve_publickey = public_key
        socket.curve_secretkey = secret_key
        if socket_type == zmq.ROUTER:
            socket.curve_server = True
        else:
            socket.curve_serverkey = public_key
        return socket

    create_secured.public_key = public_key  # type: ignore[attr-defined]
    return create_secured
