"""Which engine is asked, and what its containers get of the user's Docker settings."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import docker
from aworld_train.doctor import Needs
from aworld_train.doctor.engine import check_engine
from aworld_train.doctor.finding import FindingStatus
from aworld_train.doctor.machine import Machine
from aworld_train.env import containers
from aworld_train.env.containers import DockerBackend, engine_answers, engine_host
from aworld_train.errors import UsageError


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the docker command's settings, with the context ``lab``, and no variable that names an engine."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    metadata = tmp_path / "contexts" / "meta" / hashlib.sha256(b"lab").hexdigest() / "meta.json"
    metadata.parent.mkdir(parents=True)
    endpoint = {"Host": "unix:///lab/docker.sock", "SkipTLSVerify": False}
    metadata.write_text(json.dumps({"Name": "lab", "Metadata": {}, "Endpoints": {"docker": endpoint}}))
    containers._client.cache_clear()
    yield tmp_path
    containers._client.cache_clear()


@pytest.mark.parametrize(
    ("current", "variables", "host"),
    [
        (None, {}, "/var/run/docker.sock"),
        ("lab", {}, "unix:///lab/docker.sock"),
        (None, {"DOCKER_CONTEXT": "lab"}, "unix:///lab/docker.sock"),
        ("lab", {"DOCKER_HOST": "unix:///own.sock"}, "unix:///own.sock"),
        ("gone", {}, "The current Docker context does not exist"),
        (None, {"DOCKER_CONTEXT": "gone"}, "The current Docker context does not exist"),
        (None, {"DOCKER_HOST": "ssh://me@lab"}, "engine at ssh://me@lab is another machine's"),
    ],
)
def test_the_engine_is_that_of_the_current_context_and_doctor_names_the_same(
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    current: str | None,
    variables: dict[str, str],
    host: str,
) -> None:
    (settings / "config.json").write_text(json.dumps({"currentContext": current} if current else {}))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if " " not in host:
        assert engine_host() == host
    else:
        with pytest.raises(UsageError, match=host):
            DockerBackend()
    machine = Machine(root=settings)
    (finding,) = check_engine(machine, Needs(None))
    assert finding.status is not FindingStatus.ok
    assert (host if host.startswith("unix") or " " in host else str(settings / host[1:])) in finding.what
    assert not engine_answers() or host == "/var/run/docker.sock"


def test_the_proxies_of_the_users_settings_reach_no_container(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = {"httpProxy": "http://me:SECRET@proxy:3128"}
    (settings / "config.json").write_text(json.dumps({"proxies": {"default": proxy}}))
    client = docker.DockerClient("unix:///nowhere/docker.sock", version="1.41")
    created = []

    def create(config: dict[str, object], *_: object) -> None:
        created.append(config)
        raise ConnectionError

    monkeypatch.setattr(client.api, "create_container_from_config", create)
    backend = DockerBackend.__new__(DockerBackend)
    backend._client = client
    with pytest.raises(ConnectionError):
        backend._run("image", environment={"KEPT": "1"})
    assert created[0]["Env"] == ["KEPT=1"]
