"""TransferQueue, spoken to only by processes of the run: every socket is encrypted with the run's key (ZMQ CURVE).

TransferQueue unpickles what reaches its sockets, so whoever can send to one runs code as the trainer. All processes of
a run read one secret key from a file that only their user can read. A CURVE server answers nobody whose first message
is not sealed to its public key, and that message does not show the key (https://rfc.zeromq.org/spec/26/). The public
key is made from the secret one and given to nobody else, so that whoever knows it belongs to the run. This needs no
authenticator beside the sockets (ZAP), without which a socket would let in everyone who knows the public key.
"""

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

QUEUE_KEY_VARIABLE = "AWORLD_TRAIN_QUEUE_KEY"
"""The environment variable with the path of the key's file."""
SOCKET_MODULES = (
    "transfer_queue.utils.zmq_utils",
    "transfer_queue.controller",
    "transfer_queue.storage.simple_storage",
    "transfer_queue.storage.managers.base",
)
"""Where TransferQueue 0.1.11 makes sockets, in all of them by the function ``create_zmq_socket``."""


def secure_queue(key_file: Path) -> None:
    """Make every socket that TransferQueue opens in this process one of the run's; again it does nothing.

    Args:
        key_file: Holds the run's secret key, 32 bytes in hexadecimal digits.

    Raises:
        RuntimeError: This TransferQueue makes its sockets in another way than the one this was written for.
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
    """``create_zmq_socket`` with the run's key on what it makes: ROUTER sockets are servers, DEALER sockets clients."""
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
