"""The image of the egress container: Squid, Unbound, and the part of ``aworld_train.serving`` that runs them.

It is the same for every environment, and named after a digest of its content.
"""

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path
from typing import Any

import aworld_train
from aworld_train.env import images
from aworld_train.env.backend import ProgressReporter
from aworld_train.env.seccomp import seccomp_option
from aworld_train.serving import egress

_PACKAGES = ("aiohttp",)
_FILES_BYTES = 16 << 20
_PIDS = 64
_MEMORY = 512 << 20
_DOCKERFILE = f"""\
FROM python:3.11-slim
RUN apt-get update \\
    && apt-get install -y --no-install-recommends squid unbound \\
    && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY requirements.txt {images.RUNTIME_FOLDER}/
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore -q \\
        --target {images.RUNTIME_FOLDER}/lib -r {images.RUNTIME_FOLDER}/requirements.txt
COPY . {images.RUNTIME_FOLDER}
RUN python3 -m compileall -q {images.RUNTIME_FOLDER}/aworld_train
USER {images.USER}:{images.USER}
ENTRYPOINT ["python3", "-P", "{images.RUNTIME_FOLDER}/run.py", "{egress.__name__}"]
"""


def egress_image_name() -> str:
    hashed = hashlib.sha256()
    for name, content in sorted(_files().items()):
        hashed.update(f"{name}\0".encode() + content)
    return f"{images.LABEL}/egress:{hashed.hexdigest()[:12]}"


def build_egress_image(
    client: Any, report_progress: ProgressReporter, *, pull: bool = False, rebuild: bool = False
) -> str:
    from docker.errors import ImageNotFound

    name = egress_image_name()
    if not (pull or rebuild):
        with contextlib.suppress(ImageNotFound):
            client.images.get(name)
            return name
    report_progress("Building the image of the egress proxy; the first time takes a minute.")
    labels = {f"{images.LABEL}.role": "egress"}
    images.build_context(
        client, images.pack(_files()), name, labels, report_progress, pull=pull, nocache=rebuild
    )
    return name


def _files() -> dict[str, bytes]:
    package = Path(aworld_train.__file__).parent
    serving = package / "serving"
    files = [
        package / "__init__.py",
        package / "errors.py",
        package / "masking.py",
        serving / "__init__.py",
        *sorted((serving / "egress").glob("*.py")),
    ]
    return {
        **{f"aworld_train/{file.relative_to(package)}": file.read_bytes() for file in files},
        "run.py": images.RUN_SCRIPT.format(folder=images.RUNTIME_FOLDER).encode(),
        "requirements.txt": "".join(f"{name}=={metadata.version(name)}\n" for name in _PACKAGES).encode(),
        "Dockerfile": _DOCKERFILE.encode(),
    }


def egress_container_options() -> dict[str, Any]:
    """Options that limit what the container may use and do, without its network, volumes, name and labels.

    Unbound listens on port 53 of its loopback, and so needs no privilege for low ports.
    """
    user = images.USER
    return {
        "user": f"{user}:{user}",
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={_FILES_BYTES},uid={user},gid={user},mode=0700"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", seccomp_option()],
        "sysctls": {"net.ipv4.ip_unprivileged_port_start": "53"},
        "pids_limit": _PIDS,
        "mem_limit": _MEMORY,
        "memswap_limit": _MEMORY,
        "restart_policy": {"Name": "always"},
    }
