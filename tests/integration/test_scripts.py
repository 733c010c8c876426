"""The scripts for people and CI, in a copy of the layout whose .venv is a stand-in: nothing is installed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# Of the tools that are tested, which .ci/run installs where they are missing.
PROGRAMS = ["chromium", "ffmpeg", "flite", "heif-enc", "tesseract"]
SCRIPTS = [
    "scripts/_setup.sh",
    "scripts/quickstart.sh",
    "scripts/test.sh",
    "scripts/gaia-mini.sh",
    "scripts/gpu-proof.sh",
    ".ci/run",
    ".ci/engine.sh",
]
SERVICES = {"DOCKER_HOST": "unix:///there/is/one"}

CLI = """\
#!/usr/bin/env bash
printf '%s\\n' "$*" >>"$(dirname "$0")/calls"
case $1 in
    dataset) mkdir -p data/arithmetic && touch data/arithmetic/dataset.json ;;
    train)
        run=runs/$(printf '%s\\n' "$@" | sed -n 's/^name=//p')
        mkdir -p "$run" && touch "$run/recipe.yaml"
        status=$(cat status 2>/dev/null || echo completed)
        echo '{"name": "q", "status": "'$status'", "steps_done": 10, "episodes": 1280, "tool_calls": 900,
  "val": {"before": {"accuracy": 0.461, "n": 256}, "after": {"accuracy": 0.973, "n": 256}},
  "seconds": 151.2, "checkpoint": "the/model"}' >"$run/summary.json"
        [[ $status == completed ]] || exit "$(cat code)" ;;
esac
"""

PYTHON = """\
#!/usr/bin/env bash
[[ $1 == -m && $2 == pytest ]] && {{ shift 2; printf 'pytest %s\\n' "$*"; exit "${{PYTEST_CODE:-0}}"; }}
[[ $1 == -m && $2 == pip && $* == *install* ]] && {{ {pip} ; }}
[[ $1 == -m && $2 != pip && $2 != venv ]] && {{ printf '%s\\n' "$*"; [[ $2 != "${{FAILING:-}}" ]]; exit; }}
[[ $1 == */bin/lint-imports ]] && {{ echo lint-imports; [[ lint-imports != "${{FAILING:-}}" ]]; exit; }}
exec {real} "$@"
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository without .venv, in a folder with a space in its name."""
    root = tmp_path / "a checkout"
    for name in [
        *SCRIPTS,
        "scripts/shape.py",
        "scripts/uv_settings.py",
        "pyproject.toml",
        "requirements/cpu.txt",
        "CONTRIBUTING.md",
    ]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    return root


@pytest.fixture
def installed(checkout: Path) -> Path:
    """The same with a .venv that counts as set up, whose programs only note how they were called."""
    stand_in(checkout, install="exit 9")
    executable(checkout / ".venv/bin/aworld-train", CLI)
    sourced(checkout, 'fingerprint >"$stamp"; echo cpu,dev >>"$stamp"')
    return checkout


def stand_in(root: Path, *, install: str) -> None:
    """A .venv with a Python and a uv that do the shell commands ``install`` for ``pip install``."""
    executable(root / ".venv/bin/python", PYTHON.format(pip=install, real=sys.executable))
    executable(root / ".venv/bin/uv", f"#!/usr/bin/env bash\n{install}\n")


@pytest.fixture(params=["uv", "pip"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which one installs, as INSTALLER says to the scripts."""
    monkeypatch.setenv("INSTALLER", request.param)
    return str(request.param)


