"""What a process waits for is on disk within seconds, whatever the process does, and leaves no trace once it ends."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aworld_train import waits

PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from aworld_train import waits
waits.WRITE_SECONDS = 0.05

async def main():
    asyncio.ensure_future(waits.beat())
    with waits.waiting("tool", "slow"):
        with waits.waiting("model"):
            await asyncio.sleep(0)
        waits.report(Path(sys.argv[1]), "episodes")
        {hang}

asyncio.run(main())
"""


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def waits_of(folder: Path, hang: str, holds: Callable[[waits.ProcessWaits], bool]) -> waits.ProcessWaits:
    """What a program that hangs has written once ``holds`` is true of it."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM.format(hang=hang), str(folder)])
    try:
        until(lambda: any(holds(each) for each in waits.read(folder)))
        return next(each for each in waits.read(folder) if holds(each))
    finally:
        process.kill()
        process.wait()


def test_an_open_wait_is_read_with_its_age_and_a_closed_one_is_not(tmp_path: Path) -> None:
    read = waits_of(
        tmp_path, "await asyncio.sleep(60)", lambda each: each.waits[0].seconds > 0.3 > each.blocked
    )
    assert [(wait.kind, wait.name) for wait in read.waits] == [("tool", "slow")]
    assert read.role == "episodes"
    (file,) = (tmp_path / waits.FOLDER).iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_a_process_that_blocks_its_event_loop_still_reports_and_says_so(tmp_path: Path) -> None:
    read = waits_of(tmp_path, "time.sleep(60)", lambda each: each.blocked > 0.5)
    assert read.waits[0].name == "slow"


def test_the_age_of_a_process_that_was_killed_grows(tmp_path: Path) -> None:
    waits_of(tmp_path, "await asyncio.sleep(60)", lambda each: True)
    (before,) = waits.read(tmp_path)
    until(lambda: waits.read(tmp_path)[0].age > before.age + 0.2)
    waits.forget(tmp_path)
    assert waits.read(tmp_path) == []


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / waits.FOLDER
    folder.mkdir(parents=True)
    for number, content in enumerate(["", "{", "[]", "{}", json.dumps({"waits": [{}]})]):
        (folder / f"{number}.json").write_text(content)
    assert waits.read(tmp_path) == []
