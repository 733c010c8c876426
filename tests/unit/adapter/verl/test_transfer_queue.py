"""TransferQueue's sockets answer the run's processes alone; a stranger's pickle is never opened."""

import ast
import json
import os
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from aworld_train.adapter.verl import transfer_queue
from aworld_train.adapter.verl.private_folder import PrivateFolder
from aworld_train.adapter.verl.transfer_queue import (
    QUEUE_KEY_VARIABLE,
    QUEUE_SECRET_VARIABLE,
    SOCKET_MODULES,
    queue_secret,
    secure_queue,
)

VERSION = "0.1.11"
TEST_SECONDS = 120
SOCKETS = {"handshake_socket", "request_handle_socket", "put_get_socket"}
# TransferQueue's own controller and storage unit, as they are inside their Ray actors.
SERVERS = """
import os, sys
from pathlib import Path
if key := os.environ.get("AWORLD_TRAIN_QUEUE_KEY"):
    from aworld_train.adapter.verl.transfer_queue import secure_queue
    secure_queue(bytes.fromhex(Path(key).read_text()))
from transfer_queue.controller import TransferQueueController
from transfer_queue.storage.simple_storage import SimpleStorageUnit
servers = [
    TransferQueueController.__ray_metadata__.modified_class(),
    SimpleStorageUnit.__ray_metadata__.modified_class({"total_storage_size": 100}),
]
for server in servers:
    info = server.zmq_server_info
    for name in info.ports:
        print(name, info.to_addr(name), flush=True)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""
# Sends one message to each address; with a secret key, as a process of the run does.
CLIENT = """
import json, sys
import zmq
from zmq.utils import z85
for address, frames, secret in json.load(sys.stdin):
    socket = zmq.Context.instance().socket(zmq.DEALER)
    # The storage unit listens to this name alone.
    socket.identity = b"TQ_STORAGE_stranger" + address.encode()
    if secret:
        secret_key = z85.encode(bytes.fromhex(secret))
        public_key = zmq.curve_public(secret_key)
        socket.curve_secretkey, socket.curve_publickey = secret_key, public_key
        socket.curve_serverkey = public_key
    socket.connect(address)
    socket.send_multipart([bytes.fromhex(frame) for frame in frames])
    socket.poll(MILLISECONDS)
    socket.close(linger=0)
"""
MILLISECONDS = 3000
"""How long a client waits for an answer; where nothing is to happen, this is the time given to it."""


class CreateFile:
    """An object whose pickle creates a file where it is opened."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    private = PrivateFolder(tmp_path / "private")
    private.fill()
    return private.queue_key


def start_servers(key: Path | None) -> "tuple[subprocess.Popen[str], dict[str, str]]":
    """TransferQueue's servers in a process of their own, and the address of each socket."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVERS],
        env=_environment(key),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    addresses = {}
    for line in process.stdout:
        if line.startswith("ready"):
            return process, addresses
        name, address = line.split()
        addresses[name] = address
    raise AssertionError("the servers did not start")


def attack(*attacks: tuple[str, Path, Path | None]) -> None:
    """Send to each address a message that creates the file where it is opened, sealed with the key if there is one."""
    from transfer_queue.utils.zmq_utils import ZMQMessage, ZMQRequestType

    messages = []
    for address, file, key in attacks:
        message = ZMQMessage.create(ZMQRequestType.HANDSHAKE, "stranger", {"object": CreateFile(file)})
        frames = [bytes(frame).hex() for frame in message.serialize()]
        messages.append((address, frames, key.read_text() if key else None))
    program = CLIENT.replace("MILLISECONDS", str(MILLISECONDS))
    subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(messages),
        text=True,
        check=True,
        timeout=TEST_SECONDS,
    )


def _environment(key: Path | None) -> dict[str, str]:
    environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    environment.pop(QUEUE_KEY_VARIABLE, None)
    return environment | ({QUEUE_KEY_VARIABLE: str(key)} if key else {})


@pytest.mark.timeout(2 * TEST_SECONDS)
def test_a_strangers_pickle_is_opened_by_transfer_queue_as_it_is(tmp_path: Path) -> None:
    """What the run's key is for; and the control for the test below."""
    process, addresses = start_servers(None)
    try:
        assert set(addresses) == SOCKETS
        attack(*((address, tmp_path / name, None) for name, address in addresses.items()))
    finally:
        process.communicate("", timeout=TEST_SECONDS)
    assert {file.name for file in tmp_path.glob("*_socket")} == SOCKETS


@pytest.mark.timeout(2 * TEST_SECONDS)
def test_a_strangers_pickle_is_not_opened_by_a_run(tmp_path: Path, key: Path) -> None:
    other = PrivateFolder(tmp_path / "other")
    other.fill()
    process, addresses = start_servers(key)
    try:
        assert set(addresses) == SOCKETS
        assert all(address.startswith("tcp://127.0.0.1:") for address in addresses.values())
        sealed = {"plain": None, "with-another-runs-key": other.queue_key}
        attack(
            *(
                (address, tmp_path / f"{name}-{kind}", with_key)
                for name, address in addresses.items()
                for kind, with_key in sealed.items()
            )
        )
        assert list(tmp_path.glob("*_socket-*")) == []
        # The same sockets hear the run's own processes, after all that.
        attack(*((address, tmp_path / f"{name}-own", key) for name, address in addresses.items()))
    finally:
        process.communicate("", timeout=TEST_SECONDS)
    assert {file.name for file in tmp_path.glob("*_socket-*")} == {f"{name}-own" for name in SOCKETS}


