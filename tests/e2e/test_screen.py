"""The live screen of a real training, on a real pseudo-terminal: figures while it goes, and Ctrl-C."""

import os
import re

import pytest

from tests.e2e.conftest import CLI, SMALL, STARTED_BY, Workspace, assert_all_gone, descendants
from tests.locations import REPOSITORY
from tests.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


def test_a_run_is_shown_as_it_goes_and_ctrl_c_gives_the_terminal_back(workspace: Workspace) -> None:
    command = [*CLI, "train", "recipes/quickstart.yaml", "name=screen", *SMALL, "trainer.steps=50"]
    variables = {
        "AWORLD_TRAIN_STATE": str(workspace.path / "state"),
        "PYTHONPATH": str(REPOSITORY),
        STARTED_BY: str(os.getpid()),
    }
    with Terminal(command, environment=variables, cwd=workspace.path) as terminal:
        text = terminal.wait_for("▶ start", 300)
        assert terminal.is_full_screen
        assert text.startswith("screen  step 0 of 50")
        terminal.wait(lambda terminal: "▶ validation" in terminal.text or "▶ rollout" in terminal.text, 300)
        text = terminal.wait_for("step 2 of 50", 300)
        assert re.search(r"^reward    \d\.\d{3}  \S\S  \d\.\d{3} to \d\.\d{3}$", text, re.MULTILINE)
        assert re.search(r"^outcomes  .*\b\d+  \((step|validation)", text, re.MULTILINE)
        assert re.search(r"^tokens/s  [\d,]+$", text, re.MULTILINE)
        assert " left" in text.splitlines()[0]
        everything = descendants(terminal.process.pid)
        terminal.type("\x03")
        assert terminal.end(60) == 130
        assert not terminal.is_full_screen
        assert terminal.has_cursor
        assert "step 2/50 · reward" in terminal.text
        assert terminal.text.endswith("error: interrupted")
        assert_all_gone(everything)
    assert workspace.summary("screen")["status"] == "interrupted"
