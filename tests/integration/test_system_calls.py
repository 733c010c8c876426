"""The list of system calls, in a container of the real engine."""

import json
from typing import Any

import pytest

from aworld_train.env import containers
from aworld_train.env.backend import Size
from aworld_train.env.egress_image import build_egress_image
from tests.environments import need_docker

# Numbers of x86_64 and AArch64 are the same from 424 on.
PROGRAM = """
import ctypes, errno, json, platform, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)

def error(number, *arguments):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno()) if libc.syscall(number, *arguments) < 0 else None

def family(number):
    try:
        socket.socket(number, socket.SOCK_STREAM).close()
    except OSError as reason:
        return errno.errorcode[reason.errno]

old = {"ptrace": 101, "process_vm_readv": 310} if platform.machine() == "x86_64" else {"ptrace": 117}
thread = threading.Thread(target=print, args=("thread", ))
print(json.dumps({
    "io_uring_setup": error(425, 1, ctypes.create_string_buffer(200)),
    "pidfd_getfd": error(438, 0, 0, 0),
    "clone3": error(435, None, 0),
    **{name: error(number, 16, 1, 0, 0, 0, 0) for name, number in old.items()},
    "vsock": family(40),
    "unix": family(1), "ip": family(2), "ipv6": family(10),
    "prlimit": error(302 if len(old) == 2 else 261, 1, 0, None, None),
    "landlock": error(444, None, 0, 1),
    "program": subprocess.run(["true"]).returncode,
}))
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def client() -> Any:
    need_docker()
    import docker

    return docker.from_env()


def test_a_container_refuses_what_only_attacks_need_and_runs_programs(client: Any) -> None:
    limits = containers._container_limits(Size(1.0, 256 << 20), 2) | {
        "restart_policy": None,
        "log_config": None,
    }
    output, thread = (
        client.containers.run(
            build_egress_image(client, print),
            ["-c", PROGRAM],
            entrypoint=["python3"],
            remove=True,
            network_mode="none",
            user="20000:20000",
            **limits,
        )
        .decode()
        .splitlines()
    )
    found = json.loads(output)
    assert thread == "thread" and found["program"] == 0
    assert {name for name, error in found.items() if error == "EPERM"} >= {
        "io_uring_setup",
        "pidfd_getfd",
        "ptrace",
        "prlimit",
        "vsock",
    }
    assert found["clone3"] == "ENOSYS" and found["unix"] is None and found["ip"] is None
    assert found["ipv6"] in (None, "EAFNOSUPPORT") and found["landlock"] in (None, "ENOSYS", "EOPNOTSUPP")
