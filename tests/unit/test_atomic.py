"""A directory is replaced whole, wherever its writer is killed, and what killed writers left goes with the next one."""

import errno
import fcntl
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from aworld_train import atomic

WRITER = """
import sys, time
from pathlib import Path
from aworld_train import atomic
with atomic.replacing(Path(sys.argv[1]), lambda out: None) as folder:
    (folder / "part.bin").write_bytes(b"x")
    print("writing", flush=True)
    time.sleep(60)
"""

KILLED_EVERYWHERE = """
import json, os, shutil, signal, sys
from pathlib import Path
from aworld_train import atomic

if sys.argv[2] == "without exchange":
    atomic._exchange_at_once = lambda left, right: False

def write(out, text, before_end=lambda: None):
    with atomic.replacing(out, lambda out: None) as folder:
        (folder.parent / "runs").mkdir()
        for name in ("a", "b"):
            (folder.parent / "runs" / name).write_text("x")
            (folder / name).write_text(text)
        before_end()

def killed_at(out, line):
    lines = 0
    def trace(frame, event, argument):
        nonlocal lines
        if frame.f_code.co_filename not in (atomic.__file__, shutil.__file__):
            return None
        lines += event == "line"
        if lines == line:
            os.kill(os.getpid(), 9)
        return trace
    pid = os.fork()
    if pid == 0:
        write(out, "new", before_end=lambda: sys.settrace(trace))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9

def content(out):
    return sorted((path.name, path.read_text()) for path in out.glob("*"))

line = 0
while True:
    line += 1
    out = Path(sys.argv[1], str(line), "out")
    write(out, "old")
    if not killed_at(out, line):
        break
    after_kill = content(out)
    try:
        with atomic.replacing(out, lambda out: None):
            before_next = content(out)
            raise InterruptedError
    except InterruptedError:
        pass
    print(json.dumps([after_kill, before_next, content(out), sorted(os.listdir(out.parent))]))
"""
"""For every line that runs once the content is written, what is there after a kill at that line, while the next process
writes, and after that has failed."""

OLD, NEW = ([["a", text], ["b", text]] for text in ("old", "new"))


def replace(out: Path) -> None:
    with atomic.replacing(out, lambda out: None) as folder:
        (folder / "whole.txt").write_text("x")


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["out", "o[u]t"])
def test_a_second_writer_is_refused_and_removes_what_the_first_left_once_it_was_killed(
    tmp_path: Path, name: str
) -> None:
    out = tmp_path / name
    with subprocess.Popen([sys.executable, "-c", WRITER, out], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        left = hidden(tmp_path)
        with pytest.raises(OSError, match="another process is writing there now"):
            replace(out)
        assert hidden(tmp_path) == left and (len(left), out.exists()) == (2, False)
        replace(tmp_path / f"{name}.2")
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=120)
    assert hidden(tmp_path) == left
    replace(out)
    assert hidden(tmp_path) == [] and list(out.iterdir()) == [out / "whole.txt"]


@pytest.mark.parametrize("how", ["with exchange", "without exchange"])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_for_the_next(tmp_path: Path, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EVERYWHERE, tmp_path, how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    states = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(states) > 20
    for after_kill, before_next, after_next, names in states:
        # Without an exchange the old content is missing at its place until the next writer comes.
        assert after_kill in ((OLD, NEW) if how == "with exchange" else (OLD, NEW, []))
        assert before_next in (OLD, NEW) and before_next == (after_kill or OLD)
        assert after_next == before_next and names == ["out"]
    assert {str(state[0]) for state in states} >= {str(OLD), str(NEW)}
    assert ([] in [state[0] for state in states]) == (how == "without exchange")


def test_files_that_no_writer_made_stay(tmp_path: Path) -> None:
    own = [tmp_path / name for name in (".out.txt", ".out.abcdefgh", ".out.d", ".other.abcdefgh.partial")]
    for path in own:
        path.mkdir()
        (path / "new").mkdir()
    replace(tmp_path / "out")
    assert sorted(hidden(tmp_path)) == sorted(own)


def test_without_locks_nothing_of_others_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    left = tmp_path / ".out.abcdefgh.partial"
    left.mkdir()
    replace(tmp_path / "out")
    assert hidden(tmp_path) == [left] and (tmp_path / "out" / "whole.txt").exists()
