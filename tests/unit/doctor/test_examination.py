"""All probes together: within their time, without heavy imports, and without a fault where there is none."""

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from aworld_train.cli import console
from aworld_train.doctor import Finding, FindingStatus, Machine, Needs, examine
from aworld_train.doctor.examination import PROBE_SECONDS, PROBES
from aworld_train.doctor.finding import ok
from tests import warm
from tests.locations import REPOSITORY
from tests.unit.doctor.world import World, new_world
from tests.unit.test_imports import COMMAND, imported_by

MAX_CPU_SECONDS = 2.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return new_world(tmp_path)


def doctor(*arguments: str, before: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = ("-m", "aworld_train", "doctor", *arguments)
    if not before:
        return warm.run(*command, timeout=60, cwd=REPOSITORY)
    return subprocess.run(
        [*before, sys.executable, *command], capture_output=True, text=True, timeout=60, cwd=REPOSITORY
    )


def test_a_machine_without_faults_fails_nothing_without_a_recipe(world: World) -> None:
    findings = examine(world.machine(), world.needs(None))
    assert {finding.area for finding in findings} == set(PROBES)
    assert not [finding for finding in findings if finding.status is FindingStatus.fail]


def test_what_is_wrong_has_a_remedy(world: World) -> None:
    world.program("df", "exit 1")
    findings = examine(world.machine(), world.needs({"rollout": {"engine": "vllm"}}))
    assert FindingStatus.fail in {finding.status for finding in findings}
    assert all(bool(finding.remedy) == (finding.status is not FindingStatus.ok) for finding in findings)


def test_what_a_recipe_does_not_use_cannot_fail(world: World) -> None:
    """No GPU, no Docker, no SLURM, no cluster: none is a fault of a recipe that needs none."""
    world.variables |= {"RAY_ADDRESS": "http://127.0.0.1:9", "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    needs = world.needs({"env": {"docker_dir": "calculator-mcp-server", "backend": "process"}})
    probes = {area: PROBES[area] for area in ("gpu", "docker", "slurm", "ray", "shared memory", "tools")}
    assert not [each for each in examine(world.machine(), needs, probes) if each.status is FindingStatus.fail]


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"docker_dir": "calculator-mcp-server"}, "which they do where no Docker engine answers"),
        ({"docker_dir": "gaia-mcp-server"}, "starts no tools as processes"),
        ({"docker_dir": "calculator-mcp-server", "backend": "docker"}, "starts no tools as processes"),
        ({}, "starts no tools as processes"),
    ],
)
def test_tools_that_become_processes_without_an_engine_are_looked_at(
    world: World, environment: dict[str, str], what: str
) -> None:
    (finding,) = examine(world.machine(), world.needs({"env": environment}), {"tools": PROBES["tools"]})
    assert what in finding.what


def test_a_probe_that_hangs_is_a_finding_and_holds_up_no_other(world: World) -> None:
    release = threading.Event()

    def hang(machine: Machine, needs: Needs) -> Iterator[Finding]:
        yield ok("before")
        release.wait(60)

    def answer(machine: Machine, needs: Needs) -> Iterator[Finding]:
        yield ok("now")

    try:
        findings = examine(world.machine(), world.needs(None), {"hangs": hang, "answers": answer})
    finally:
        release.set()
    assert [(finding.area, finding.status.value) for finding in findings] == [
        ("hangs", "ok"),
        ("hangs", "warn"),
        ("answers", "ok"),
    ]
    assert f"did not end within {PROBE_SECONDS:g} s" in findings[1].what


def test_a_probe_that_meets_an_error_is_a_finding(world: World) -> None:
    world.variables["RAY_ADDRESS"] = "http://127.0.0.1:eighty"
    findings = examine(world.machine(), world.needs(None), {"ray": PROBES["ray"]})
    assert [finding.status for finding in findings] == [FindingStatus.ok, FindingStatus.warn]
    assert "could not be checked" in findings[1].what