def test_this_transfer_queue_makes_its_sockets_where_they_are_secured() -> None:
    """Pinned: when TransferQueue moves, read how it makes sockets before this is made to pass."""
    assert metadata.version("TransferQueue") == VERSION
    spec = util.find_spec("transfer_queue")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    users, makers = set(), []
    for file in package.rglob("*.py"):
        module = ".".join(("transfer_queue", *file.relative_to(package).with_suffix("").parts))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Name) and node.id == "create_zmq_socket":
                users.add(module)
            if isinstance(node, ast.Attribute) and node.attr == "socket" and _is_call_on_context(node):
                makers.append(module)
    assert users | {SOCKET_MODULES[0]} == set(SOCKET_MODULES)
    assert makers == [SOCKET_MODULES[0]], "a socket is made by something else than create_zmq_socket"


def _is_call_on_context(node: ast.Attribute) -> bool:
    """``ctx.socket`` and the like; ``socket.socket`` is Python's own."""
    return not (isinstance(node.value, ast.Name) and node.value.id == "socket")


@pytest.fixture
def queue_modules(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Modules in place of TransferQueue's, whose sockets are their arguments."""

    def create(ctx: Any, socket_type: Any, ip: str, identity: Any = None) -> Any:
        return SimpleNamespace(made_of=(ctx, socket_type, ip, identity))

    modules: list[Any] = [SimpleNamespace(create_zmq_socket=create) for _ in SOCKET_MODULES]
    monkeypatch.setattr(transfer_queue, "_socket_modules", lambda: modules)
    return modules


def test_every_socket_has_the_run_s_key_and_a_server_s_public_key_is_known_to_clients(
    queue_modules: list[Any],
) -> None:
    secret = bytes(range(32))
    for _ in range(2):  # the second time does nothing
        secure_queue(secret)
    (create,) = {module.create_zmq_socket for module in queue_modules}
    key = z85.encode(secret)
    keys = {"curve_secretkey": key, "curve_publickey": zmq.curve_public(key)}
    assert vars(create("context", zmq.ROUTER, "127.0.0.1", identity=b"a")) == {
        "made_of": ("context", zmq.ROUTER, "127.0.0.1", b"a"),
        "curve_server": True,
        **keys,
    }
    assert vars(create("context", zmq.DEALER, "127.0.0.1")) == {
        "made_of": ("context", zmq.DEALER, "127.0.0.1", None),
        "curve_serverkey": zmq.curve_public(key),
        **keys,
    }
    with pytest.raises(RuntimeError, match=r"asked for a socket of type .*, which is not secured"):
        create("context", zmq.PUB, "127.0.0.1")


@pytest.mark.parametrize("variables", [(QUEUE_KEY_VARIABLE,), (QUEUE_KEY_VARIABLE, QUEUE_SECRET_VARIABLE)])
def test_the_key_is_in_a_variable_or_in_the_file_that_one_names(
    variables: tuple[str, ...], key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "0f" * 32
    for name, value in ((QUEUE_KEY_VARIABLE, str(key)), (QUEUE_SECRET_VARIABLE, secret)):
        monkeypatch.setenv(name, value if name in variables else "")
    expected = secret if QUEUE_SECRET_VARIABLE in variables else key.read_text()
    assert queue_secret() == bytes.fromhex(expected)


def test_a_transfer_queue_without_one_of_its_modules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_queue, "SOCKET_MODULES", ("transfer_queue.controller", "transfer_queue.no"))
    with pytest.raises(RuntimeError, match=r"no module 'transfer_queue\.no', in which .*cannot be secured"):
        secure_queue(bytes(32))


def test_another_transfer_queue_is_refused(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transfer_queue.controller as controller

    monkeypatch.setattr(controller, "create_zmq_socket", lambda: None)
    with pytest.raises(RuntimeError, match=r"TransferQueue==0\.1\.11"):
        secure_queue(bytes.fromhex(key.read_text()))


def test_each_run_on_a_cluster_has_a_queue_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    fake_ray = SimpleNamespace(get_actor=lambda name, namespace: calls.append((name, namespace)), other=1)
    controller = SimpleNamespace(options=lambda **names: calls.append((names["name"], names["namespace"])))
    interface = SimpleNamespace(ray=fake_ray, TransferQueueController=controller)
    monkeypatch.setattr(transfer_queue, "_interface", lambda: interface)
    for _ in range(2):
        transfer_queue.separate_queue("run-a")
    interface.ray.get_actor("TransferQueueController", namespace="transfer_queue")
    interface.TransferQueueController.options(name="TransferQueueController", namespace="transfer_queue")
    assert calls == [("TransferQueueController", "transfer_queue-run-a")] * 2
    assert interface.ray.other == 1


def test_this_transfer_queue_finds_its_controller_as_the_separation_expects() -> None:
    """Two uses of the fixed namespace: one to look the controller up, one to make it."""
    source = Path(transfer_queue._interface().__file__).read_text()
    assert source.count('namespace="transfer_queue"') == 2
    assert 'ray.get_actor("TransferQueueController", namespace="transfer_queue")' in source
    assert "TransferQueueController.options(" in source
