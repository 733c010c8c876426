"""Tokens that are revoked at the command line, and a log that does not grow for ever: an environment of processes."""

import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import psutil
import pytest
from typer.testing import CliRunner, Result

from aworld_train.cli.env import app
from aworld_train.env import EnvConnection, down, find, registry, up
from aworld_train.errors import EnvironmentFailure, UsageError
from aworld_train.serving.local import MAX_LOG_BYTES
from tests.environments import HEADERS, HELLO, eventually

NAME = "revoking"


@pytest.fixture
def environment(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvConnection]:
    monkeypatch.setenv("AWORLD_TRAIN_STATE", str(tmp_path))
    yield up("calculator-mcp-server", name=NAME, backend="process")
    down(NAME)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=True)


def opening(connection: EnvConnection, token: str) -> int:
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    return httpx.post(connection.mcp_url, headers=headers, json=HELLO).status_code


def new_token() -> dict[str, str]:
    printed: dict[str, str] = json.loads(run("token", NAME, "--json").stdout)
    return printed


def gateway_of(name: str) -> psutil.Process:
    record = find(name)
    assert record is not None
    below = psutil.Process(record.handle["pid"]).children(recursive=True)
    return next(one for one in below if one.cmdline()[-1] == "aworld_train.serving.env_gateway")


def test_a_token_is_revoked_by_itself_or_by_its_id_for_the_gateway_that_comes_after_too(
    environment: EnvConnection,
) -> None:
    by_itself, by_id, other = new_token(), new_token(), new_token()
    assert {opening(environment, token_result["token"]) for token_result in (by_itself, by_id, other)} == {
        200
    }
    for token_result, token_or_id in ((by_itself, by_itself["token"]), (by_id, by_id["id"])):
        revoked = run("token", NAME, "--revoke", token_or_id, "--json")
        assert json.loads(revoked.stdout) == {"revoked": token_result["id"], "sessions": 1, "kept": True}
        assert token_result["token"] not in revoked.output
    for _ in range(2):
        assert opening(environment, by_itself["token"]) == 401
        assert opening(environment, by_id["token"]) == 401
        assert opening(environment, other["token"]) == 200
        assert opening(environment, environment.token) == 200
        gateway_of(NAME).kill()
        assert eventually(lambda: answers(environment.mcp_url.replace("/mcp", "/health")))


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False


def test_an_environment_that_is_started_anew_has_another_secret_after_a_revocation(
    environment: EnvConnection,
) -> None:
    token_result = new_token()
    assert up("calculator-mcp-server", name=NAME, backend="process", workers=2).token == environment.token
    assert run("token", NAME, "--revoke", token_result["token"]).exit_code == 0
    anew = up("calculator-mcp-server", name=NAME, backend="process", workers=1)
    assert opening(anew, token_result["token"]) == 401
    assert opening(anew, environment.token) == 401
    assert opening(anew, anew.token) == 200


def test_what_cannot_be_revoked_is_said(environment: EnvConnection) -> None:
    other = new_token()["token"].rpartition(".")[0] + ".x"
    for token_or_id, reason in (
        (environment.token, "the token of 'revoking' itself"),
        (other, "the token is not valid here"),
        ("", "needs a token"),
    ):
        refused = run("token", NAME, "--revoke", token_or_id)
        assert isinstance(refused.exception, UsageError), token_or_id
        assert reason in refused.exception.message
    gateway_of(NAME).suspend()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aworld_train.env.revocation._SECONDS", 0.5)
            refused = run("token", NAME, "--revoke", "an-id")
    finally:
        gateway_of(NAME).resume()
    assert isinstance(refused.exception, EnvironmentFailure)
    assert "try again" in refused.exception.message


def test_a_long_log_is_put_aside_and_who_follows_it_goes_on(environment: EnvConnection) -> None:
    log, old = registry.log_path(NAME), registry.old_log_path(NAME)
    line = "x" * 99 + "\n"
    with log.open("a") as file:
        file.write(line * (MAX_LOG_BYTES // len(line) - 1))
    command = [sys.executable, "-m", "aworld_train", "env", "logs", NAME, "-n", "1", "-f"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == line
        with log.open("a") as file:
            file.write(line + "just before\n" + line)
            file.flush()
            assert eventually(lambda: log.stat().st_size < 1000)
            file.write("just after\n")
        assert old.stat().st_size > MAX_LOG_BYTES
        lines = iter(following.stdout.readline, "")
        assert [next(lines) for _ in range(4)] == [line, "just before\n", line, "just after\n"]
        down(NAME)
        following.communicate(timeout=60)
    finally:
        following.kill()
        following.wait()
    assert not old.exists() and not log.exists()
