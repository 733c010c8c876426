"""Several tests at a time, in forks of the process that has collected them: what the tests import is imported once.

    pytest --processes 4

A file is run by one process, from its beginning to its end, so what it makes for its tests is made once. Files that use
the same things make a chain, which is run by one process too (see ``conftest``). A fixture of the session lives as long
as a chain. Every process has its own folder for temporary files, in one that they share (``SHARED_FOLDER``). Warnings
are not told.
"""

import contextlib
import gc
import multiprocessing
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

SHARED_FOLDER = "AWORLD_TRAIN_TESTS_SHARED_FOLDER"
"""The environment variable that names the folder for what all processes use."""
_SECONDS_TO_END = 60.0  # for a process, with what its fixtures take away

Chain = Sequence[pytest.Item]


def run(session: pytest.Session, chains: Sequence[Chain], count: int) -> None:
    """Run the tests of a session, in ``count`` processes; the chains are begun in their order."""
    # VeRL's SFT trainer sets it when a test imports it. Tokenizers then use threads that forks do not have, and wait
    # for ever; without it they notice the fork.
    os.environ.pop("TOKENIZERS_PARALLELISM", None)
    factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    os.environ[SHARED_FOLDER] = str(factory.getbasetemp())
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        session.config.pluginmanager.register(FailuresAtOnce(terminal))
    left = list(reversed(chains))
    # Garbage is not looked for in what the processes have in common, of which they would have copies then.
    gc.collect()
    gc.freeze()
    processes = [_Process(session, number) for number in range(min(count, len(chains)))]
    try:
        while left or any(process.chain for process in processes):
            if session.shouldstop or session.shouldfail:
                break
            for process in processes:
                if left and not process.chain:
                    process.begin(left.pop())
            busy = {process.connection: process for process in processes if process.chain}
            for ready in wait(list(busy)):
                busy[ready].receive()  # type: ignore[index]
    finally:
        for process in processes:
            process.end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


class FailuresAtOnce:
    """Says of each failed test its name and reason when it fails, for a run that is cut off has no summary."""

    MAX_REASON_CHARS = 400  # of its begin, and as many of its end, where programs say what went wrong

    def __init__(self, terminal: Any):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason, limit = crash.message if crash else str(report.longrepr), self.MAX_REASON_CHARS
            if len(reason) > 2 * limit:
                reason = f"{reason[:limit]}\n[…]\n{reason[-limit:]}"
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}): {reason}")


@dataclass
class _Process:
    """One of the processes, as the one that has collected the tests sees it.

    Attributes:
        chain: What it still has to run of its chain; the test under way is its first.
    """

    session: pytest.Session
    number: int
    chain: list[pytest.Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        fork = multiprocessing.get_context("fork")
        self.connection, child_end = fork.Pipe()
        self._process = fork.Process(
            target=_serve, args=(self.session, child_end, self.connection, self.number), daemon=False
        )
        self._process.start()
        child_end.close()

    def begin(self, chain: Chain) -> None:
        """Give it a chain to run."""
        self.chain = list(chain)
        at = {item: index for index, item in enumerate(self.session.items)}
        self.connection.send([at[item] for item in self.chain])

    def receive(self) -> None:
        """Take what it has to say: a report, or that a test is over."""
        hook, config = self.session.config.hook, self.session.config
        try:
            data = self.connection.recv()
        except (EOFError, ConnectionError):
            self._replace()
            return
        if data is None:
            item = self.chain.pop(0)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            return
        report = hook.pytest_report_from_serializable(config=config, data=data)
        hook.pytest_runtest_logreport(report=report)

    def _replace(self) -> None:
        """It ended during a test: report that test as failed, and start another process for the rest of the chain."""
        self._process.join(_SECONDS_TO_END)
        item, *rest = self.chain
        what = f"The process that ran this test ended with {self._process.exitcode}."
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", what, "call")
        self.session.config.hook.pytest_runtest_logreport(report=report)
        self._start()
        self.chain = []
        if rest:
            self.begin(rest)

    def end(self) -> None:
        """End it, with what it has made for its tests."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        if self.chain:
            self._process.terminate()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(session: pytest.Session, connection: Connection, parent_end: Connection, number: int) -> None:
    """Run chains until there are no more; what happens is told through the connection."""
    parent_end.close()
    config = session.config
    _be_own(session, number)

    class Reports:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            connection.send(config.hook.pytest_report_to_serializable(config=config, report=report))

    config.pluginmanager.register(Reports())
    try:
        while (places := connection.recv()) is not None:
            chain = [session.items[place] for place in places]
            for item, following in zip(chain, [*chain[1:], None], strict=True):
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                connection.send(None)
    except (KeyboardInterrupt, EOFError, pytest.exit.Exception):
        session._setupstate.teardown_exact(None)
    finally:
        sys.stdout.flush()
        os._exit(0)


def _be_own(session: pytest.Session, number: int) -> None:
    """Share no file, folder or random numbers with the other processes, and say nothing on the terminal."""
    config = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    capture.stop_global_capturing()
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal._tw._file = Path(os.devnull).open("w")  # noqa: SIM115
    capture.start_global_capturing()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)
