"""The image of an environment: what its own Dockerfile makes, and on top the gateway and the worker.

An image is named after a digest of its content, so it is built once for all users of the machine. It holds no secret.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import tarfile
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

import aworld_train
from aworld_train.env.backend import ProgressReporter
from aworld_train.env.directory import EnvDirectory
from aworld_train.errors import EnvironmentFailure, UsageError

RUNTIME_FOLDER = "/opt/aworld"
USER = 10001
LABEL = "aworld-train"
_PACKAGES = ("aiohttp", "prometheus-client", "pyjwt")
_SHARED = ("__init__.py", "errors.py", "masking.py", "serving")
_LOG_LINES = 25
# Files and folders that hold keys, by name: never in an image, even where its author did not exclude them.
_SECRETS = (
    *(
        ".env",
        ".env.*",
        "*.env",
        ".envrc",
        ".git",
        ".git-credentials",
        ".netrc",
        ".pypirc",
        ".npmrc",
        ".pgpass",
    ),
    *(".ssh", ".aws", ".azure", ".kube", ".docker", ".gnupg", ".config", "id_rsa", "id_ecdsa", "id_ed25519"),
    *("*.key", "*.p12", "*.pfx", "*.kdbx", "credentials.json"),
)
_EXAMPLES = (".env.example", ".env.sample", ".env.template", "example.env")
_PEM = ".pem"
_PRIVATE_KEY = b"PRIVATE KEY-----"
_STEP = re.compile(r"^Step \d+/\d+ : ")
_SERVERS_ARGUMENT = re.compile(r"^\s*ARG\s+SERVERS\b", re.MULTILINE | re.IGNORECASE)
# https://docs.docker.com/reference/dockerfile/: options and here-documents that the engine's own builder does not have.
_BUILDKIT = re.compile(
    r"^[ \t]*(?:RUN[ \t]+--(?:mount|network|security)|(?:COPY|ADD)[ \t]+--(?:link|chmod|parents|exclude)"
    r"|(?:RUN|COPY|ADD)[ \t][^\n]*<<-?[\"']?\w+)",
    re.MULTILINE | re.IGNORECASE,
)
_LAYER_FINISHED = ("Already exists", "Pull complete")
RUN_SCRIPT = """\
import runpy, sys
sys.path[:0] = ["{folder}/lib", "{folder}"]
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
# The user of gateways and workers owns the folder of the worker's socket and nothing else; tools run as other users.
_DOCKERFILE = """\
FROM {base}
USER root
COPY . {folder}
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore -q \\
        --target {folder}/lib -r {folder}/requirements.txt \\
    && python3 -m compileall -q {folder}
USER {user}:{user}
ENTRYPOINT ["python3", "-P", "{folder}/run.py"]
"""


def image_name(directory: EnvDirectory, only: tuple[str, ...] = ()) -> str:
    hashed = hashlib.sha256(directory.digest().encode())
    if only and _takes_servers_argument(directory):
        hashed.update("\0".join(["", *sorted(only)]).encode())
    for name, content in sorted(_runtime(directory).items()):
        hashed.update(f"{name}\0".encode() + content)
    return f"{LABEL}/{_repository(directory.name)}:{hashed.hexdigest()[:12]}"


def build(
    client: Any,
    directory: EnvDirectory,
    report_progress: ProgressReporter,
    *,
    only: tuple[str, ...] = (),
    pull: bool = False,
    rebuild: bool = False,
) -> str:
    """Build the image unless it exists; returns its name. By ``ARG SERVERS`` it may serve those in ``only`` alone."""
    from docker.errors import ImageNotFound

    name = image_name(directory, only)
    if not (pull or rebuild):
        for existing in (image_name(directory), name):
            with contextlib.suppress(ImageNotFound):
                client.images.get(existing)
                return existing
    if not (directory.path / "Dockerfile").is_file():
        raise UsageError(f"{directory.path} has no Dockerfile; it can only be run with --backend process.")
    directory_image = f"{name}-own"
    labels = {f"{LABEL}.directory": directory.name}
    report_progress(f"Building the image of {directory.name}; the first time takes minutes.")
    arguments = {"SERVERS": ",".join(only)} if only and _takes_servers_argument(directory) else {}
    context, left_out = _directory_context(directory)
    if left_out:
        report_progress(f"Left out of the image of {directory.name}: {'; '.join(left_out)}.")
    try:
        build_context(
            client,
            context,
            directory_image,
            labels,
            report_progress,
            pull=pull,
            nocache=rebuild,
            buildargs=arguments,
        )
    except EnvironmentFailure as error:
        raise EnvironmentFailure(error.message + _buildkit_note(directory)) from error
    dockerfile = _DOCKERFILE.format(base=directory_image, folder=RUNTIME_FOLDER, user=USER).encode()
    runtime = pack({**_runtime(directory), "Dockerfile": dockerfile})
    build_context(client, runtime, name, labels, report_progress)
    client.images.remove(directory_image, noprune=True)  # the name only: the layers are in the other one
    return name


