"""The cells of the notebook page run one after the other, in a process with an event loop, as a kernel is one."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from aworld_train.model.tiny import SHIPPED
from tests.code_blocks import blocks_of
from tests.locations import REPOSITORY
from tests.run_folders import make_run

PAGE = REPOSITORY / "docs/how-to/notebook.md"


def test_the_cells_run_with_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that trains, in whose place a run's folder is made."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED, "models/tiny")
    names: dict[str, Any] = {}

    async def kernel() -> None:
        for block in blocks_of(PAGE.read_text("utf-8"), PAGE):
            if "trainer.train(" in block.text:
                make_run(tmp_path / "runs", "notebook")
            else:
                exec(compile(block.text, block.place, "exec"), names)

    asyncio.run(kernel())
    recipe = names["trainer"].train_processor.checked.recipe
    assert (recipe.trainer.steps, recipe.reward.scorer) == (4, "nearby.py:nearby")
    assert names["accuracy"] == [(0, 0.5), (2, 0.75)]
