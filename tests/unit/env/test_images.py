"""The files that are copied into images are enough to run each program there."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from aworld_train.env import egress_image, images
from aworld_train.env.directory import EnvDirectory, find_directory
from aworld_train.serving import egress, env_gateway, worker


@pytest.mark.parametrize(
    ("program", "first_error"),
    [
        (env_gateway, "KeyError: 'AWORLD_GATEWAY'"),
        (worker, "KeyError: 'AWORLD_WORKER'"),
        (egress, "AWORLD_EGRESS cannot be used"),
    ],
)
def test_a_program_starts_from_the_files_of_its_image(
    program: ModuleType, first_error: str, tmp_path: Path
) -> None:
    runtime = images._runtime(find_directory("calculator-mcp-server"))
    files = egress_image._files() if program is egress else runtime
    script = images.RUN_SCRIPT.format(folder=tmp_path).encode()
    for name, content in {**files, "run.py": script}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    finished = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "run.py"), program.__name__],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 1
    assert first_error in finished.stderr
    traced = [line for line in finished.stderr.splitlines() if "aworld_train/serving" in line]
    assert all(str(tmp_path) in line for line in traced)


@pytest.fixture
def directory(tmp_path: Path) -> EnvDirectory:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "servers.yaml").write_text("{name: tools, servers: {s: {command: [run]}}}")
    (folder / "server.py").write_text("run()")
    return find_directory(folder)


def test_secrets_of_a_directory_are_not_in_its_build_context_and_are_said(directory: EnvDirectory) -> None:
    secret_files = (
        *(".env", ".env.local", "keys.env", "below/prod.ENV", ".git/config", ".ssh/id_rsa", "below/.netrc"),
        *("tls.key", "server.pem", "id_ed25519"),
    )
    for name in (*secret_files, ".env.example", "ca.pem"):
        file = directory.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("-----BEGIN PRIVATE KEY-----\nSECRET" if name == "server.pem" else "SECRET")
    context, left_out = images._directory_context(directory)
    with tarfile.open(fileobj=io.BytesIO(context)) as archive:
        assert set(archive.getnames()) == {"servers.yaml", "server.py", ".env.example", "ca.pem"}
    shown = {entry.removesuffix(" (may hold secrets)") for entry in left_out}
    assert shown == {
        name.replace(".git/config", ".git").replace(".ssh/id_rsa", ".ssh") for name in secret_files
    }


def test_a_link_is_not_followed_and_one_that_leads_out_of_the_directory_is_left_out(
    directory: EnvDirectory, tmp_path: Path
) -> None:
    outside = tmp_path / "shadow"
    outside.write_text("SECRET")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("SECRET")
    for name, target in (
        ("out", outside),
        ("up", Path("../shadow")),
        ("folder", tmp_path / "folder"),
        ("inside", Path("server.py")),
    ):
        (directory.path / name).symlink_to(target)
    context, left_out = images._directory_context(directory)
    with tarfile.open(fileobj=io.BytesIO(context)) as archive:
        assert set(archive.getnames()) == {"servers.yaml", "server.py", "inside"}
        assert archive.getmember("inside").linkname == "server.py"
    assert b"SECRET" not in context
    assert left_out == [f"{name} (a link out of the directory)" for name in ("folder", "out", "up")]
    before = directory.digest()
    outside.write_text("ANOTHER")
    assert directory.digest() == before


def test_an_empty_folder_and_a_link_by_a_whole_path_are_in_an_image_as_in_the_directory(
    directory: EnvDirectory,
) -> None:
    (directory.path / "parts").mkdir()
    (directory.path / "parts" / "tool.py").write_text("tool()")
    (directory.path / "linked").symlink_to(directory.path / "parts")
    (directory.path / "parts" / "up").symlink_to(directory.path / "server.py")
    before = directory.digest()
    (directory.path / "data").mkdir()
    context, left_out = images._directory_context(directory)
    with tarfile.open(fileobj=io.BytesIO(context)) as archive:
        assert archive.getmember("data").isdir()
        assert archive.getmember("linked").linkname == "parts"
        assert archive.getmember("parts/up").linkname == "../server.py"
        assert {"parts/tool.py", "server.py"} < set(archive.getnames())
    assert left_out == []
    assert directory.digest() != before


@pytest.mark.parametrize(
    ("instruction", "found"),
    [
        ("RUN --mount=type=cache,target=/c pip install x", "RUN --mount"),
        ("run <<EOF\n  pip install x\nEOF", "run <<EOF"),
        ("COPY <<'END' /etc/x\nEND", "COPY <<'END"),
        ("COPY --chmod=755 a b", "COPY --chmod"),
        ("COPY --from=base a b", ""),
        ("RUN echo 'a << 1' && cat a > b", ""),
        ("# RUN --mount=type=cache", ""),
    ],
)
def test_an_instruction_that_only_buildkit_has_is_named_with_what_to_do(
    directory: EnvDirectory, instruction: str, found: str
) -> None:
    (directory.path / "Dockerfile").write_text(f"FROM x\n\n{instruction}\n")
    note = images._buildkit_note(directory)
    assert bool(note) == bool(found)
    if found:
        assert f"Line 3 of {directory.path}/Dockerfile ({found}) needs BuildKit" in note