def test_probes_that_wait_behind_those_that_hang_are_named(world: World) -> None:
    release = threading.Event()

    def hang(machine: Machine, needs: Needs) -> Iterator[Finding]:
        release.wait(60)
        yield from ()

    try:
        findings = examine(world.machine(), world.needs(None), {str(number): hang for number in range(60)})
    finally:
        release.set()
    assert [finding.area for finding in findings] == [str(number) for number in range(60)]
    assert "did not end" in findings[0].what
    assert "Not checked" in findings[-1].what


def test_the_quickstart_has_no_fault_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="needs the extra cpu")
    from tests.models import tiny_qwen3

    tiny_qwen3(64).save_pretrained(tmp_path / "model")
    files = {f"dataset.{part}": tmp_path / f"{part}.parquet" for part in ("train", "val")}
    for file in files.values():
        file.touch()
    values = [f"{key}={file}" for key, file in files.items()]
    done = doctor("recipes/quickstart.yaml", f"model.path={tmp_path / 'model'}", *values, "--json")
    report = json.loads(done.stdout)
    assert [finding for finding in report["findings"] if finding["status"] == "fail"] == []
    assert (done.returncode, report["recipe"], report["counts"]["fail"]) == (0, "quickstart", 0)


def test_a_fault_ends_with_1_and_stands_last(tmp_path: Path) -> None:
    done = doctor("recipes/quickstart.yaml", f"model.path={tmp_path}", "--runs", str(tmp_path))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert " to mend" in lines[-1]
    assert "fine" in lines[-1]
    words = " ".join(done.stdout.split())
    assert "fail" in words
    assert words.index("fail") > words.index("python ok")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_finding_is_one_line_or_on_a_terminal_lines_of_whole_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    path = "/data/" + "deep/" * 20 + "model"
    findings = [
        Finding(FindingStatus.ok, "Enough.", area="disk"),
        Finding(
            FindingStatus.fail,
            f"No such folder:\n{path}",
            "Make it with mkdir, and do so before a run.",
            "disk",
        ),
    ]
    doctor_module = import_module("aworld_train.cli.doctor")
    narrow = Console(force_terminal=is_terminal, width=60, color_system=None)
    monkeypatch.setattr(doctor_module, "out", narrow)
    monkeypatch.setattr(console, "out", narrow)
    doctor_module._print(findings)
    first, *others = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    remedy = "-> Make it with mkdir, and do so before a run."
    assert first == ["disk", "ok", "Enough."]
    if is_terminal:
        assert others[:2] == [["fail", "No", "such folder:"], [path]]
        assert all(len(" ".join(line)) < 60 for line in others if line != [path])
    else:
        assert others == [["disk", "fail", f"No such folder: {path} {remedy}"]]


def test_a_shell_in_which_few_files_may_be_open_fails() -> None:
    few = doctor("--json", before=("sh", "-c", 'ulimit -n 256 && exec "$@"', "sh"))
    texts = [each["what"] for each in json.loads(few.stdout)["findings"] if each["area"] == "limits"]
    assert any("Only 256 files may be open" in text for text in texts)
    assert few.returncode == 1


def test_a_kernel_without_landlock_fails_code_tests_alone(tmp_path: Path) -> None:
    without = (sys.executable, "-m", "tests.without_landlock")
    for scorer, status in (("code_tests", "fail"), ("exact", "warn")):
        values = (f"reward.scorer={scorer}", f"model.path={tmp_path}")
        done = doctor("recipes/quickstart.yaml", *values, "--json", before=without)
        findings = {each["area"]: each for each in json.loads(done.stdout)["findings"]}
        assert findings["code tests"]["status"] == status
        assert "lacks Landlock" in findings["code tests"]["what"]


def test_doctor_imports_nothing_heavy() -> None:
    heavy = ["ray", "torch", "transformers", "verl", "vllm", "pandas", "pyarrow", "huggingface_hub", "numpy"]
    assert imported_by(COMMAND.format(["doctor", "--help"]), [*heavy, "docker", "httpx"]) == "[]"
    script = "from aworld_train.doctor import Machine, Needs, examine\nexamine(Machine(), Needs())"
    assert imported_by(script, heavy) == "[]"


def test_doctor_without_a_recipe_takes_little_processor_time() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    doctor("--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MAX_CPU_SECONDS
