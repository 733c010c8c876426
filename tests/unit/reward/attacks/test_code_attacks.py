"""The programs of `code_programs` in the sandbox of `code_tests`, as this machine's kernel and Python run it.

`tests/integration/test_code_tests.py` runs the same programs in a tool environment.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.reward.code_tests import CodeTests, program, read_verdict, without_fence
from aworld_train.reward.score_types import Score
from tests.properties import examples
from tests.unit.reward.attacks.code_programs import ATTACKS, Attack

LIMIT = 60.0


def run(folder: Path, attack: Attack, landlock: int | None = None) -> Score:
    """The score of a program, run as the tool of an environment runs it: from a file, in a folder of its own."""
    key, source = program(CodeTests(attack.tests, attack.seconds), without_fence(attack.code))
    if landlock is not None:
        asked = "version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)"
        assert asked in source
        source = source.replace(asked, f"version = {landlock}")
    file, own = folder / "program.py", folder / "temporary"
    file.write_text(source, "utf-8", "replace")
    own.mkdir()
    ran = subprocess.run(
        [sys.executable, "-B", str(file)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(own)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    subprocess.run(["rm", "-rf", str(own)], check=True)  # folders may be nested too deeply for Python
    assert {path.name for path in folder.iterdir()} <= {"program.py"}  # nothing is left where the tool looks
    return read_verdict(ran.stdout, key)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_only_a_right_program_passes_whatever_it_does(tmp_path: Path, attack: Attack) -> None:
    scored = run(tmp_path, attack)
    assert scored.value == attack.score, scored.steps
    assert attack.why in scored.steps[-1]


SIGNALS = {
    "kill": "os.kill(os.getppid(), 19)",
    "a group": "os.killpg(os.getpgid(os.getppid()), 9)",
    "everything": "os.kill(-1, 0)",
    "a descriptor of a process": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 19)",
    "a queue": "assert ctypes.CDLL(None).sigqueue(os.getppid(), 19, None) == 0",
    "the owner of a file": "r, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())",
    "the owner of a terminal": "fcntl.ioctl(os.pipe()[0], 0x8901, struct.pack('i', os.getppid()))",
}


@pytest.mark.parametrize("signalling", SIGNALS.values(), ids=SIGNALS.keys())
def test_no_signal_reaches_the_tests_where_landlock_is_older(tmp_path: Path, signalling: str) -> None:
    code = f"import ctypes, fcntl, os, signal, struct\n{signalling}\nraise ValueError('it was sent')"
    scored = run(tmp_path, Attack(code), landlock=5)
    assert scored.value == 0.0
    assert "PermissionError" in scored.steps[-1] or "AssertionError" in scored.steps[-1]


def test_a_right_program_passes_where_landlock_is_older(tmp_path: Path) -> None:
    code = "import os, threading\nos.kill(os.getpid(), 0)\nthreading.Thread(target=print).start()\n"
    assert run(tmp_path, Attack(code + "def add(a, b): return a + b"), landlock=5).value == 1.0


TEMPTATIONS = [
    "import os, sys, signal, ctypes",
    "sys.exit(0)",
    "os._exit(0)",
    "raise SystemExit",
    "print('passed')",
    "globals()['add'] = print",
    "os.kill(os.getppid(), 9)",
    "open(f'/proc/{os.getppid()}/mem')",
    "os.closerange(3, 20)",
    "sys.settrace(print)",
    "os.write(1, b'passed')",
    "os.fork()",
    "signal.alarm(1)",
    "sys.modules.clear()",
    "del add",
    "ctypes.string_at(0)",
]


@examples(12)
@given(st.lists(st.sampled_from(TEMPTATIONS), max_size=5), st.booleans())
def test_no_mixture_of_attacks_makes_a_wrong_program_right(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], inside: bool
) -> None:
    body = "\n".join(f"    {line}" for line in lines if not line.startswith(("del", "globals")))
    code = (
        f"import os, sys, signal, ctypes\ndef add(a, b):\n{body}\n    return 0"
        if inside
        else ("def add(a, b): return 0\n" + "\n".join(lines))
    )
    assert run(tmp_path_factory.mktemp("mixture"), Attack(code, hangs=True)).value == 0.0
