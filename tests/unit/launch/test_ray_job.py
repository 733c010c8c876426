"""A job of a Ray cluster: what travels to it, what its head checks first, and what its API's answers mean."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train import __version__
from aworld_train.encrypted_env import unseal
from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.launch import JobState
from aworld_train.launch.base import LaunchOptions
from aworld_train.launch.cluster_job import SEALED_VARIABLE, ClusterJob, read_job
from aworld_train.launch.cluster_nodes import Demand, _node_check, check_free, check_nodes
from aworld_train.launch.job import job_variables
from aworld_train.launch.log_tail import ClusterSilent, follow_log
from aworld_train.launch.ray_api import RayJobs, checked_address
from aworld_train.launch.ray_job import RayLauncher
from aworld_train.recipe import read

TOKEN = "t" * 64
JOB = ClusterJob("0011", "/runs/long", __version__, "/home/me", ["train", "x"], 2, 1)


class Api(BaseHTTPRequestHandler):
    """Answers as the Jobs API does, from ``answers`` by path; without the token it refuses unless ``is_open``."""

    answers: dict[str, tuple[int, Any]]
    is_open = False
    bodies: list[Any]

    def do_GET(self) -> None:
        if not self.is_open and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, "Unauthorized")
            return
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.bodies.append(json.loads(self.rfile.read(length)))
        self._send(*self.answers.get(self.path, (404, "Not Found")))

    do_POST = do_GET

    def _send(self, status: int, content: Any) -> None:
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


@pytest.fixture
def api() -> Iterator[tuple[type[Api], str]]:
    handler = type("Handler", (Api,), {"answers": {}, "bodies": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://head:8265", "http://head:8265"),
        ("https://ray.example.org/", "https://ray.example.org"),
        ("head:8265", "http://head:8265"),
    ],
)
def test_an_address_is_that_of_the_jobs_api(address: str, expected: str) -> None:
    assert checked_address(address) == expected


@pytest.mark.parametrize("address", ["ray://head:10001", "http://", "http://head:port", ""])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"is not an address of Ray's Jobs API .*cluster\.address"):
        checked_address(address)


def test_an_address_with_a_password_is_refused_without_it_in_the_message() -> None:
    with pytest.raises(UsageError, match="RAY_AUTH_TOKEN") as refused:
        checked_address("http://me:canary@head:8265")
    assert "canary" not in refused.value.message


def test_a_cluster_that_lets_everyone_in_is_refused(api: tuple[type[Api], str]) -> None:
    handler, address = api
    handler.answers = {"/api/version": (200, {"ray_version": "2.60.0"})}
    assert RayJobs(address, TOKEN).check() == "2.60.0"
    with pytest.raises(UsageError, match="does not accept the token"):
        RayJobs(address, "another").check()
    with pytest.raises(UsageError, match="does not accept a request without a token"):
        RayJobs(address, None).check()
    handler.is_open = True
    with pytest.raises(UsageError, match=r"asks for no token.*RAY_AUTH_MODE=token"):
        RayJobs(address, TOKEN).check()


def test_a_cluster_that_does_not_answer_is_no_traceback() -> None:
    with pytest.raises(ClusterSilent, match=r"http://127\.0\.0\.1:9 does not answer"):
        RayJobs("http://127.0.0.1:9", TOKEN).check()


@pytest.mark.parametrize(
    ("answer", "state", "exit_code"),
    [
        ((200, {"status": "PENDING", "driver_exit_code": None}), JobState.waiting, None),
        ((200, {"status": "RUNNING"}), JobState.running, None),
        ((200, {"status": "SUCCEEDED", "driver_exit_code": 0}), JobState.ended, 0),
        ((200, {"status": "FAILED", "driver_exit_code": 2}), JobState.ended, 2),
        ((200, {"status": "STOPPED"}), JobState.ended, None),
        ((404, "Job gone does not exist"), JobState.unknown, None),
    ],
)
def test_the_state_of_a_job(
    api: tuple[type[Api], str], answer: tuple[int, Any], state: JobState, exit_code: int | None
) -> None:
    handler, address = api
    handler.answers = {"/api/jobs/long": answer}
    status = RayJobs(address, TOKEN).status("long")
    assert (status.state, status.exit_code) == (state, exit_code)


def test_a_refusal_is_told_by_the_last_line_of_rays_traceback(api: tuple[type[Api], str]) -> None:
    handler, address = api
    handler.answers = {"/api/jobs/": (500, "Traceback:\n  File ...\nValueError: no agent\n")}
    message = r"answered 500 to POST /api/jobs/: ValueError: no agent\. .*dashboard.*`ray status`"
    with pytest.raises(TrainingFailure, match=message):
        RayJobs(address, TOKEN).submit("long", "true", variables={"A": "b"}, metadata={})
    (body,) = handler.bodies
    assert body == {
        "submission_id": "long",
        "entrypoint": "true",
        "runtime_env": {"env_vars": {"A": "b"}},
        "metadata": {},
    }


def growing(*parts: str) -> Callable[[], str]:
    logs = iter(["".join(parts[: count + 1]) for count in range(len(parts))])
    return lambda: next(logs)


def test_a_followed_log_has_each_line_once_and_the_last_one_without_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aworld_train.launch.log_tail.POLL_SECONDS", 0.0)
    ends = iter([False, False, True])
    lines = follow_log(growing("a\nb", "c\n", "d"), lambda: next(ends), follow=True)
    assert list(lines) == ["a", "bc", "d"]
    assert list(follow_log(growing("a\nb", "c"), lambda: False, follow=False)) == ["a", "b"]


def test_a_followed_log_survives_a_silence_that_is_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.launch.log_tail.POLL_SECONDS", 0.0)
    answers: list[str | Exception] = [ClusterSilent("silent"), "a\n"]

    def read_log() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert list(follow_log(read_log, lambda: not answers[1:], follow=True)) == ["a"]
    answers = [ClusterSilent("silent")]
    monkeypatch.setattr("aworld_train.launch.log_tail.MAX_SILENT_SECONDS", -1.0)
    with pytest.raises(ClusterSilent):
        list(follow_log(read_log, lambda: False, follow=True))


def test_a_job_gets_what_the_recipe_needs_and_nothing_else_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("MCP_SERVER_TOKEN=from-file\n")
    (tmp_path / "agent.yaml").write_text(
        "agents: [{endpoint: {url: x, model: y, key_variable: CRITIC_KEY}}]\n"
    )
    given = {
        "MCP_SERVER_URL": "http://tools:8080/mcp",
        "JUDGE_KEY": "judge",
        "CRITIC_KEY": "critic",
        "SEARCH_KEY": "$HOME search",
        "NCCL_DEBUG": "INFO",
        "WANDB_API_KEY": "wandb",
        "AWS_SECRET_ACCESS_KEY": "of the shell",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("MCP_SERVER_TOKEN", "HF_TOKEN", "HF_ENDPOINT", "MCP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    tree = {
        "agent": {"aworld": "agent.yaml"},
        "endpoints": {"judge": {"url": "http://judge/v1", "model": "m", "key_variable": "JUDGE_KEY"}},
        "verl": {"trainer": {"run_note": "${oc.env:SEARCH_KEY}"}},
    }
    loaded = read(tree, [])
    sent = job_variables(loaded)
    assert sent == {
        "MCP_SERVER_URL": "http://tools:8080/mcp",
        "MCP_SERVER_TOKEN": "from-file",
        **{name: given[name] for name in ("JUDGE_KEY", "CRITIC_KEY", "SEARCH_KEY", "NCCL_DEBUG")},
    }
    own = job_variables(read(tree, ["env.docker_dir=calculator-mcp-server", "trainer.loggers=[wandb]"]))
    assert "MCP_SERVER_TOKEN" not in own
    assert own["WANDB_API_KEY"] == "wandb"
    monkeypatch.setenv("TENSORBOARD_DIR", "/shared/tensorboard")
    assert (
        job_variables(read(tree, ["trainer.loggers=[tensorboard]"]))["TENSORBOARD_DIR"]
        == "/shared/tensorboard"
    )


def test_a_job_gets_the_variables_that_its_file_of_tool_servers_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: tuple[type[Api], str]
) -> None:
    handler, address = api
    handler.answers["/api/jobs/"] = (200, {"submission_id": "x"})
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    names = ("PLAIN", "EDITORS", "USER_NAME", "PASSWORD", "HOST")
    for name in (*names, "OFF", "OTHER"):
        monkeypatch.setenv(name, f"{name} of the shell")
    servers = {
        "files": {
            "command": "npx",
            "args": ["p"],
            "env": {"A": "${PLAIN}", "B": "${env:EDITORS}", "C": "fixed"},
        },
        "issues": {
            "url": "https://${HOST:-h}/mcp",
            "headers": {"Authorization": "Basic ${USER_NAME}:${PASSWORD} ${UNSET_OF_ALL:-x}"},
        },
        "off": {"command": "npx", "args": ["p"], "env": {"A": "${OFF}"}, "disabled": True},
    }
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    loaded = read({"env": {"mcp_servers": str(file)}}, [])
    (run_dir := tmp_path / "run").mkdir()
    processor: Any = SimpleNamespace(checked=loaded, run_dir=lambda recipe: run_dir)
    RayLauncher()._submit(processor, RayJobs(address, TOKEN), run_dir, LaunchOptions())
    (body,) = handler.bodies
    sent = unseal(body["runtime_env"]["env_vars"][SEALED_VARIABLE], TOKEN)
    assert {name: value for name, value in sent.items() if value.endswith("of the shell")} == {
        name: f"{name} of the shell" for name in names
    }
    written = [path.read_text() for path in run_dir.rglob("*") if path.is_file()]
    assert "of the shell" not in "".join([json.dumps(body), *written])


def test_the_head_reads_the_job_of_this_launch_alone(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    with pytest.raises(UsageError, match=r"cannot read .*job\.json.*file system that .* share"):
        read_job(file, "0011")
    file.write_text(JOB.to_json())
    assert read_job(file, "0011") == JOB
    with pytest.raises(UsageError, match="belongs to another launch"):
        read_job(file, "2233")


@pytest.mark.parametrize(
    "free",
    [
        [{"CPU": 8.0, "GPU": 1.0}],
        [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0}],
        [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}],
        [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}],
        [],
    ],
    ids=["one node", "no GPU", "too few CPU", "too few CPU in all", "none"],
)
def test_what_does_not_fit_is_refused(free: list[dict[str, float]]) -> None:
    with pytest.raises(UsageError, match=r"takes 2 node\(s\) with 1 GPU and 3 CPU each .*, and 9 CPU in all"):
        check_free({str(number): node for number, node in enumerate(free)}, Demand(2, 1))


def test_a_cluster_that_cannot_be_joined_is_told_with_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="needs the extra cpu or gpu")

    def refuse(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nMore lines.")

    monkeypatch.setattr(ray, "init", refuse)
    message = (
        r"cannot join .*: ConnectionError: Could not find any running Ray instance\. See with `ray status`"
    )
    with pytest.raises(TrainingFailure, match=message):
        check_nodes(tmp_path, "0011", Demand(1, 1))


def test_what_fits_is_accepted() -> None:
    check_free(
        {"a": {"CPU": 4.0, "GPU": 1.0}, "b": {"CPU": 4.0, "GPU": 2.0}, "c": {"CPU": 1.0}}, Demand(2, 1)
    )


def test_a_node_answers_only_in_the_folder_that_the_head_has_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aworld_train.launch.cluster_nodes._VISIBLE_SECONDS", 0.0)
    check = _node_check(str(tmp_path), "reach-0011", "0011")
    assert "does not see the file reach-0011" in check("node")
    (tmp_path / "reach-0011").write_text("0011")
    assert check("node") == ""
    assert (tmp_path / "reach-0011-node").read_text() == "0011"
    (tmp_path / "reach-0011-other").mkdir()
    assert "cannot write and lock a file" in check("other")
