"""Restricts TransferQueue to processes of the run: every socket is encrypted with the run's key (ZMQ CURVE).

TransferQueue unpickles the messages that reach its sockets, so anyone who can send to one can run code as the trainer.
All processes of a run read one secret key from a file that only their user can read. A CURVE server does not answer a
client whose first message is not sealed to the server's public key, and that message does not reveal the key
(https://rfc.zeromq.org/spec/26/). The public key is derived from the secret key and given to no other process, so that
a client that knows it belongs to the run. Therefore no authenticator (ZAP) is needed; with a public key that others
know, a socket without one would accept everyone.
"""

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

QUEUE_KEY_VARIABLE = "AWORLD_TRAIN_QUEUE_KEY"
"""Name of the environment variable that holds the path of the key's file."""
SOCKET_MODULES = (
    "transfer_queue.utils.zmq_utils",
    "transfer_queue.controller",
    "transfer_queue.storage.simple_storage",
    "transfer_queue.storage.managers.base",
)
"""The modules in which TransferQueue 0.1.11 makes sockets, all with the function ``create_zmq_socket``."""


def secure_queue(key_file: Path) -> None:
    """Encrypt every socket that TransferQueue opens in this process; a second call does nothing.

    Args:
        key_file: Holds the run's secret key, 32 bytes in hexadecimal digits.

    Raises:
        RuntimeError: This version of TransferQueue does not make its sockets as version 0.1.11 does.
        ValueError: The file holds no key.
    """
    modules = _socket_modules()
    create = modules[0].create_zmq_socket
    if hasattr(create, "public_key"):
        return
    secure = _secured(create, bytes.fromhex(key_file.read_text()))
    if any(getattr(module, "create_zmq_socket", None) is not create for module in modules):
        raise RuntimeError(
            "TransferQueue makes its sockets in another way than version 0.1.11 did, so they cannot be secured. "
            "Install TransferQueue==0.1.11."
        )
    for module in modules:
        module.create_zmq_socket = secure  # type: ignore[attr-defined]


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
