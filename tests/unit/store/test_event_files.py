"""Files of events: whole frames come back whatever happens to the process or the disk."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aworld_train.atomic import is_locked
from aworld_train.episode.figures import EpisodeFigures
from aworld_train.store import event_files as module
from aworld_train.store.event_files import EventWriter, event_files, has_successor, read_events
from aworld_train.store.events import Blob, EpisodeEnded, Event


def blobs(folder: Path) -> list[str]:
    found: list[Event] = []
    for file in event_files(folder):
        for events, _ in read_events(file, 0, 1 << 40):
            found += events
    return [event.digest for event in found if isinstance(event, Blob)]


def test_events_come_back_in_order(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    for number in range(500):
        writer.add(Blob(str(number), b"x" * number))
    writer.close()
    assert blobs(tmp_path) == [str(number) for number in range(500)]


def test_an_event_after_the_end_is_an_error(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.close()
    with pytest.raises(RuntimeError):
        writer.add(Blob("a", b""))
    with pytest.raises(RuntimeError):
        asyncio.run(writer.written())


def test_a_number_that_cannot_be_written_is_an_error_and_stops_nothing(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    with pytest.raises(OverflowError):
        writer.add(EpisodeEnded("too large", 0.0, EpisodeFigures(turns=1 << 64)))
    writer.add(Blob("next", b""))
    asyncio.run(writer.written())
    assert blobs(tmp_path) == ["next"]
    writer.close()


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 40])
def test_a_frame_that_is_cut_off_ends_the_file(tmp_path: Path, cut: int) -> None:
    writer = EventWriter(tmp_path)
    writer.add(Blob("first", b""))
    asyncio.run(writer.written())
    (file,) = event_files(tmp_path)
    whole = file.stat().st_size
    writer.add(Blob("second", os.urandom(200)))
    writer.close()
    os.truncate(file, whole + cut)
    assert blobs(tmp_path) == ["first"]


def test_a_damaged_frame_ends_the_file(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.add(Blob("first", os.urandom(200)))
    writer.close()
    (file,) = event_files(tmp_path)
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert blobs(tmp_path) == []


def test_a_large_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    writer = EventWriter(tmp_path)
    for number in range(5):
        writer.add(Blob(str(number), os.urandom(2000)))
        asyncio.run(writer.written())
    files = event_files(tmp_path)
    assert len(files) > 1
    assert [has_successor(file, files) for file in files] == [True] * (len(files) - 1) + [False]
    writer.close()
    assert blobs(tmp_path) == list("01234")


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, write = threading.Event(), os.write

    def write_some(descriptor: int, data: bytes) -> int:
        if not full.is_set():
            return write(descriptor, data)
        if len(data) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:5]) if len(data) % 2 else _raise()

    def _raise() -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", write_some)
    writer = EventWriter(tmp_path)
    writer.add(Blob("before", b""))
    asyncio.run(writer.written())
    full.set()
    writer.add(Blob("while full", b""))
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(writer.written())
    with pytest.raises(OSError, match="No space left"):
        writer.add(Blob("refused", b""))
    full.clear()
    writer.close()
    assert blobs(tmp_path) == ["before", "while full"]


_WRITE = """
import sys, itertools
from pathlib import Path
from aworld_train.store.event_files import EventWriter
from aworld_train.store.events import Blob
writer = EventWriter(Path(sys.argv[1]))
for number in itertools.count():
    writer.add(Blob(str(number), bytes(50)))
    print(number, flush=True)
"""


def test_a_killed_process_leaves_what_it_had_written_and_its_file_is_free(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 30
        while len(blobs(tmp_path)) < 100:
            assert process.stdout is not None
            process.stdout.readline()
            assert time.monotonic() < deadline
        assert is_locked(event_files(tmp_path)[0])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = blobs(tmp_path)
    assert found == [str(number) for number in range(len(found))]
    assert not is_locked(event_files(tmp_path)[0])


_WRITE_AND_DIE = """
import asyncio, os, signal, sys
from pathlib import Path
from aworld_train.store import event_files
from aworld_train.store.events import Blob
event_files.FLUSH_SECONDS = 3600
writer = event_files.EventWriter(Path(sys.argv[1]))
for number in range(3):
    writer.add(Blob(str(number), bytes(50)))
    asyncio.run(writer.written())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_waited_for_outlives_its_process(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _WRITE_AND_DIE, str(tmp_path)], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert blobs(tmp_path) == ["0", "1", "2"]