def run(
    root: Path, script: str, *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [root / script, *arguments],
        cwd=cwd or root,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def sourced(
    root: Path, commands: str, input: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run commands after sourcing ``_setup.sh``, as the scripts do."""
    return subprocess.run(
        ["bash", "-c", f'set -euo pipefail; source "$1/scripts/_setup.sh"; {commands}', "bash", root],
        env={**os.environ, **environment},
        input=input,
        capture_output=True,
        text=True,
        timeout=60,
    )


def calls(root: Path) -> list[str]:
    file = root / ".venv/bin/calls"
    return file.read_text().splitlines() if file.exists() else []


def old_python(path: Path, version: str = "3, 9, 2") -> str:
    """A Python that is ``sys.executable`` in everything but the version it gives, and has any module."""
    pretend = f"import sys; sys.version_info = ({version})"
    text = f'#!/bin/sh\n[ "$1" = -m ] && exit\nshift\nexec {sys.executable} -c "{pretend}\n$1"\n'
    return str(executable(path, text))


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_parses_and_is_executable_unless_it_is_sourced(script: str) -> None:
    path = REPOSITORY / script
    subprocess.run(["bash", "-n", path], check=True)
    assert os.access(path, os.X_OK) is not path.name.startswith("_")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    command = ["shellcheck", "-x", "-P", "SCRIPTDIR", *SCRIPTS]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout == ""


def test_too_old_a_python_is_named_with_its_version_and_nothing_is_made(
    checkout: Path, tmp_path: Path
) -> None:
    python = old_python(tmp_path / "python")
    done = run(checkout, "scripts/quickstart.sh", PYTHON=python)
    assert done.returncode == 2
    assert f"Python 3.11 or 3.12 is needed ({python} is 3.9.2)" in done.stderr
    assert done.stderr.count("error:") == 1
    assert not (checkout / ".venv").exists()


def test_too_new_a_python_is_refused_as_well(checkout: Path, tmp_path: Path) -> None:
    done = run(checkout, "scripts/test.sh", PYTHON=old_python(tmp_path / "python", "3, 13, 0"))
    assert (done.returncode, "is 3.13.0)" in done.stderr) == (2, True)


def test_python_without_venv_gets_the_name_of_the_package_to_install(checkout: Path, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['ensurepip'] = None"
    python = executable(tmp_path / "python", f'#!/bin/sh\nshift\nexec {sys.executable} -c "{hide}\n$1"\n')
    done = run(checkout, "scripts/quickstart.sh", PYTHON=str(python))
    assert done.returncode == 2
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in done.stderr


def test_first_python_that_fits_is_taken_also_behind_one_that_does_not_run(
    checkout: Path, tmp_path: Path
) -> None:
    executable(tmp_path / "bin/python3.11", "#!/bin/sh\nexit 127\n")
    executable(tmp_path / "bin/python3.12", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    done = sourced(checkout, "find_python; echo $python", PATH=path_with(tmp_path / "bin"), PYTHON="")
    assert done.stdout == "python3.12\n"


def test_a_venv_of_an_unfit_python_is_left_alone(checkout: Path) -> None:
    old_python(checkout / ".venv/bin/python")
    done = run(checkout, "scripts/quickstart.sh")
    assert done.returncode == 2
    assert "is of Python 3.9.2" in done.stderr
    assert "Remove that folder" in done.stderr
    assert (checkout / ".venv/bin/python").exists()


def test_too_little_disk_stops_before_anything_is_made(checkout: Path, tmp_path: Path) -> None:
    executable(tmp_path / "bin/df", "#!/bin/sh\necho head\necho /dev/x 9 9 3200000 1% /\n")
    done = run(checkout, "scripts/quickstart.sh", PATH=path_with(tmp_path / "bin"))
    assert done.returncode == 2
    assert "needs 6 GB free" in done.stderr
    assert "3 GB are" in done.stderr
    assert not (checkout / ".venv").exists()


FAILURES = {
    "pip": [
        ("NewConnectionError: Failed to establish a new connection", "is there a network"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("ERROR: Could not build wheels for antlr4", "pip failed"),
    ],
    "uv": [
        ("error: Request failed after 3 retries in 8.9s", "is there a network"),
        ("  cause: failed to write to file: No space left on device (os error 28)", "The disk is full"),
        ("  x No solution found when resolving dependencies", "INSTALLER=pip installs with pip instead"),
    ],
}


@pytest.mark.parametrize("failure", range(3))
def test_failed_installation_ends_with_its_last_lines_and_what_to_do(
    checkout: Path, installer: str, failure: int
) -> None:
    line, advice = FAILURES[installer][failure]
    stand_in(checkout, install=f"echo '{line}'; exit 1")
    done = run(checkout, "scripts/quickstart.sh")
    assert done.returncode == 1
    assert line in done.stderr
    assert advice in done.stderr.splitlines()[-1]
    assert not (checkout / ".venv/aworld-train.stamp").exists()


RECORD = 'echo "$*" >>calls; cp cli .venv/bin/aworld-train; exit 0'


def installations(root: Path) -> list[str]:
    """The arguments of each installation after the options that all of them have."""
    lines = [line for line in (root / "calls").read_text().splitlines() if "--dry-run" not in line]
    return [line[line.index("-c ") :] for line in lines if "-c " in line]


def test_installation_leaves_a_stamp_and_is_not_repeated(checkout: Path, installer: str) -> None:
    executable(checkout / "cli", CLI)
    stand_in(checkout, install=RECORD)
    first, second = (sourced(checkout, 'cd "$root"; set_up cpu') for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "Installed." in first.stderr
    assert "Nothing to install" in second.stderr
    assert installations(checkout)[-1] == f"-c {checkout}/requirements/cpu.txt -e {checkout}[cpu]"


def test_torch_is_installed_before_all_else_and_from_the_index_asked_for(
    checkout: Path, installer: str
) -> None:
    executable(checkout / "cli", CLI)
    stand_in(checkout, install=RECORD)
    done = sourced(
        checkout,
        'cd "$root"; make_venv; printf "torch==9.9\n" >requirements/cpu.txt; install_packages cpu',
        TORCH_INDEX_URL="http://index.invalid/cpu",
    )
    assert done.returncode == 0, done.stderr
    torch, rest = installations(checkout)
    assert torch.endswith(" torch==9.9")
    assert rest.endswith("[cpu]")
    option = {"pip": "--extra-index-url", "uv": "--index"}[installer]
    lines = (checkout / "calls").read_text().splitlines()
    assert all(f"{option} http://index.invalid/cpu" in line for line in lines)


def test_uv_gets_the_indexes_and_the_way_there_that_pip_is_configured_with(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UV_INDEX_URL", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    executable(checkout / "cli", CLI)
    stand_in(checkout, install=f"env >uv.env; {RECORD}")
    configuration = checkout / "pip.conf"
    configuration.write_text(
        "[global]\nindex-url = http://mirror.invalid/simple\nproxy = http://proxy.invalid:8\n"
    )
    done = sourced(
        checkout,
        'cd "$root"; set_up cpu; env >after.env',
        PIP_CONFIG_FILE=str(configuration),
        PIP_INDEX_URL="http://nearer.invalid/simple",
    )
    assert done.returncode == 0, done.stderr
    variables = (checkout / "uv.env").read_text().splitlines()
    assert "UV_INDEX_URL=http://nearer.invalid/simple" in variables
    assert "HTTPS_PROXY=http://proxy.invalid:8" in variables
    assert "HTTPS_PROXY=http://proxy.invalid:8" not in (checkout / "after.env").read_text().splitlines()


def test_pip_installs_where_uv_is_not_to_be_had(checkout: Path, tmp_path: Path) -> None:
    executable(checkout / "cli", CLI)
    stand_in(checkout, install=f"[[ $* != *' uv' ]] || exit 1; {RECORD}")
    (checkout / ".venv/bin/uv").unlink()
    done = sourced(checkout, 'cd "$root"; command() { [[ $2 != uv ]] && builtin command "$@"; }; set_up cpu')
    assert done.returncode == 0, done.stderr
    assert "uv could not be installed, so pip does it all" in done.stderr
    assert all("-m pip" in line for line in (checkout / "calls").read_text().splitlines())


def test_uv_comes_from_the_index_where_there_is_none(checkout: Path) -> None:
    executable(checkout / "cli", CLI)
    stand_in(checkout, install=f"[[ $* == *' uv' ]] && mv aside .venv/bin/uv; {RECORD}")
    (checkout / ".venv/bin/uv").rename(checkout / "aside")
    done = sourced(checkout, 'cd "$root"; command() { [[ $2 != uv ]] && builtin command "$@"; }; set_up cpu')
    assert done.returncode == 0, done.stderr
    lines = (checkout / "calls").read_text().splitlines()
    assert ["-m pip" in line for line in lines] == [True] + [False] * (len(lines) - 1)
    assert installations(checkout)[-1].endswith("[cpu]")


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("Downloading torch-2.13.0-cp311-cp311-linux.whl (187.0 MB)", "downloading torch-2.13.0 (187.0 MB)"),
        ("Downloading torch (178.3MiB)", "downloading torch (178.3MiB)"),
        ("Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)", None),
        ("Downloading numpy (6.1MiB)", None),
        ("Installing collected packages: a, b, c", "unpacking 3 packages"),
        ("Prepared 141 packages in 4.50s", "unpacking 141 packages"),
    ],
)
def test_big_downloads_and_the_unpacking_are_shown(checkout: Path, line: str, progress: str | None) -> None:
    done = sourced(checkout, "show_progress", input=line + "\n")
    assert [text.split("s]   ")[1] for text in done.stderr.splitlines()] == ([progress] if progress else [])


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements/cpu.txt"])
def test_set_up_is_due_again_when_what_is_installed_changes(installed: Path, changed: str) -> None:
    assert sourced(installed, "is_installed cpu").returncode == 0
    with (installed / changed).open("a") as file:
        file.write("# changed\n")
    assert sourced(installed, "is_installed cpu").returncode == 1


def test_set_up_is_due_again_when_the_repository_moves(installed: Path) -> None:
    moved = installed.rename(installed.with_name("moved"))
    assert sourced(moved, "is_installed cpu").returncode == 1


def test_extras_that_are_there_are_enough_for_fewer_and_are_kept(installed: Path) -> None:
    for extras, there in {"cpu": True, "cpu,dev": True, "cpu,docs": False, "gpu": False}.items():
        assert (sourced(installed, f"is_installed {extras}").returncode == 0) is there, extras
    assert sourced(installed, "with_earlier_extras cpu").stdout == "cpu,dev\n"


def test_cuda_build_of_torch_is_announced_and_needs_more_disk(
    checkout: Path, tmp_path: Path, installer: str
) -> None:
    executable(tmp_path / "bin/df", "#!/bin/sh\necho head\necho /dev/x 9 9 10000000 1% /\n")
    executable(tmp_path / "bin/uname", "#!/bin/sh\necho Linux x86_64\n")
    path = path_with(tmp_path / "bin")
    for version, code in {"2.13.0": 2, "2.13.0+cpu": 0}.items():
        plan = {"pip": f"Would install torch-{version}", "uv": f" + torch=={version}"}[installer]
        stand_in(checkout, install=f"echo '{plan}'; exit 0")
        done = sourced(checkout, "find_uv; warn_of_cuda torch==2.13.0", PATH=path)
        assert (done.returncode, "TORCH_INDEX_URL" in done.stderr) == (code, code == 2)


def test_quickstart_from_another_folder_through_a_link_does_all_of_it(
    installed: Path, tmp_path: Path
) -> None:
    link = tmp_path / "quick start"
    link.symlink_to(installed / "scripts/quickstart.sh")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run([link], cwd=elsewhere, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [" ".join(call.split()[:2]) for call in calls(installed)] == [
        "dataset build",
        "model tiny",
        "train recipes/quickstart.yaml",
    ]
    assert "46.1% -> 97.3% of 256 tasks" in done.stdout
    assert "runs/quickstart/summary.json" in done.stdout
    assert list(elsewhere.iterdir()) == []


def test_complete_run_is_shown_and_not_trained_again(installed: Path) -> None:
    run(installed, "scripts/quickstart.sh")
    before = calls(installed)
    done = run(installed, "scripts/quickstart.sh")
    assert calls(installed) == before
    assert "is complete" in done.stderr
    assert "97.3%" in done.stdout


def test_complete_run_is_not_shown_for_another_recipe(installed: Path) -> None:
    run(installed, "scripts/quickstart.sh")
    run(installed, "scripts/quickstart.sh", "trainer.steps=30")
    assert calls(installed)[-1] == "train recipes/quickstart.yaml name=quickstart trainer.steps=30 --resume"


@pytest.mark.parametrize(("status", "code"), [("interrupted", 130), ("failed", 1), ("running", 137)])
def test_unfinished_run_passes_its_exit_code_on_and_is_resumed(
    installed: Path, status: str, code: int
) -> None:
    (installed / "status").write_text(status)
    (installed / "code").write_text(str(code))
    stopped = run(installed, "scripts/quickstart.sh")
    assert (stopped.returncode, "Interrupted. Run the same" in stopped.stderr) == (code, code == 130)
    (installed / "status").unlink()
    done = run(installed, "scripts/quickstart.sh")
    assert done.returncode == 0
    assert calls(installed)[-1] == "train recipes/quickstart.yaml name=quickstart --resume"


def test_the_model_that_comes_with_the_package_is_copied(installed: Path) -> None:
    run(installed, "scripts/quickstart.sh")
    assert calls(installed)[1] == "model tiny --out models/tiny"


def test_seed_gives_another_run_on_the_same_tasks(installed: Path) -> None:
    done = run(installed, "scripts/quickstart.sh", "--seed", "7", "trainer.lr=1e-4")
    dataset, model, train = calls(installed)
    assert "--seed" not in dataset
    assert "--seed" not in model
    settings = "trainer.seed=7 name=quickstart-seed7 trainer.lr=1e-4"
    assert train == f"train recipes/quickstart.yaml {settings}"
    assert "runs/quickstart-seed7" in done.stdout


def test_name_given_is_the_run_that_is_looked_at(installed: Path) -> None:
    for _ in range(2):
        done = run(installed, "scripts/quickstart.sh", "name=mine")
        assert "runs/mine/summary.json" in done.stdout
    assert sum(call.startswith("train") for call in calls(installed)) == 1


@pytest.mark.parametrize("wrong", ["--seed", "--seed=x", "--sed=1", "long"])
def test_wrong_argument_is_refused_before_anything_is_done(checkout: Path, wrong: str) -> None:
    done = run(checkout, "scripts/quickstart.sh", wrong)
    assert (done.returncode, done.stderr.count("error:")) == (2, 1)
    assert not (checkout / ".venv").exists()


def test_help_needs_no_set_up(checkout: Path) -> None:
    done = run(checkout, "scripts/quickstart.sh", "--help")
    assert done.returncode == 0
    assert "TORCH_INDEX_URL" in done.stdout


def test_interrupt_during_installation_leaves_with_130_and_one_line(checkout: Path) -> None:
    stand_in(
        checkout, install=": >under-way; exec sleep 60"
    )  # a shell that waits for `touch` may outlive Ctrl-C
    process = subprocess.Popen(
        [checkout / "scripts/quickstart.sh"],
        cwd=checkout,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in the background of a shell would hand its ignored SIGINT down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (checkout / "under-way").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "Interrupted. Run the same command again to go on."
    assert not (checkout / ".venv/aworld-train.stamp").exists()


def test_all_checks_run_beside_pytest(installed: Path) -> None:
    executable(installed / "aworld_train/one.py", "def f(): ...")
    done = run(installed, "scripts/test.sh")
    assert done.returncode == 0, done.stderr
    ruff, formatting, imports, *_, pytest_line = done.stdout.splitlines()
    assert (ruff, formatting) == ("-m ruff check .", "-m ruff format --check .")
    assert imports == "lint-imports"
    assert "mypy: -m mypy" in done.stderr
    assert "functions fully typed" in done.stderr
    words, _, marks = pytest_line.partition(" -m ")
    assert words == (
        "pytest --processes 4 --junitxml=.cache/tests.xml tests/e2e tests/integration tests/unit"
    )
    assert marks == "not bench and not install and not slow and not frameworks"


def test_all_tests_are_those_of_the_default_and_the_slow_ones(installed: Path) -> None:
    done = run(installed, "scripts/test.sh", "--all")
    assert done.stdout.splitlines()[-1].endswith(" tests/unit -m not bench and not install")


@pytest.mark.parametrize("check", ["mypy", "lint-imports"])
def test_a_failed_check_fails_the_script_although_the_tests_pass(installed: Path, check: str) -> None:
    done = run(installed, "scripts/test.sh", FAILING=check)
    assert done.returncode == 1
    assert f"Failed beside the tests: {check}." in done.stderr
    assert any(line.startswith("pytest ") for line in done.stdout.splitlines())


def test_figures_of_the_package_that_cannot_be_had_fail_nothing(installed: Path) -> None:
    done = run(installed, "scripts/test.sh")
    assert done.returncode == 0
    assert "aworld_train has no Python files" in done.stderr


def test_exit_code_of_pytest_is_passed_on(installed: Path) -> None:
    assert run(installed, "scripts/test.sh", PYTEST_CODE="4").returncode == 4


def test_arguments_go_to_pytest_alone(installed: Path) -> None:
    done = run(installed, "scripts/test.sh", "-k", "a name", "tests/unit")
    assert done.stdout == "pytest -k a name tests/unit\n"


def test_ci_runs_the_same_checks(installed: Path) -> None:
    for program in PROGRAMS:
        executable(installed / "bin" / program, "")
    path = path_with(installed / "bin")
    done = run(installed, ".ci/run", cwd=installed.parent, PATH=path, **SERVICES)
    assert done.returncode == 0, done.stderr
    assert " tests/e2e tests/integration tests/unit " in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("user", "asked"), [("0", ["update -qq", "install -y"]), ("1000", [])])
def test_ci_asks_the_distribution_for_python_only_as_root(
    installed: Path, tmp_path: Path, user: str, asked: list[str]
) -> None:
    for program in PROGRAMS:
        executable(tmp_path / "bin" / program, "")
    executable(tmp_path / "bin/id", f"#!/bin/sh\necho {user}\n")
    executable(tmp_path / "bin/apt-get", f'#!/bin/sh\necho "$1 $2" >>"{tmp_path}/asked"\n')
    run(installed, ".ci/run", "-q", PATH=path_with(tmp_path / "bin"), PYTHON="no-such-python", **SERVICES)
    file = tmp_path / "asked"
    assert (file.read_text().splitlines() if file.exists() else []) == asked


def test_ci_fails_where_there_is_no_engine_and_stops_what_it_started(installed: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    executable(installed / ".ci/engine.sh", f'#!/bin/sh\necho "$1" >>"{heard}"\n[ "$1" != start ]\n')
    for name, does in {"docker": "exit 1", "id": "echo 0", "apt-get": "exit 0", "chromium": "exit 0"}.items():
        executable(tmp_path / "bin" / name, f"#!/bin/sh\n{does}\n")
    done = run(installed, ".ci/run", PATH=path_with(tmp_path / "bin"), DOCKER_HOST="")
    assert done.returncode == 1
    assert "What the tests need could not be started" in done.stderr
    assert "pytest" not in done.stdout
    assert heard.read_text().split() == ["start", "stop"]