def _buildkit_note(directory: EnvDirectory) -> str:
    dockerfile = directory.path / "Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    used = _BUILDKIT.search(text)
    if used is None:
        return ""
    line = text.count("\n", 0, used.start()) + 1
    return (
        f"\nLine {line} of {dockerfile} ({used[0].strip()}) needs BuildKit, which the Docker API does not offer. Build "
        f"that image yourself (docker buildx build --load -t {_repository(directory.name)}-base .), and let the "
        f"Dockerfile be FROM {_repository(directory.name)}-base; or write it without."
    )


def _takes_servers_argument(directory: EnvDirectory) -> bool:
    dockerfile = directory.path / "Dockerfile"
    return dockerfile.is_file() and bool(_SERVERS_ARGUMENT.search(dockerfile.read_text(encoding="utf-8")))


def build_context(
    client: Any,
    context: bytes,
    tag: str,
    labels: dict[str, str],
    report_progress: ProgressReporter,
    **options: Any,
) -> None:
    from docker.errors import APIError

    last_lines: deque[str] = deque(maxlen=_LOG_LINES)
    try:
        output = client.api.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            tag=tag,
            labels=labels,
            rm=True,
            forcerm=True,
            decode=True,
            **options,
        )
        for part in output:
            if "error" in part:
                raise EnvironmentFailure(
                    f"The image of {tag} could not be built: {part['error'].strip()}\nThe last lines of the log:\n"
                    + "\n".join(last_lines)
                )
            for line in _lines(part):
                last_lines.append(line)
                if _STEP.match(line):
                    report_progress(line)
            if part.get("status") in _LAYER_FINISHED:
                report_progress(f"layer {part.get('id')}: {part['status']}")
    except APIError as error:
        raise EnvironmentFailure(
            f"The image of {tag} could not be built: {error.explanation or error}"
        ) from error


def _lines(part: dict[str, Any]) -> Iterator[str]:
    for line in str(part.get("stream") or part.get("status") or "").splitlines():
        if line.strip():
            yield line.rstrip()


def _directory_context(directory: EnvDirectory) -> tuple[bytes, list[str]]:
    """The build context, and what is left out of it: secrets, and links that lead out of the directory."""
    from docker.utils.build import exclude_paths

    ignore = directory.path / ".dockerignore"
    patterns = ignore.read_text().splitlines() if ignore.is_file() else []
    patterns = [line.strip() for line in patterns if line.strip() and not line.startswith("#")]
    files = {}
    left_out: dict[str, None] = {}
    for name in sorted(exclude_paths(str(directory.path), [*patterns, "**/__pycache__"])):
        path = directory.path / name
        if secret := _secret_part(directory.path, name):
            left_out[f"{secret} (may hold secrets)"] = None
        elif path.is_symlink() and not path.resolve().is_relative_to(directory.path):
            left_out[f"{name} (a link out of the directory)"] = None
        elif path.is_symlink() or path.is_file() or not any(path.iterdir()):
            files[name] = path
    return pack(files), list(left_out)


def _secret_part(folder: Path, name: str) -> str:
    *_, path = parts = [*reversed(Path(name).parents), Path(name)]
    for part in parts:
        if part.name not in _EXAMPLES and any(fnmatch(part.name.lower(), pattern) for pattern in _SECRETS):
            return str(part)
    file = folder / path
    is_key = path.suffix == _PEM and file.is_file() and _PRIVATE_KEY in file.read_bytes()
    return name if is_key else ""


def _runtime(directory: EnvDirectory) -> dict[str, bytes]:
    package = Path(aworld_train.__file__).parent
    files = [file for part in _SHARED for file in [package / part, *sorted((package / part).rglob("*.py"))]]
    return {
        **{
            f"aworld_train/{file.relative_to(package)}": file.read_bytes() for file in files if file.is_file()
        },
        "run.py": RUN_SCRIPT.format(folder=RUNTIME_FOLDER).encode(),
        "manifest.json": json.dumps(asdict(directory.manifest)).encode(),
        "requirements.txt": "".join(f"{name}=={metadata.version(name)}\n" for name in _PACKAGES).encode(),
    }


def pack(files: dict[str, Path] | dict[str, bytes] | dict[str, Any]) -> bytes:
    """A tar archive; the same files give the same bytes, by which the builder's cache finds its layers."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, Path) and content.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, _target(content)
                tar.addfile(entry)
                continue
            if isinstance(content, Path) and content.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            data = content if isinstance(content, bytes) else content.read_bytes()
            entry.size = len(data)
            entry.mode = 0o644 if isinstance(content, bytes) else content.stat().st_mode & 0o755 | 0o444
            tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def _target(link: Path) -> str:
    """Where a link leads, seen from its own folder: an absolute path means another file in an image."""
    target = link.readlink()
    return os.path.relpath(target.resolve(), link.parent) if target.is_absolute() else str(target)


def _repository(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "environment"
