"""A fork of the warm interpreter is to a test what a process is that was started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import warm

SECONDS = 60
TELL = "import json, os, sys; print(json.dumps([sys.argv, sys.path[:2], os.getcwd(), os.environ.get('ONE')]))"


def test_it_has_its_own_arguments_folder_variables_and_streams(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{TELL}; print('no', file=sys.stderr); sys.exit(3)")
    environment = {**os.environ, "ONE": "1", "PYTHONPATH": "/there"}
    for command, first, added in (
        (("-c", f"{TELL}; print('no', file=sys.stderr); sys.exit(3)", "a"), "-c", ""),
        ((str(script), "a"), str(script), str(tmp_path)),
    ):
        done = warm.run(*command, cwd=tmp_path, env=environment, timeout=SECONDS)
        assert (done.returncode, done.stderr) == (3, "no\n")
        assert json.loads(done.stdout) == [[first, "a"], [added, "/there"], str(tmp_path), "1"]


def test_it_runs_modules_and_what_they_say_of_their_mistakes() -> None:
    done = warm.run("-m", "aworld_train", "recipe", "there-is-none", timeout=SECONDS)
    assert done.returncode == 2 and "there-is-none" in done.stderr


@pytest.mark.parametrize(
    ("kind", "variables", "expected"),
    [
        (warm.VERL, {}, [True, True]),
        (warm.VERL, {"VERL_PLATFORM": "cpu"}, [False, False]),
        (warm.VERL, {"HF_HUB_OFFLINE": "of others"}, [False, False]),
        (warm.LIBRARIES, {"VERL_PLATFORM": "cpu"}, [True, False]),
        (warm.LIBRARIES, {"HF_HUB_OFFLINE": "of others"}, [False, False]),
    ],
)
def test_what_is_imported_already_has_read_the_variables_that_the_program_has(
    kind: str, variables: dict[str, str], expected: list[bool]
) -> None:
    loaded = "import sys; print([name in sys.modules for name in ('ray', 'verl')])"
    done = warm.run("-c", loaded, env={**os.environ, **variables}, timeout=2 * SECONDS, kind=kind)
    assert (done.returncode, done.stdout) == (0, f"{expected}\n"), done.stderr


def test_it_has_nothing_to_read() -> None:
    done = warm.run("-c", "import sys; print(repr(sys.stdin.read()))", timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "''\n"), done.stderr


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9)])
def test_what_stands_in_for_python_reads_writes_and_ends_as_its_fork(end: str, code: int) -> None:
    warm.start()
    program = f"import os, sys; print(sys.stdin.read(), sys.modules['torch'], flush=True); {end}"
    command = [os.environ[warm.STAND_IN_VARIABLE], "-P", "-c", program]
    done = subprocess.run(command, input="asked", capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (code, "asked None\n"), done.stderr


def test_an_end_of_which_nobody_tells_is_no_good_one() -> None:
    program = warm.popen("-c", "import time; time.sleep(600)")
    os.kill(psutil.Process(program.pid).ppid(), signal.SIGKILL)
    assert program.wait(SECONDS) == -signal.SIGKILL
    os.kill(program.pid, signal.SIGKILL)


def test_it_ends_by_signals_and_within_its_time() -> None:
    program = warm.popen("-c", "import time; time.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.1)
    program.kill()
    assert program.wait(SECONDS) == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run("-c", "import time; time.sleep(600)", timeout=0.1)


def test_what_is_read_before_any_import_starts_an_interpreter() -> None:
    tell = "import sys; print('mcp' in sys.modules, sys.flags.dev_mode)"
    assert warm.run("-c", tell, timeout=SECONDS).stdout == "True False\n"
    other = warm.run("-c", tell, env={**os.environ, "PYTHONDEVMODE": "1"}, timeout=SECONDS)
    assert other.stdout == "False True\n"
    assert isinstance(other.args, list) and other.args[0] == sys.executable


def test_one_that_is_started_is_looked_at_and_its_output_is_kept(tmp_path: Path) -> None:
    program = warm.Started("-c", "import sys; print('out'); sys.exit('err')", cwd=tmp_path, env=os.environ)
    assert program.communicate(SECONDS) == program.communicate() == ["out\n", "err\n"]
    assert program.poll() == program.returncode == 1
